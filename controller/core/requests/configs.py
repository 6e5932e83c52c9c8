"""Configurations of topics and brokers: altered, described."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode as ErrorCode


class ConfigScope(Enum):
    """What is configured; the value is its part of the path."""

    TOPIC = "topics"
    BROKER = "brokers"


class ConfigResource(msgspec.Struct, frozen=True):
    """A topic by name, a broker by id in decimal, or, with an empty name, the default of all brokers."""

    scope: ConfigScope
    name: str = ""

    @property
    def entity(self) -> str:
        """Its path below ``/config``."""
        return f"{self.scope.value}/{self.name or '<default>'}"


class ConfigChange(msgspec.Struct, frozen=True):
    """One key; ``value`` None deletes it."""

    key: str
    value: str | None


class ConfigAlteration(msgspec.Struct, frozen=True):
    resource: ConfigResource
    changes: Sequence[ConfigChange]


@dataclass(frozen=True)
class AlterConfigs(ControllerRequest):
    """An operator changes some keys and leaves the others as they are (KIP-339)."""

    alterations: Sequence[ConfigAlteration]
    validate_only: bool = False


class ConfigAltered(msgspec.Struct, frozen=True):
    """What became of one resource: all of its changes or none. ``unknown``: keys whose values nobody checked."""

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
    """One key that is set. ``source``: the entity that sets it; ``problem``: what is wrong with the value."""

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
