"""Requests to alter and describe configurations of topics and brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from controller.core.config_keys import shown_value
from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode


class ConfigScope(Enum):
    """The type of a config resource; the value is its part of the path."""

    TOPIC = "topics"
    BROKER = "brokers"
    CONTROLLER = "controllers"


class ConfigResource(msgspec.Struct, frozen=True):
    """A topic by name, a broker or controller by id in decimal, or, with an empty name, the default of all of them."""

    scope: ConfigScope
    name: str = ""

    @property
    def entity(self) -> str:
        """Its path below ``/config``."""
        return f"{self.scope.value}/{self.name or '<default>'}"


class ConfigChange(msgspec.Struct, frozen=True):
    """A change of one key; ``value`` None deletes it."""

    key: str
    value: str | None

    def __repr__(self) -> str:
        shown = None if self.value is None else shown_value(self.key, self.value)
        return f"ConfigChange(key={self.key!r}, value={shown!r})"


class ConfigAlteration(msgspec.Struct, frozen=True):
    resource: ConfigResource
    changes: Sequence[ConfigChange]


@dataclass(frozen=True)
class AlterConfigs(ControllerRequest):
    """An operator changes some keys; other keys stay (KIP-339)."""

    alterations: Sequence[ConfigAlteration]
    validate_only: bool = False
    #: Keys of topics that the controller does not know are refused.
    known_only: bool = False


class ConfigAltered(msgspec.Struct, frozen=True):
    """The result for one resource: all of its changes are made or none. ``unknown``: keys that the controller does not
    know, so their values were not checked."""

    resource: ConfigResource
    error: ErrorCode
    message: str = ""
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class AlterConfigsReply:
    """``resources`` parallel to the request's; empty with a top-level error."""

    error: ErrorCode
    resources: Sequence[ConfigAltered] = ()


@dataclass(frozen=True)
class DescribeConfigs(ControllerRequest):
    resources: Sequence[ConfigResource]


class ConfigEntry(msgspec.Struct, frozen=True):
    """One configured key. ``value``: by ``shown_value``; ``source``: the entity that sets it; ``problem``: what is
    wrong with the value."""

    key: str
    value: str
    source: str
    known: bool
    problem: str = ""


class ConfigDescribed(msgspec.Struct, frozen=True):
    resource: ConfigResource
    error: ErrorCode
    message: str = ""
    entries: tuple[ConfigEntry, ...] = ()


@dataclass(frozen=True)
class DescribeConfigsReply:
    """``resources`` parallel to the request's; empty with a top-level error."""

    error: ErrorCode
    resources: Sequence[ConfigDescribed] = ()
