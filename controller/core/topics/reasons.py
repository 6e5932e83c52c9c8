"""Reasons why the deletion of a topic waits, or is ineligible (reference, section 7.1)."""

from __future__ import annotations

from enum import Enum

from controller.core.model import Suspension
from controller.core.reasons import Reason, Refused


class Unreachable(Enum):
    """Why a replica cannot be deleted for now."""

    AT_FAILOVER = "not online when this controller took over"
    NOT_ONLINE = "its broker or disk is not online"
    BROKER_GONE = "its broker is gone"
    DISK_FAILED = "its disk failed"

    def __str__(self) -> str:
        return self.value


class ReplicaNotDeleted(Reason, frozen=True):
    """The first of ``count`` replicas that are not deleted for this reason."""

    broker_id: int
    partition: str
    why: Unreachable | Refused
    count: int = 1

    def __str__(self) -> str:
        return f"replica {self.broker_id} of {self.partition}: {self.why}{_and_more(self.count)}"


class ZnodesNotDeleted(Reason, frozen=True):
    """All replicas are deleted, but not the znodes; ``last``: the last error of ZooKeeper or the session."""

    last: str

    def __str__(self) -> str:
        return f"its znodes could not be deleted: {self.last}"


class NotRemembered(Reason, frozen=True):
    """What a forgotten broker may still hold could not be stored; ``last``: why."""

    last: str

    def __str__(self) -> str:
        return f"what a forgotten broker may still hold could not be stored: {self.last}"


class Suspended(Reason, frozen=True):
    """The controller is paused or in maintenance, or the cluster is frozen."""

    by: Suspension

    def __str__(self) -> str:
        return f"no deletion begins while the controller is {self.by}"


class BeingReassigned(Reason, frozen=True):
    """The first of ``count`` partitions under reassignment."""

    partition: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.partition} is being reassigned{_and_more(self.count)}"


class ZnodeUnreadable(Reason, frozen=True):
    """The topic's own znode does not decode."""

    problem: str

    def __str__(self) -> str:
        return f"its znode is unreadable: {self.problem}"


class CreatedAnew(Reason, frozen=True):
    """A new topic has the name: it must be read first."""

    def __str__(self) -> str:
        return "it was created again before its deletion was complete"


class TooFewBrokers(Reason, frozen=True):
    """A topic that a broker created with a replica on a controller's id."""

    replicas: int
    brokers: int

    def __str__(self) -> str:
        return f"{self.replicas} replicas, one on a controller's id, and only {self.brokers} brokers are registered"


def _and_more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""
