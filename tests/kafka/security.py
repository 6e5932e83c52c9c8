"""Secured clusters for tests: users, certificates, and what brokers, controllers, clients and tools need of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL

from controller.runtime.config import Settings, load
from controller.runtime.kafka.security.scram import ScramMechanism, format_credential, make_credential
from controller.runtime.kafka.security.users import user_path
from tests.support.runtime.certificates import Authority
from tests.support.runtime.secured_zookeeper import USERS as ZOOKEEPER_USERS

_LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"

#: The brokers' and controllers' identity in ZooKeeper.
ZOOKEEPER_USER = "kafka"
ZOOKEEPER_LOGIN = {
    "mechanism": "DIGEST-MD5",
    "username": ZOOKEEPER_USER,
    "password": ZOOKEEPER_USERS[ZOOKEEPER_USER],
}
_PACKAGE = "org.apache.kafka.common.security"


def password_of(user: str) -> str:
    return f"{user}, of = clüster"


@dataclass
class Security:
    """Of one cluster: ``protocol`` and ``mechanism`` of its only listener, named as the protocol.

    ``zookeeper_acl``: the identity of brokers and controllers in ZooKeeper owns the znodes. ``rules``: make principals
    of the subjects of certificates, on brokers and here.
    """

    folder: Path
    protocol: str = "SASL_SSL"
    mechanism: str = "SCRAM-SHA-512"
    zookeeper_acl: bool = False
    rules: str = ""
    users: tuple[str, ...] = ("broker", "controller", "admin", "loader", "alice", "stranger")
    authority: Authority = field(init=False)

    def __post_init__(self) -> None:
        self.authority = Authority(self.folder / "ca")
        self.tls, self.sasl = self.protocol.endswith("SSL"), self.protocol.startswith("SASL")

    def principal(self, user: str) -> str:
        return f"User:{user}" if self.sasl or self.rules else f"User:CN={user},OU=ops"

    @property
    def supers(self) -> str:
        """Super users of brokers and of our controllers."""
        return ";".join(self.principal(user) for user in ("broker", "admin"))

    # Files

    def secret(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text + "\n")
        path.chmod(0o600)
        return path

    def certificate(self, user: str) -> tuple[Path, Path]:
        """Certificate and key: CN=user,OU=ops."""
        files = self.authority.folder / f"{user}.pem", self.authority.folder / f"{user}.key"
        return files if files[0].exists() else self.authority.issue(user, "ops")

    def keystore(self, user: str) -> Path:
        """Both in one file, as Java reads PEM."""
        certfile, keyfile = self.certificate(user)
        path = self.folder / f"{user}.keystore.pem"
        path.write_bytes(keyfile.read_bytes() + certfile.read_bytes())
        return path

    def jaas(self, user: str, password: str | None = None) -> str:
        kind = "scram.Scram" if self.mechanism.startswith("SCRAM") else "plain.Plain"
        login = f'username="{user}" password="{password or password_of(user)}"'
        known = " ".join(f'user_{name}="{password_of(name)}"' for name in self.users)
        return f"{_PACKAGE}.{kind}LoginModule required {login}" + (
            f" {known};" if self.mechanism == "PLAIN" and user == "broker" else ";"
        )

    def users_in_zookeeper(self, zookeeper: str) -> None:
        """Store the users' SCRAM credentials, as an operator does before the first broker starts."""
        zk = KazooClient(zookeeper, sasl_options=ZOOKEEPER_LOGIN if self.zookeeper_acl else None)
        zk.start(20)
        acl = CREATOR_ALL_ACL if self.zookeeper_acl else None
        for user in self.users:
            credential = format_credential(make_credential(ScramMechanism.SHA_512, password_of(user)))
            data = json.dumps({"version": 1, "config": {"SCRAM-SHA-512": credential}})
            zk.create(user_path(user), data.encode(), acl=acl, makepath=True)
        zk.stop()
        zk.close()

    # What KafkaCluster takes

    def cluster(self) -> dict[str, Any]:
        """Arguments of KafkaCluster; its clients are the user admin."""
        return {
            "listeners": (self.protocol,),
            "properties": self.properties(),
            "jvm_options": self.jvm_options(),
            "controller_settings": self.controller_settings(),
            "client": self.client("admin"),
            "tools_client": self.tools_client("admin"),
            "zookeeper_login": ZOOKEEPER_LOGIN if self.zookeeper_acl else None,
        }

    def jvm_options(self) -> tuple[str, ...]:
        if not self.zookeeper_acl:
            return ()
        login = f'username="{ZOOKEEPER_USER}" password="{ZOOKEEPER_USERS[ZOOKEEPER_USER]}"'
        path = self.secret("broker-jaas.conf", f"Client {{\n  {_LOGIN_MODULE} required {login};\n}};")
        return (f"-Djava.security.auth.login.config={path}",)

    def properties(self) -> dict[str, str]:
        found = {
            "security.inter.broker.protocol": self.protocol,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": self.supers,
        }
        if self.zookeeper_acl:
            found["zookeeper.set.acl"] = "true"
        if self.tls:
            found |= self._java_tls("broker")
        if self.sasl:
            key = f"listener.name.{self.protocol.lower()}.{self.mechanism.lower()}.sasl.jaas.config"
            found |= {
                "sasl.enabled.mechanisms": self.mechanism,
                "sasl.mechanism.inter.broker.protocol": self.mechanism,
                key: _escaped(self.jaas("broker")),
            }
        else:
            found["ssl.client.auth"] = "required"
        if self.rules:
            found["ssl.principal.mapping.rules"] = _escaped(self.rules)
        return found

    def _java_tls(self, user: str) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore(user)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.cafile),
        }

    def login(self, user: str, password: str | None = None, *, certified: bool = True) -> dict[str, object]:
        """Settings of ours that concern connections to brokers."""
        certfile, keyfile = self.certificate(user)
        found: dict[str, object] = {"kafka_security_protocol": self.protocol}
        if self.tls:
            found["kafka_ssl_ca"] = self.authority.cafile
        if self.tls and not self.sasl and certified:
            found |= {"kafka_ssl_certificate": certfile, "kafka_ssl_key": keyfile}
        if self.sasl:
            name = f"{user}.password" if password is None else f"{user}.other-password"
            found |= {
                "kafka_sasl_mechanism": self.mechanism,
                "kafka_sasl_username": user,
                "kafka_sasl_password_file": self.secret(name, password or password_of(user)),
            }
        return found

    def settings(
        self,
        user: str,
        password: str | None = None,
        *,
        certified: bool = True,
        mechanism: str | None = None,
        cafile: Path | None = None,
    ) -> Settings:
        """Of somebody who connects with this tree's client; ``certified``: has a certificate, where one is needed."""
        login = self.login(user, password, certified=certified)
        login |= {"kafka_sasl_mechanism": mechanism} if mechanism else {}
        login |= {"kafka_ssl_ca": cafile} if cafile else {}
        return load({name: str(value) for name, value in login.items()}, environ={})

    def controller_settings(self) -> dict[str, object]:
        certfile, keyfile = self.certificate("controller")
        found = {
            **self.login("controller"),
            "kafka_authorizer": "acl",
            "kafka_super_users": self.supers,
        }
        if self.tls:
            found |= {"kafka_ssl_certificate": certfile, "kafka_ssl_key": keyfile}
        if self.rules:
            found["kafka_ssl_principal_mapping_rules"] = self.rules
        if self.mechanism == "PLAIN" and self.sasl:
            lines = (
                f'{user} = "{format_credential(make_credential(ScramMechanism.SHA_512, password_of(user)))}"'
                for user in self.users
            )
            found["kafka_sasl_users_file"] = self.secret("users.toml", "\n".join(["[users]", *lines]))
        return found | self.zookeeper_settings()

    def zookeeper_settings(self) -> dict[str, object]:
        if not self.zookeeper_acl:
            return {}
        return {
            "zookeeper_sasl_username": ZOOKEEPER_USER,
            "zookeeper_sasl_password_file": self.secret(
                "zookeeper.password", ZOOKEEPER_USERS[ZOOKEEPER_USER]
            ),
            "zookeeper_set_acl": "true",
        }

    def client(self, user: str, password: str | None = None) -> dict[str, str]:
        """Of librdkafka."""
        found = {"security.protocol": self.protocol}
        if self.tls:
            found["ssl.ca.location"] = str(self.authority.cafile)
        if self.tls and not self.sasl:
            certfile, keyfile = self.certificate(user)
            found |= {"ssl.certificate.location": str(certfile), "ssl.key.location": str(keyfile)}
        if self.sasl:
            login = {"sasl.username": user, "sasl.password": password or password_of(user)}
            found |= {"sasl.mechanism": self.mechanism, **login}
        return found

    def tools_client(self, user: str, password: str | None = None) -> Mapping[str, str]:
        """Of Java clients."""
        found = {"security.protocol": self.protocol, "default.api.timeout.ms": "60000"}
        if self.tls:
            found |= self._java_tls(user)
        if self.sasl:
            found |= {
                "sasl.mechanism": self.mechanism,
                "sasl.jaas.config": _escaped(self.jaas(user, password)),
            }
        return found


def _escaped(text: str) -> str:
    """For a file of Java properties."""
    return "".join(c if c.isascii() else f"\\u{ord(c):04x}" for c in text)
