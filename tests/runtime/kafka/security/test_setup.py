"""Security from settings: what is missing is said at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.errors import ConfigError
from controller.runtime.config import Settings, load
from controller.runtime.daemon import Daemon
from controller.runtime.kafka.security.acls import AclAuthorizer
from controller.runtime.kafka.security.sasl import SecurityProtocol
from controller.runtime.kafka.security.scram import ScramMechanism, format_credential, make_credential
from controller.runtime.kafka.security.setup import (
    access,
    acl_authorizer,
    client_security,
    server_security,
    zookeeper_access,
)
from proto.security.access import Openness
from proto.security.authorization import CLUSTER, AllowAll, Operation, Principal
from proto.zookeeper_access import OPEN_ACCESS
from tests.support.runtime.certificates import Authority


async def nobody(path: str) -> bytes | None:
    return None


def settings(**values: object) -> Settings:
    return load(values, environ={})


def test_by_default_nothing_is_secured() -> None:
    ours = client_security(settings())
    assert (ours.protocol, ours.ssl, ours.login) == (SecurityProtocol.PLAINTEXT, None, None)
    assert server_security(settings(), nobody).mechanisms == ()
    assert acl_authorizer(settings()) is None
    assert isinstance(access(settings(), None).authorizer, AllowAll)
    assert zookeeper_access(settings()) == OPEN_ACCESS


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"kafka_security_protocol": "SASL_PLAINTEXT"}, "kafka_sasl_username"),
        (
            {"kafka_security_protocol": "SASL_PLAINTEXT", "kafka_sasl_username": "a"},
            "kafka_sasl_password_file",
        ),
        (
            {"kafka_security_protocol": "SASL_PLAINTEXT", "kafka_sasl_username": "a",
             "kafka_sasl_password_file": "EMPTY"},
            "kafka_sasl_password_file",
        ),
        ({"kafka_security_protocol": "SSL", "kafka_ssl_key": "EMPTY"}, "kafka_ssl_certificate"),
        ({"kafka_security_protocol": "SSL", "kafka_ssl_ca": "EMPTY"}, "kafka_ssl_ca"),
    ],
)  # fmt: skip
def test_what_a_client_lacks(values: dict[str, str], key: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch(0o600)
    given = {k: str(empty) if v == "EMPTY" else v for k, v in values.items()}
    with pytest.raises(ConfigError) as refused:
        client_security(settings(**given))
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"kafka_security_protocol": "SSL"}, "kafka_ssl_certificate"),
        ({"kafka_security_protocol": "SASL_SSL"}, "kafka_ssl_certificate"),
        (
            {"kafka_security_protocol": "SASL_PLAINTEXT", "kafka_sasl_mechanism": "PLAIN"},
            "kafka_sasl_users_file",
        ),
        (
            {"kafka_security_protocol": "SASL_PLAINTEXT", "kafka_sasl_enabled_mechanisms": "PLAIN"},
            "kafka_sasl_users_file",
        ),
    ],
)
def test_what_a_listener_lacks(values: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        server_security(settings(**values), nobody)
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("own", "others", "offered"),
    [
        ("SCRAM-SHA-512", "", ("SCRAM-SHA-512",)),
        ("SCRAM-SHA-256", "", ("SCRAM-SHA-256",)),
        ("PLAIN", "", ("PLAIN",)),
        ("SCRAM-SHA-512", "SCRAM-SHA-512", ("SCRAM-SHA-512",)),
        ("SCRAM-SHA-512", "PLAIN,SCRAM-SHA-256", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    ],
)
def test_a_listener_offers_no_mechanism_that_nobody_asked_for(
    own: str, others: str, offered: tuple[str, ...], tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_text(
        f'[users]\nalice = "{format_credential(make_credential(ScramMechanism.SHA_512, "secret"))}"\n'
    )
    users.chmod(0o600)
    chosen = {"kafka_security_protocol": "SASL_PLAINTEXT", "kafka_sasl_mechanism": own}
    found = server_security(
        settings(**chosen, kafka_sasl_enabled_mechanisms=others, kafka_sasl_users_file=str(users)), nobody
    )
    assert found.mechanisms == offered


@pytest.mark.parametrize("rules", ["", "default", "RULE:(/x/"])
def test_rules_that_are_none(rules: str) -> None:
    with pytest.raises(ConfigError, match="DEFAULT and RULE:PATTERN") as refused:
        server_security(settings(kafka_ssl_principal_mapping_rules=rules), nobody)
    assert refused.value.key == "kafka_ssl_principal_mapping_rules"


def test_super_users_that_are_none() -> None:
    with pytest.raises(ConfigError, match="separated by semicolons") as refused:
        acl_authorizer(settings(kafka_super_users="alice"))
    assert refused.value.key == "kafka_super_users"


def test_a_listener_with_tls_demands_certificates_unless_sasl_says_who(tmp_path: Path) -> None:
    certfile, keyfile = Authority(tmp_path).issue("controller")
    files = {"kafka_ssl_certificate": str(certfile), "kafka_ssl_key": str(keyfile)}
    with pytest.raises(ConfigError, match="authorities of the clients' certificates"):
        server_security(settings(kafka_security_protocol="SSL", **files), nobody)
    assert server_security(settings(kafka_security_protocol="SASL_SSL", **files), nobody).tls is not None


@pytest.mark.parametrize("guard", ["acls", "rules", ""])
def test_a_listener_that_others_reach_is_guarded_by_acls_or_rules(tmp_path: Path, guard: str) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("")
    certificate, key = Authority(tmp_path).issue("localhost")
    given = settings(
        controller_id=1001,
        kafka_takeover="fallback",
        kafka_listen="0.0.0.0:9092",
        kafka_security_protocol="SSL",
        kafka_ssl_certificate=str(certificate),
        kafka_ssl_key=str(key),
        kafka_ssl_ca=str(certificate),
        kafka_authorizer="acl" if guard == "acls" else "none",
        **({"authorizer_file": str(rules)} if guard == "rules" else {}),
    )
    acls = acl_authorizer(given)
    if guard:
        assert access(given, acls).openness is Openness.GUARDED
        return
    with pytest.raises(ConfigError) as refused:
        access(given, acls)
    assert refused.value.key == "kafka_listen"


def test_super_users_come_from_the_settings() -> None:
    found = acl_authorizer(settings(kafka_authorizer="acl", kafka_super_users="User:CN=b,O=x;User:a"))
    assert isinstance(found, AclAuthorizer)
    for name, may in (("a", True), ("CN=b,O=x", True), ("c", False)):
        assert found.allowed(Principal(name, ""), Operation.CLUSTER_ACTION, CLUSTER) is may


def test_the_login_to_zookeeper(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\nnot this\n")
    password.chmod(0o600)
    found = zookeeper_access(
        settings(
            zookeeper_sasl_username="kafka",
            zookeeper_sasl_password_file=str(password),
            zookeeper_set_acl=True,
        )
    )
    assert found.sasl is not None
    assert (found.name, found.sasl.password(), found.set_acl) == ("kafka", "secret", True)
    assert "secret" not in repr(found)
    with pytest.raises(ConfigError, match="nobody would own"):
        zookeeper_access(settings(zookeeper_set_acl=True))
    with pytest.raises(ConfigError, match="zookeeper_sasl_password_file"):
        zookeeper_access(settings(zookeeper_sasl_username="kafka"))


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_the_process_warns_of_all_certificates_that_it_uses(tmp_path: Path, protocol: str) -> None:
    """Also of those for ZooKeeper, without which it is cut off; files that are not used have no say."""
    prefixes = ["ssl", "zookeeper_ssl", *(["kafka_ssl"] if protocol == "SSL" else [])]
    files: dict[str, Path] = {}
    for prefix in (*prefixes, "kafka_ssl"):
        authority = Authority(tmp_path / prefix)
        certificate, key = authority.issue("own")
        files |= {
            f"{prefix}_certificate": certificate,
            f"{prefix}_key": key,
            f"{prefix}_ca": authority.cafile,
        }
    given = settings(
        zookeeper_ssl_client_enable="true",
        kafka_security_protocol=protocol,
        state_log_dir=str(tmp_path / "log"),
        **{name: str(path) for name, path in files.items()},
    )
    daemon = Daemon(given)
    daemon.state_log.close(5)
    found = {(expiry.setting, expiry.file) for expiry in daemon.certificates.expiries()}
    assert found == {
        (f"{p}_{which}", files[f"{p}_{which}"]) for p in prefixes for which in ("certificate", "ca")
    }
