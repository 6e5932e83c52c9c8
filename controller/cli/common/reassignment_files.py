"""Reassignment plans: Kafka's JSON file, and lists of broker ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from controller.core.model import BROKER_ID_MAX, BrokerIds
from controller.core.names import name_shown, number_in, shown
from controller.core.reassignment.assignment import target_problem
from controller.errors import ControllerError
from proto.texts import in_words

Key = tuple[str, int]
VERSION = 1
#: Largest file; a plan of all partitions of the largest cluster needs a third of it.
BYTES_MAX = 64 * 1024 * 1024
PARTITION_MAX = 2**31 - 1


class PlanError(ControllerError):
    """A plan cannot be read; the message names the file, the field and what is allowed."""


class _Entry(msgspec.Struct):
    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, le=PARTITION_MAX)]
    #: Optional only for a cancellation. Kafka's tool also writes log_dirs, which are ignored.
    replicas: tuple[int, ...] | None = None


class _Plan(msgspec.Struct):
    partitions: list[_Entry]
    version: int = VERSION


def read_plan(path: Path) -> dict[Key, BrokerIds]:
    """Target replicas by (topic, partition), from a file in the format of kafka-reassign-partitions.

    Raises PlanError.
    """
    plan = _decoded(path)
    wanted: dict[Key, BrokerIds] = {}
    for position, entry in enumerate(plan.partitions):
        field = f"{path}: partitions[{position}] ({name_shown(entry.topic)}-{entry.partition})"
        if entry.replicas is None:
            raise PlanError(f"{field}: replicas: missing")
        if problem := target_problem(entry.replicas):
            raise PlanError(f"{field}: {problem}")
        wanted[entry.topic, entry.partition] = entry.replicas
    return wanted


def read_names(path: Path) -> list[Key]:
    """The partitions that a file names; their replicas are ignored. Raises PlanError."""
    return [(entry.topic, entry.partition) for entry in _decoded(path).partitions]


def _decoded(path: Path) -> _Plan:
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            raise PlanError(f"{path}: has more than {BYTES_MAX // 2**20} MiB, must have at most that")
        plan = msgspec.json.decode(data, type=_Plan)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PlanError(f"{path}: {in_words(error)}") from None
    if plan.version != VERSION:
        raise PlanError(f"{path}: version = {plan.version}: must be {VERSION}")
    if not plan.partitions:
        raise PlanError(f"{path}: partitions: must name at least one partition")
    seen: set[Key] = set()
    for entry in plan.partitions:
        if (entry.topic, entry.partition) in seen:
            raise PlanError(f"{path}: partitions: {name_shown(entry.topic)}-{entry.partition} is named twice")
        seen.add((entry.topic, entry.partition))
    return plan


def write_plan(wanted: Mapping[Key, Sequence[int]]) -> str:
    """The text of a plan file, one line per partition."""
    lines = [
        msgspec.json.encode({"topic": topic, "partition": number, "replicas": list(replicas)}).decode()
        for (topic, number), replicas in sorted(wanted.items())
    ]
    return f'{{"version":{VERSION},"partitions":[\n ' + ",\n ".join(lines) + "\n]}"


def parse_replicas(text: str) -> BrokerIds:
    """``1,2,3``, as --replicas has them: broker ids, preferred leader first. Raises PlanError."""
    ids = [number_in(part.strip(), BROKER_ID_MAX) for part in text.split(",")]
    if None in ids:
        raise PlanError(f"--replicas {shown(text)}: must be broker ids from 0 to {BROKER_ID_MAX}, as 1,2,3")
    return tuple(id_ for id_ in ids if id_ is not None)
