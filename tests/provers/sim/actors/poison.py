"""A topic that no controller can handle: each that meets it raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from controller.core import failover
from controller.core.topics import changes

#: Clients and operators leave such names alone.
TOPIC = "__poison"


class PlantedError(Exception):
    """No finding."""


@contextmanager
def poison() -> Iterator[None]:
    """Within it the handlers raise for the topic, in every controller."""
    original = changes.add_topic

    def planted(context: Any, info: Any) -> Any:
        if info.name == TOPIC:
            raise PlantedError("planted")
        return original(context, info)

    with mock.patch.object(changes, "add_topic", planted), mock.patch.object(failover, "add_topic", planted):
        yield
