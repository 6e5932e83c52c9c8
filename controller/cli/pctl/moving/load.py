"""What is where before and after a plan: replicas, preferred leaderships and bytes of brokers, and bytes to copy."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

from controller.cli.common.options import Options
from controller.cli.common.output import note, print_rows
from controller.cli.common.requests import ask
from controller.client import admin
from controller.core.effects import TopicInfo
from controller.core.model import BrokerIds
from controller.core.names import counted
from controller.core.reassignment.assignment import Assignment
from controller.core.reassignment.vacating import Key, Load, Sizes
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from proto.gen import inspection_pb2

_COLUMNS = ("broker", "rack", "replicas", "after", "leaders", "leaders_after", "bytes", "bytes_after")


def current_assignment(info: TopicInfo, number: int) -> Assignment:
    return Assignment(info.partitions[number], info.adding.get(number, ()), info.removing.get(number, ()))


def target_of(info: TopicInfo, number: int) -> BrokerIds:
    """The replicas that a partition will have: of its reassignment that waits or is under way, else as they are."""
    return info.queued.get(number) or current_assignment(info, number).target


def targets(cluster_state: ClusterState, left_out: Iterable[str] = ()) -> dict[Key, BrokerIds]:
    """`target_of` all partitions whose topic is not being deleted and not left out."""
    without = {*cluster_state.deleting, *left_out}
    return {
        (name, number): target_of(info, number)
        for name, info in cluster_state.topics.items()
        for number in info.partitions
        if name not in without
    }


async def sizes_of(options: Options, session: Session, topics: Sequence[str] = ()) -> dict[Key, int]:
    """The largest replica of each partition, in bytes; absent where no broker says it."""
    request = inspection_pb2.DescribeReplicasRequest(topics=topics)
    try:
        answer = await ask(options, session, "DescribeReplicas", request)
    except admin.RequestFailedError as error:
        note(f"pctl: sizes are not known: {error}")
        return {}
    found = {
        (p.topic, p.partition): max((r.size_bytes for r in p.replicas), default=-1) for p in answer.partitions
    }
    return {key: size for key, size in found.items() if size >= 0}


def note_copied(current: Mapping[Key, BrokerIds], planned: Mapping[Key, BrokerIds], sizes: Sizes) -> None:
    """How many of all partitions change, and what is copied for them."""
    copies = [key for key, ids in planned.items() for b in ids if b not in current[key]]
    unknown = sum(key not in sizes for key in copies)
    total = sum(sizes.get(key, 0) for key in copies)
    if unknown < len(copies):
        size = f": {bytes_text(total)}" + (f" and {unknown} of unknown size" if unknown else "")
    else:
        size = ", of unknown size" if copies else ""
    note(
        f"{len(planned)} of {counted(len(current), 'partition')} change, {len(copies)} replicas are copied{size}"
    )


def bytes_text(count: int) -> str:
    """``1.5 GiB``."""
    value, units = float(count), iter(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    unit = next(units)
    while value >= 1024 and unit != "EiB":
        value, unit = value / 1024, next(units)
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def print_load(
    options: Options,
    cluster_state: ClusterState,
    current: Mapping[Key, BrokerIds],
    planned: Mapping[Key, BrokerIds],
    sizes: Sizes,
    *,
    err: bool = False,
) -> None:
    """One line for each broker. ``err``: as a note, where standard output is for the plan."""
    before, after = Load(current, sizes), Load({**current, **planned}, sizes)
    ids = sorted({*cluster_state.brokers, *(b for b, n in before.replicas.items() if n)})
    rows: list[dict[str, Any]] = [
        {
            "broker": b,
            "rack": cluster_state.brokers[b].rack if b in cluster_state.brokers else "(gone)",
            "replicas": before.replicas[b],
            "after": after.replicas[b],
            "leaders": before.leaders[b],
            "leaders_after": after.leaders[b],
            "bytes": before.bytes[b] if sizes else None,
            "bytes_after": after.bytes[b] if sizes else None,
        }
        for b in ids
    ]
    if err:
        with redirect_stdout(sys.stderr):
            print_rows(rows, _COLUMNS, "table")
    else:
        print_rows(rows, _COLUMNS, options.output)
