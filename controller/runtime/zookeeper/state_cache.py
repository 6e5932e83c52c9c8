"""Decoding of partition states: in a cluster the same few contents repeat, so decoded states are shared."""

from __future__ import annotations

from controller.core.effects import Problem
from controller.core.model import LeaderAndIsr
from controller.errors import MalformedError
from controller.runtime.zookeeper import codecs, jute

#: Decoded states kept for sharing.
_KEPT_MAX = 200_000
#: Longer states are not kept: they do not repeat.
_KEPT_BYTES_MAX = 1000


class StateCache:
    """Decoded states by content and version."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, int], LeaderAndIsr] = {}

    def decode(self, topic: str, number: int, node: jute.Node) -> LeaderAndIsr | Problem:
        """The state in a znode that was read."""
        key = (node.data, node.version)
        state = self._known.get(key)
        if state is None:
            try:
                state = codecs.decode_state(topic, number, node.data, node.version)
            except MalformedError as error:
                return Problem(error.path, error.problem, version=node.version)
            if len(self._known) > _KEPT_MAX:
                self._known.clear()
            if len(node.data) <= _KEPT_BYTES_MAX:
                self._known[key] = state
        return state
