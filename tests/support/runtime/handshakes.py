"""TLS handshakes of asyncio that are in memory: each takes some 256 KiB, also one that failed, until it is freed."""

from __future__ import annotations

import gc
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def _all() -> list[SSLProtocol]:
    return [each for each in gc.get_objects() if isinstance(each, SSLProtocol)]


@contextmanager
def counting_handshakes() -> Iterator[Callable[[], int]]:
    """How many of those there are that begin inside, where no garbage is collected."""
    gc.collect()
    gc.disable()
    earlier = _all()
    try:
        yield lambda: len(_all()) - len(earlier)
    finally:
        gc.enable()
