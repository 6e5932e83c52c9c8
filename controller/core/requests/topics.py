"""Requests to create, expand and delete topics (reference, section 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from controller.core.config_keys import shown_value
from controller.core.model import BrokerIds
from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create. Either ``assignment`` maps partitions to replicas, or the controller places ``partitions``
    times ``replication_factor`` replicas; None: one."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Mapping[int, BrokerIds] = {}
    configs: Mapping[str, str] = {}

    def __repr__(self) -> str:
        shown = {key: shown_value(key, value) for key, value in self.configs.items()}
        return (
            f"NewTopic(name={self.name!r}, partitions={self.partitions}, "
            f"replication_factor={self.replication_factor}, assignment={self.assignment!r}, configs={shown!r})"
        )


@dataclass(frozen=True)
class CreateTopics(ControllerRequest):
    """An operator creates topics (KIP-4). ``validate_only``: validate and place, write nothing."""

    topics: Sequence[NewTopic]
    validate_only: bool = False


class TopicCreated(msgspec.Struct, frozen=True):
    """The result for one topic; ``message`` has an error or a warning. ``assignment``: its actual or planned
    replicas."""

    name: str
    error: ErrorCode
    message: str = ""
    topic_id: str = ""
    assignment: Mapping[int, BrokerIds] = {}


@dataclass(frozen=True)
class CreateTopicsReply:
    """``topics`` parallel to the request's; empty with a top-level error."""

    error: ErrorCode
    topics: Sequence[TopicCreated] = ()


class Expansion(msgspec.Struct, frozen=True):
    """A topic shall have ``count`` partitions. ``assignment``: the replicas of the new ones in order, or empty: the
    controller places them."""

    name: str
    count: int
    assignment: tuple[BrokerIds, ...] = ()


@dataclass(frozen=True)
class CreatePartitions(ControllerRequest):
    """An operator adds partitions (KIP-195). ``validate_only``: validate and place, write nothing."""

    expansions: Sequence[Expansion]
    validate_only: bool = False


class Expanded(msgspec.Struct, frozen=True):
    """The result for one topic; ``message`` has an error or a warning. ``assignment``: the new partitions."""

    name: str
    error: ErrorCode
    message: str = ""
    assignment: Mapping[int, BrokerIds] = {}


@dataclass(frozen=True)
class CreatePartitionsReply:
    """``topics`` parallel to the request's; empty with a top-level error."""

    error: ErrorCode
    topics: Sequence[Expanded] = ()


class TopicRef(msgspec.Struct, frozen=True):
    """A topic by name or by id; the other one is empty."""

    name: str = ""
    topic_id: str = ""


@dataclass(frozen=True)
class DeleteTopics(ControllerRequest):
    """An operator deletes topics (KIP-4; by id KIP-516)."""

    topics: Sequence[TopicRef]


class TopicAnswer(msgspec.Struct, frozen=True):
    """The result for one topic; ``message`` explains an error. Without an error its deletion continues
    automatically."""

    name: str
    topic_id: str
    error: ErrorCode
    message: str = ""


@dataclass(frozen=True)
class DeleteTopicsReply:
    """``topics`` parallel to the request's; empty with a top-level error."""

    error: ErrorCode
    topics: Sequence[TopicAnswer] = ()
