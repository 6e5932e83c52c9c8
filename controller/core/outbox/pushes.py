"""A request to be built and sent: what of the outbox its senders see."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from controller.core.model import Broker, Partition


class PushKind(Enum):
    """The three control requests; the value is the method's name."""

    LEADER_AND_ISR = "LeaderAndIsr"
    UPDATE_METADATA = "UpdateMetadata"
    STOP_REPLICA = "StopReplica"


class Push(msgspec.Struct, gc=False):
    """One request to build and send; the sender returns it if it could not be delivered.

    ``flags`` is parallel to ``partitions``: is_new of LeaderAndIsr, delete_partition of StopReplica; empty for
    UpdateMetadata. ``shared_key`` is equal for pushes whose partition part is the same for several brokers.
    """

    kind: PushKind
    broker: Broker
    partitions: Sequence[Partition]
    flags: Sequence[bool] = ()
    event_id: int = 0
    cause: str = ""
    shared_key: tuple[int, ...] | None = None
    brokers_version: int = 0
    #: UpdateMetadata that completes a full metadata snapshot.
    ends_snapshot: bool = False
    #: With ``ends_snapshot``: the topics that the snapshot is of; None: all.
    snapshot_of: Sequence[str] | None = None
    #: LeaderAndIsr of small changes, and of partitions that the broker leads, which may be without a leader until it
    #: knows; and the list of live brokers, which goes before.
    urgent: bool = False
