"""How kazoo's thread is woken: through a pipe.

kazoo wakes it with one byte for each request. Its own socket pair holds about 270 of them, and nobody reads it while
the connection is away; the bytes of requests that failed stay in it until the next connection. Once it is full, the
next request blocks whoever makes it, here the event loop, for as long as the outage lasts. A pipe holds 65,536.
"""

from __future__ import annotations

import os
from io import FileIO

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
