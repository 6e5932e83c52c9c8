"""What a secured cluster has beside the faults: mutual TLS and rules, a ZooKeeper by TLS where each znode has an owner,
and certificates that change all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from controller.embedded_zookeeper.ensemble import Security
from controller.playground.cluster import Playground
from proto.zookeeper_access import ZooKeeperAccess, ZooKeeperSettings
from tests.support.runtime.certificates import Authority, rotate

#: Between two steps of a rotation, seconds.
STEP_S = 4.0


class SecuredPlayground(Playground):
    """The workload finds the brokers by their addresses: it has no certificate for ZooKeeper."""

    def workload_flags(self) -> list[str]:
        listens = [
            word.partition("=")[2]
            for name, member in self.members.items()
            if name.startswith("broker-")
            for word in member.command
            if word.startswith("--listen=")
        ]
        return [f"--bootstrap={','.join(listens)}"]


class ZooKeeperTls:
    """Certificates of the ensemble, and the one that all who use it have in common: it owns all znodes.

    They stay as they are: ZooKeeper reads its own once.
    """

    def __init__(self, folder: Path, hosts: tuple[str, ...]) -> None:
        self._authority = Authority(folder)
        server, server_key = self._authority.issue("zookeeper", hosts=hosts)
        self._member, self._key = self._authority.issue("cluster", hosts=hosts)
        both = folder / "zookeeper-both.pem"
        both.touch(mode=0o600)
        both.write_bytes(server_key.read_bytes() + server.read_bytes())
        self.security = Security(both, self._authority.cafile, required=("x509",))

    @property
    def settings(self) -> Mapping[str, str]:
        """Of a controller or broker, by name without prefix."""
        return {
            "ZOOKEEPER_SSL_CLIENT_ENABLE": "true",
            "ZOOKEEPER_SSL_CERTIFICATE": str(self._member),
            "ZOOKEEPER_SSL_KEY": str(self._key),
            "ZOOKEEPER_SSL_CA": str(self._authority.cafile),
            "ZOOKEEPER_SET_ACL": "true",
        }

    @cached_property
    def access(self) -> ZooKeeperAccess:
        return ZooKeeperSettings(
            zookeeper_ssl_client_enable=True,
            zookeeper_ssl_certificate=self._member,
            zookeeper_ssl_key=self._key,
            zookeeper_ssl_ca=self._authority.cafile,
            zookeeper_set_acl=True,
        ).zookeeper_access()


async def keep_rotating(playground: Playground, stop: asyncio.Event) -> int:
    """Replace authority and certificates again and again; returns how often."""
    rounds = 0
    while not stop.is_set():
        rounds += 1
        other = Authority(playground.directory / f"authority-{rounds}", f"authority {rounds}")
        await rotate(playground.certificates, other, STEP_S, playground.hosts or ("127.0.0.1",))
        await asyncio.sleep(STEP_S)
    return rounds
