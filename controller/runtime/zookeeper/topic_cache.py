"""A cache of decoded topic znodes: each watch that fires reads again what was written or read a moment ago."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from controller.core.effects import TopicInfo
from controller.runtime.zookeeper import codecs, jute

#: Bytes of znodes whose decoded contents are kept; these take a few times as much memory.
BYTES_MAX = 4_000_000


class _Known(NamedTuple):
    #: The value that was encoded; None: the znode was read.
    written: TopicInfo | None
    data: bytes
    #: The decoded ``data``.
    info: TopicInfo


class TopicCache:
    """The newest topic znodes by name, at most ``bytes_max`` in all. A TopicInfo never changes, so it is shared."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._known: dict[str, _Known] = {}
        self._size = 0

    def decode(self, name: str, node: jute.Node) -> TopicInfo:
        """The value of a znode that was read. Raises MalformedError."""
        known = self._known.get(name)
        if known is not None and known.data == node.data:
            info = known.info
            if (info.version, info.czxid) == (node.version, node.czxid):
                return info
        info = codecs.decode_topic(name, node.data, node.czxid, node.version)
        self._keep(name, _Known(None, node.data, info))
        return info

    def encode(self, info: TopicInfo) -> bytes:
        """The data that replaces the znode at ``info.version``. It is cached as the next version."""
        known = self._known.get(info.name)
        if known is not None and known.written is info:
            return known.data
        data = codecs.encode_topic(info)
        self._keep(info.name, _Known(info, data, replace(info, version=info.version + 1)))
        return data

    def _keep(self, name: str, known: _Known) -> None:
        before = self._known.pop(name, None)
        self._size += len(known.data) - (len(before.data) if before is not None else 0)
        self._known[name] = known
        while self._size > self._bytes_max:
            self._size -= len(self._known.pop(next(iter(self._known))).data)
