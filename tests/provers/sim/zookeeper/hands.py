"""An operator's client of the ensemble in memory, with kazoo's names: it writes at once, in the middle of a test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kazoo import exceptions

from tests.provers.sim.zookeeper.messages import (
    Children,
    Code,
    Create,
    Delete,
    Exists,
    Get,
    Operation,
    Reply,
    Set,
    Stat,
)
from tests.provers.sim.zookeeper.network import Network

_TIMEOUT_MS = 120_000
_RAISED = {
    Code.NO_NODE: exceptions.NoNodeError,
    Code.NODE_EXISTS: exceptions.NodeExistsError,
    Code.NOT_EMPTY: exceptions.NotEmptyError,
}


class Hands:
    """A client below a chroot, which exists."""

    def __init__(self, network: Network, chroot: str) -> None:
        self._network, self._chroot = network, chroot
        connection = network.ensemble.connect(0, _TIMEOUT_MS, network.now_ms, 0, b"", 0)
        assert connection is not None
        self._connection = connection

    def _ask(self, op: Operation) -> Any:
        network, connection = self._network, self._connection
        network.ensemble.request(connection, op, network.now_ms)
        reply = connection.outbox.pop()
        connection.outbox.clear()
        network.deliver_answers()
        assert isinstance(reply, Reply)
        if reply.code is not Code.OK:
            raise _RAISED[reply.code]
        return reply.value

    def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        makepath: bool = False,
    ) -> str:
        if makepath:
            self.ensure_path(path.rpartition("/")[0])
        made = self._ask(Create(self._chroot + path, value, ephemeral=ephemeral, sequential=sequence))
        return str(made.path).removeprefix(self._chroot)

    def ensure_path(self, path: str) -> None:
        if path and self.exists(path) is None:
            self.create(path, makepath=True)

    def get(self, path: str) -> tuple[bytes, Any]:
        data, stat = self._ask(Get(self._chroot + path))
        return data, _shown(stat)

    def set(self, path: str, value: bytes) -> None:
        self._ask(Set(self._chroot + path, value))

    def delete(self, path: str) -> None:
        self._ask(Delete(self._chroot + path))

    def exists(self, path: str) -> Any:
        try:
            return _shown(self._ask(Exists(self._chroot + path)))
        except exceptions.NoNodeError:
            return None

    def get_children(self, path: str) -> list[str]:
        return list(self._ask(Children(self._chroot + path)).names)


def _shown(stat: Any) -> SimpleNamespace:
    assert isinstance(stat, Stat)
    return SimpleNamespace(version=stat.version, czxid=stat.czxid, ephemeralOwner=stat.owner)
