"""kazoo's client with two changes: additional requests, and an event loop that never waits for kazoo's thread.

kazoo wakes its thread with one byte for each request. Its socket pair holds about 270 bytes, and kazoo does not read
it while the connection is lost; the bytes of failed requests stay in it until the next connection. Once it is full,
the next request blocks its caller, here the event loop, as long as the outage lasts. A pipe holds 65,536 bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import FileIO
from threading import Lock
from typing import Any

from kazoo.client import _prefix_root
from kazoo.protocol.serialization import GetChildren

from proto import zookeeper_access
from proto.zookeeper_access import OPEN_ACCESS, Handler, ZooKeeperAccess


class _End(FileIO):
    """One end of a pipe, with the methods of a socket that kazoo uses."""

    def recv(self, count: int) -> bytes:
        return self.read(count) or b""

    def send(self, data: bytes) -> int:
        return self.write(data) or 0


class WakingHandler(Handler):
    """kazoo's handler for threads, with a pipe instead of a socket pair."""

    def create_socket_pair(self) -> tuple[_End, _End]:
        """The end to read from and the end to write to."""
        read, write = os.pipe()
        return _End(read, "r"), _End(write, "w")


class PackedChildren(GetChildren):  # type: ignore[misc]
    """kazoo's request for children, whose response stays packed: to decode many names on kazoo's thread takes the
    interpreter from the event loop."""

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> memoryview:
        return memoryview(data)[offset:]


class Client(zookeeper_access.Client):
    """kazoo's client with raw requests. It is created and used on the event loop."""

    def __init__(self, access: ZooKeeperAccess = OPEN_ACCESS, **settings: Any) -> None:
        self._watchers_lock = Lock()
        super().__init__(access, **{"handler": WakingHandler(access.contexts), **settings})

    def raw(self, request: object) -> Any:
        """Submit a request that kazoo has no method for; return its AsyncResult. ``request`` has the shape of kazoo's
        own requests: opcode ``type``, ``serialize``, ``deserialize``."""
        result = self.handler.async_result()
        self._call(request, result)
        return result

    def packed_children(self, path: str, watcher: object) -> Any:
        """As kazoo's ``get_children_async``, with a response for ``jute.NameLists``."""
        return self.raw(PackedChildren(_prefix_root(self.chroot, path), watcher))

    def know_data_watcher(self, paths: Sequence[bytes], watcher: object) -> None:
        """Register ``watcher`` for one data event of each of these paths, chroot included."""
        with self._watchers_lock:
            for path in paths:
                self._data_watchers[path.decode()].add(watcher)

    def forget_data_watcher(self, paths: Sequence[bytes], watcher: object) -> None:
        """Forget the watches of znodes that are gone: the server has none, and kazoo would keep ours for ever."""
        with self._watchers_lock:
            for path in map(bytes.decode, paths):
                if (watchers := self._data_watchers.get(path)) is not None:
                    watchers.discard(watcher)
                    if not watchers:
                        self._data_watchers.pop(path, None)

    def _reset_watchers(self) -> None:
        # kazoo's thread iterates over the watchers when the connection is lost.
        with self._watchers_lock:
            super()._reset_watchers()
