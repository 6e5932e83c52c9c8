"""Security as the settings say: for connections to brokers, for who asks here, and for ZooKeeper.

All files are read once here, so that what is wrong with them ends the start with a ConfigError.
"""

from __future__ import annotations

from controller.errors import ConfigError
from controller.runtime.config import Settings, config_errors, kafka_addresses, split_address
from controller.runtime.kafka.security.acls import AclAuthorizer
from controller.runtime.kafka.security.client import ClientSecurity, Login
from controller.runtime.kafka.security.sasl import Mechanism, SecurityProtocol
from controller.runtime.kafka.security.server import ServerSecurity
from controller.runtime.kafka.security.users import ReadNode, users_in_file, users_in_zookeeper
from proto.security.access import Access, Listener, access_of
from proto.security.authorization import super_users
from proto.security.files import FromFiles, password_in
from proto.security.principals import PrincipalRules
from proto.security.settings import given
from proto.security.tls import ClientAuth, TlsFiles, client_contexts, server_contexts
from proto.zookeeper_access import ZooKeeperAccess


def client_security(settings: Settings) -> ClientSecurity:
    """For connections to brokers. Raises ConfigError."""
    protocol = SecurityProtocol(settings.kafka_security_protocol)
    contexts = None
    if files := kafka_tls_files(settings):
        with config_errors(settings.sources):
            contexts = client_contexts(files)
    return ClientSecurity(protocol, contexts, _login(settings) if protocol.sasl else None)


def server_security(settings: Settings, read: ReadNode) -> ServerSecurity:
    """For who asks here. ``read``: reads a znode, for SCRAM. Raises ConfigError."""
    protocol = SecurityProtocol(settings.kafka_security_protocol)
    try:
        rules = PrincipalRules(settings.kafka_ssl_principal_mapping_rules)
    except ValueError as error:
        raise _wrong(settings, "kafka_ssl_principal_mapping_rules", str(error)) from None
    contexts = None
    if files := kafka_tls_files(settings):
        default = "none" if protocol.sasl else "required"
        auth = ClientAuth(settings.kafka_ssl_client_auth or default)
        with config_errors(settings.sources):
            contexts = server_contexts(files, auth)
    if not protocol.sasl:
        return ServerSecurity(protocol, contexts, principal_rules=rules)
    users = given(settings.kafka_sasl_users_file)
    others = settings.kafka_sasl_enabled_mechanisms
    offered = {Mechanism(name) for name in (settings.kafka_sasl_mechanism, *others.split(",")) if name}
    if Mechanism.PLAIN not in offered:
        users = None
    elif users is None:
        raise _wrong(settings, "kafka_sasl_users_file", "a file of users, because PLAIN is offered")
    with config_errors(settings.sources):
        plain = users_in_file(users) if users else None
    scram = frozenset(mechanism.scram for mechanism in offered if mechanism.scram is not None)
    return ServerSecurity(protocol, contexts, users_in_zookeeper(read), scram, plain)


def acl_authorizer(settings: Settings) -> AclAuthorizer | None:
    """Kafka's ACLs, if ``kafka_authorizer`` says so. It allows nobody but super users until it follows a session.
    Raises ConfigError."""
    try:
        supers = super_users(settings.kafka_super_users)
    except ValueError as error:
        raise _wrong(settings, "kafka_super_users", str(error)) from None
    if settings.kafka_authorizer == "none":
        return None
    return AclAuthorizer(supers, everyone_if_none_found=settings.kafka_allow_everyone_if_no_acl_found)


def access(settings: Settings, acls: AclAuthorizer | None) -> Access:
    """Who asks by gRPC and HTTP, and what they may: the rules of ``authorizer_file``, else ``acls``.

    Raises ConfigError, also when an address that others reach lacks TLS or an authorizer (docs/adr/0007)."""
    tls = settings.tls_files is not None
    listeners = [
        Listener("grpc_listen", split_address(settings.grpc_listen)[0], tls),
        Listener("http_listen", split_address(settings.http_listen)[0], settings.https),
    ]
    if settings.leads_kafka:
        encrypted = SecurityProtocol(settings.kafka_security_protocol).encrypted
        listeners += [
            Listener("kafka_listen", host, encrypted, guarded=acls is not None)
            for host, _ in kafka_addresses(settings).values()
        ]
    with config_errors(settings.sources):
        return access_of(settings, listeners, acls)


def zookeeper_access(settings: Settings) -> ZooKeeperAccess:
    """How sessions connect and log in. Raises ConfigError."""
    with config_errors(settings.sources):
        return settings.zookeeper_access()


def _login(settings: Settings) -> Login:
    if not settings.kafka_sasl_username:
        raise _wrong(settings, "kafka_sasl_username", "a name, because kafka_security_protocol has SASL")
    return Login(
        Mechanism(settings.kafka_sasl_mechanism),
        settings.kafka_sasl_username,
        _password(settings, "kafka_sasl_password_file"),
    )


def _password(settings: Settings, setting: str) -> FromFiles[str]:
    path = given(getattr(settings, setting))
    if path is None:
        raise _wrong(settings, setting, "a file with the password in its first line")
    with config_errors(settings.sources):
        return password_in(setting, path)


def kafka_tls_files(settings: Settings) -> TlsFiles | None:
    """None: connections of Kafka's protocol are not encrypted."""
    if not SecurityProtocol(settings.kafka_security_protocol).encrypted:
        return None
    paths = settings.kafka_ssl_certificate, settings.kafka_ssl_key, settings.kafka_ssl_ca
    certificate, key, ca = map(given, paths)
    return TlsFiles(certificate, key, ca, "kafka_ssl_")


def _wrong(settings: Settings, name: str, allowed: str) -> ConfigError:
    return ConfigError(name, str(getattr(settings, name)), allowed, settings.sources.get(name, ""))
