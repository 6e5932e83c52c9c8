"""Reasons why something was not done, or is not done yet: typed values. ``str`` of a reason is its text for people.

This module has the reasons why a partition state could not be written, and those shared by several rooms. Other
reasons are in ``reasons`` of their room; those about election candidates are in ``partitions.leader_election``.
"""

from __future__ import annotations

import msgspec

from controller.core.names import ids_shown


class Reason(msgspec.Struct, frozen=True):
    """Code decides on the class and fields, never on the text."""

    def __str__(self) -> str:
        raise NotImplementedError


class StateGone(Reason, frozen=True):
    """The partition's state znode was deleted."""

    def __str__(self) -> str:
        return "its state znode is gone"


class NoState(Reason, frozen=True):
    """An election was requested for a partition that never had a leader."""

    def __str__(self) -> str:
        return "it has no durable state"


class Unreadable(Reason, frozen=True):
    """A znode does not decode."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class NewerController(Reason, frozen=True):
    """A controller of a newer epoch wrote the state, so this controller must not change it."""

    epoch: int
    ours: int

    def __str__(self) -> str:
        return f"its state was written by controller epoch {self.epoch}, newer than ours, {self.ours}"


class NoEpochLeft(Reason, frozen=True):
    """Somebody has written the highest leader epoch that there is."""

    epoch: int

    def __str__(self) -> str:
        return f"its leader epoch is {self.epoch}, which leaves none for another decision: delete the topic"


class NotWritten(Reason, frozen=True):
    """All attempts to write failed; ``last``: the last error of ZooKeeper or the session."""

    attempts: int
    last: str

    def __str__(self) -> str:
        return f"not written in {self.attempts} attempts; the last: {self.last}"


class NotCreated(Reason, frozen=True):
    """The first state of a partition could not be written; ``last``: the last error."""

    last: str

    def __str__(self) -> str:
        return f"its state could not be created: {self.last}"


class NoReplicaOnline(Reason, frozen=True):
    """A new partition gets no first leader."""

    replicas: tuple[int, ...]

    def __str__(self) -> str:
        return f"none of its replicas {ids_shown(self.replicas)} is online"


class Refused(Reason, frozen=True):
    """A broker refused to delete a replica. ``error`` is Kafka's name; ``times``: number of refusals."""

    error: str
    times: int = 1

    def __str__(self) -> str:
        times = f" ({self.times} times)" if self.times > 1 else ""
        return f"its broker answered {self.error}{times}"
