"""Kafka's control requests: states a second that our generated code encodes and decodes, kio in the same run, and one
``struct`` for a whole state as the ceiling.
"""

from __future__ import annotations

import io
import os
import struct
import time
from collections.abc import Callable
from functools import partial

from kio.schema.leader_and_isr.v7 import request as kio_leader
from kio.schema.update_metadata.v8 import request as kio_metadata
from kio.serial import entity_reader, entity_writer
from rich.table import Table

from proto.gen.kafka import leader_and_isr_request as leader
from proto.gen.kafka import update_metadata_request as metadata

TOPICS, PARTITIONS = 200, 50
STATES = TOPICS * PARTITIONS
REPLICAS = [1, 2, 3]
RUNS = 5


def _leader_and_isr() -> leader.LeaderAndIsrRequest:
    states = [
        leader.LeaderAndIsrPartitionState(
            partition_index=n,
            controller_epoch=5,
            leader=1,
            leader_epoch=7,
            isr=REPLICAS,
            partition_epoch=9,
            replicas=REPLICAS,
        )
        for n in range(PARTITIONS)
    ]
    topics = [leader.LeaderAndIsrTopicState(f"topic-{n:04d}", os.urandom(16), states) for n in range(TOPICS)]
    return leader.LeaderAndIsrRequest(
        controller_id=9001, controller_epoch=5, broker_epoch=1, topic_states=topics
    )


def _update_metadata() -> metadata.UpdateMetadataRequest:
    states = [
        metadata.UpdateMetadataPartitionState(
            partition_index=n,
            controller_epoch=5,
            leader=1,
            leader_epoch=7,
            isr=REPLICAS,
            zk_version=9,
            replicas=REPLICAS,
        )
        for n in range(PARTITIONS)
    ]
    topics = [
        metadata.UpdateMetadataTopicState(f"topic-{n:04d}", os.urandom(16), states) for n in range(TOPICS)
    ]
    return metadata.UpdateMetadataRequest(
        controller_id=9001, controller_epoch=5, broker_epoch=1, topic_states=topics
    )


def _by_hand(request: leader.LeaderAndIsrRequest) -> bytes:
    """Its partition states; all have as many replicas."""
    pack = struct.Struct(">iiiiB3iiB3iBB?bB").pack
    return b"".join(
        pack(
            s.partition_index, s.controller_epoch, s.leader, s.leader_epoch, 4, *s.isr, s.partition_epoch, 4,
            *s.replicas, 1, 1, s.is_new, s.leader_recovery_state, 0,
        )
        for topic in request.topic_states
        for s in topic.partition_states
    )  # fmt: skip


def _read(reader: Callable[[io.BytesIO], object], written: bytes) -> object:
    return reader(io.BytesIO(written))


def _rate(act: Callable[[], object]) -> float:
    """Thousand states a second of this process's time, the best run."""
    best = float("inf")
    for _ in range(RUNS):
        began = time.process_time()
        act()
        best = min(best, time.process_time() - began)
    return STATES / best / 1000


def measure(rows: Table) -> None:
    requests = (
        ("LeaderAndIsr v7", _leader_and_isr(), 7, kio_leader.LeaderAndIsrRequest),
        ("UpdateMetadata v8", _update_metadata(), 8, kio_metadata.UpdateMetadataRequest),
    )
    for name, ours, version, kio in requests:
        written = ours.encode(version)
        read, write = entity_reader(kio), entity_writer(kio)
        theirs = read(io.BytesIO(written))
        figures = {
            "encode": (
                _rate(partial(ours.encode, version)),
                _rate(partial(write, io.BytesIO(), theirs)),
            ),
            "decode": (
                _rate(partial(type(ours).decode, written, version)),
                _rate(partial(_read, read, written)),
            ),
        }
        for verb, (mine, kios) in figures.items():
            rows.add_row(
                f"{verb} {name}, {STATES:,} states",
                f"{mine:.0f}k states/s",
                f"{kios:.0f}k states/s kio",
                f"{kios / mine:.2f}",
                "1, 150k" if verb == "encode" else "1",
            )
    by_hand = _rate(partial(_by_hand, _leader_and_isr()))
    rows.add_row("one struct for each state of LeaderAndIsr v7", f"{by_hand:.0f}k states/s", "", "", "")
