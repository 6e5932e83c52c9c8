"""kazoo's client, where ours must differ: requests of our own, and an event loop that never waits for kazoo's thread.

kazoo wakes its thread with one byte for each request. Its own socket pair holds about 270 of them, and nobody reads it
while the connection is away; the bytes of requests that failed stay in it until the next connection. Once it is full,
the next request blocks whoever makes it, here the event loop, for as long as the outage lasts. A pipe holds 65,536.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import FileIO
from threading import Lock
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler


class _End(FileIO):
    """One end of a pipe, with as much of a socket as kazoo uses of it."""

    def recv(self, count: int) -> bytes:
        return self.read(count) or b""

    def send(self, data: bytes) -> int:
        return self.write(data) or 0


class WakingHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler for threads, with a pipe where it has a socket pair."""

    def create_socket_pair(self) -> tuple[_End, _End]:
        """The end to read from and the end to write to."""
        read, write = os.pipe()
        return _End(read, "r"), _End(write, "w")


class Client(KazooClient):  # type: ignore[misc]
    """To be made and used on the event loop, like kazoo's own from any thread."""

    def __init__(self, **settings: Any) -> None:
        self._watchers_lock = Lock()
        super().__init__(**{"handler": WakingHandler(), **settings})

    def raw(self, request: object) -> Any:
        """Submit a request kazoo has no method for; its AsyncResult. ``request``: as kazoo's own, with an opcode."""
        result = self.handler.async_result()
        self._call(request, result)
        return result

    def know_data_watcher(self, paths: Sequence[bytes], watcher: object) -> None:
        """Have events of these paths, chroot included, told to ``watcher``, once each."""
        with self._watchers_lock:
            for path in paths:
                self._data_watchers[path.decode()].add(watcher)

    def _reset_watchers(self) -> None:
        # kazoo's thread walks through them when the connection goes.
        with self._watchers_lock:
            super()._reset_watchers()
