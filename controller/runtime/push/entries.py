"""Entries of control requests, one for each partition, put together from parts that many of them share.

Fields of a protobuf message may come in any order, so the bytes of messages with some of the fields each, one after the
other, are the whole message. Thousands of partitions have one of few decisions: replicas, leader, ISR. Encoded by
itself, each would take ten times as long.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from controller.core.model import (
    LEADER_DURING_DELETE,
    SHARED_LENGTH_MAX,
    BrokerIds,
    Cluster,
    LeaderAndIsr,
    Partition,
)
from proto.gen import broker_control_pb2 as pb

_Led = pb.LeaderAndIsrPartitionState
_Known = pb.UpdateMetadataPartitionState
_Stopped = pb.StopReplicaPartitionState

#: The protobuf tag of field ``partition_states`` in each request: number 5, length-delimited.
_ENTRY_TAG = b"\x2a"
_SHARED_MAX = 10_000
_EPOCHS_MAX = 100_000


def _length_prefix(size: int) -> bytes:
    """A protobuf varint."""
    out = bytearray()
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)


_PREFIXES = tuple(_ENTRY_TAG + _length_prefix(size) for size in range(1024))


def _framed(*parts: bytes) -> bytes:
    entry = b"".join(parts)
    size = len(entry)
    return (_PREFIXES[size] if size < 1024 else _ENTRY_TAG + _length_prefix(size)) + entry


# Name and number of a partition have the same tags in all three.


@lru_cache(_SHARED_MAX)
def _topic(name: str) -> bytes:
    return _Led(topic=name).SerializeToString()


@lru_cache(_EPOCHS_MAX)
def _number(number: int) -> bytes:
    return _Led(partition=number).SerializeToString()


# --- LeaderAndIsr ----------------------------------------------------------------------------------------

_IS_NEW = _Led(is_new=True).SerializeToString()


@lru_cache(_EPOCHS_MAX)
def _led_epochs(leader_epoch: int, partition_epoch: int) -> bytes:
    return _Led(leader_epoch=leader_epoch, partition_epoch=partition_epoch).SerializeToString()


def _encode_led(
    controller_epoch: int,
    leader: int,
    isr: BrokerIds,
    recovery: Any,
    replicas: BrokerIds,
    adding: BrokerIds,
    removing: BrokerIds,
) -> bytes:
    return _Led(
        controller_epoch=controller_epoch,
        leader=leader,
        isr=isr,
        leader_recovery_state=recovery,
        replicas=replicas,
        adding_replicas=adding,
        removing_replicas=removing,
    ).SerializeToString()


_shared_led = lru_cache(_SHARED_MAX)(_encode_led)


def leader_and_isr(partition: Partition, state: LeaderAndIsr, is_new: bool) -> bytes:
    """The framed entry for a replica of a partition with this leadership."""
    replicas = partition.replicas
    # Many members are too rare to repeat, and would fill the memory.
    decision = (_shared_led if len(replicas) <= SHARED_LENGTH_MAX else _encode_led)(
        state.controller_epoch,
        state.leader,
        state.isr,
        state.recovery,
        replicas,
        partition.adding,
        partition.removing,
    )
    epochs = _led_epochs(state.leader_epoch, state.partition_epoch)
    name, number = _topic(partition.topic.name), _number(partition.number)
    return _framed(name, number, decision, epochs, _IS_NEW if is_new else b"")


# --- UpdateMetadata --------------------------------------------------------------------------------------


@lru_cache(_EPOCHS_MAX)
def _known_epochs(leader_epoch: int, partition_epoch: int) -> bytes:
    return _Known(leader_epoch=leader_epoch, partition_epoch=partition_epoch).SerializeToString()


def _encode_known(
    controller_epoch: int, leader: int, isr: BrokerIds, replicas: BrokerIds, offline: BrokerIds
) -> bytes:
    return _Known(
        controller_epoch=controller_epoch, leader=leader, isr=isr, replicas=replicas, offline_replicas=offline
    ).SerializeToString()


_shared_known = lru_cache(_SHARED_MAX)(_encode_known)


def metadata(cluster: Cluster, partition: Partition, state: LeaderAndIsr, live: frozenset[int]) -> bytes:
    """The framed entry of a partition with this leadership. ``live``: brokers that are neither gone nor leaving."""
    replicas = partition.replicas
    offline: BrokerIds = ()
    if cluster.offline_dirs or not live.issuperset(replicas):
        offline = tuple([b for b in replicas if not cluster.is_online(partition, b)])
    deleting = cluster.is_deleting(partition)
    decision = (_shared_known if len(replicas) <= SHARED_LENGTH_MAX else _encode_known)(
        state.controller_epoch,
        LEADER_DURING_DELETE if deleting else state.leader,
        state.isr,
        replicas,
        offline,
    )
    epochs = b"" if deleting else _known_epochs(state.leader_epoch, state.partition_epoch)
    return _framed(_topic(partition.topic.name), _number(partition.number), decision, epochs)


# --- StopReplica -----------------------------------------------------------------------------------------


@lru_cache(_EPOCHS_MAX)
def _stopped(leader_epoch: int, delete: bool) -> bytes:
    return _Stopped(leader_epoch=leader_epoch, delete_partition=delete).SerializeToString()


def stop_replica(partition: Partition, leader_epoch: int, delete: bool) -> bytes:
    """The framed entry of a replica that is stopped, and deleted with ``delete``."""
    return _framed(_topic(partition.topic.name), _number(partition.number), _stopped(leader_epoch, delete))
