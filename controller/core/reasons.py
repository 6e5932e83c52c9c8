"""Why something was not done, or is not done yet: values to decide on. ``str`` of one is its sentence, for the edge.

Here: why a partition's state could not be written, and what several rooms share; the others are in ``reasons`` of
their room, and candidates of an election in ``partitions.leader_election``.
"""

from __future__ import annotations

import msgspec


class Reason(msgspec.Struct, frozen=True):
    """Decide on its class and fields, never on its sentence."""

    def __str__(self) -> str:
        raise NotImplementedError


class StateGone(Reason, frozen=True):
    """There is nothing to write to."""

    def __str__(self) -> str:
        return "its state znode is gone"


class NoState(Reason, frozen=True):
    """A leader is wanted for a partition that was never led."""

    def __str__(self) -> str:
        return "it has no durable state"


class Unreadable(Reason, frozen=True):
    """A znode does not decode."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class NewerController(Reason, frozen=True):
    """A controller of a newer epoch wrote the state: it is not ours to change."""

    epoch: int
    ours: int

    def __str__(self) -> str:
        return f"its state was written by controller epoch {self.epoch}, newer than ours, {self.ours}"


class NotWritten(Reason, frozen=True):
    """Others were faster each time; ``last``: what ZooKeeper, or the session, said last."""

    attempts: int
    last: str

    def __str__(self) -> str:
        return f"not written in {self.attempts} attempts; the last: {self.last}"


class NotCreated(Reason, frozen=True):
    """The first state of a partition did not land."""

    last: str

    def __str__(self) -> str:
        return f"its state could not be created: {self.last}"


class NoReplicaOnline(Reason, frozen=True):
    """A new partition has no first leader."""

    replicas: tuple[int, ...]

    def __str__(self) -> str:
        return f"none of its replicas {list(self.replicas)} is online"


class Refused(Reason, frozen=True):
    """A broker did not delete a replica. ``error`` is Kafka's name; ``times`` it refused."""

    error: str
    times: int = 1

    def __str__(self) -> str:
        times = f" ({self.times} times)" if self.times > 1 else ""
        return f"its broker answered {self.error}{times}"
