"""What is wrong with a cluster, and what is not finished: computed from one look, and what the controller answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from controller.cli.common.cluster_state import attribution_text, counted, freeze_text
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo

#: Partitions that one line names.
NAMED_MAX = 5


class Wrong(Enum):
    """The value is for programs."""

    NO_CONTROLLER = "no_controller"
    CONTROLLER_SILENT = "controller_does_not_answer"
    BROKERS_GONE = "brokers_gone"
    UNAVAILABLE = "unavailable_partitions"
    UNDER_MIN_ISR = "under_min_isr_partitions"
    UNDER_REPLICATED = "under_replicated_partitions"
    UNREADABLE = "unreadable_znodes"
    PAUSED = "paused"
    MAINTENANCE = "maintenance"
    FROZEN = "frozen"
    PUSH_PROBLEM = "push_problem"
    IGNORED = "brokers_ignored"
    FLAPPING = "brokers_flapping"


class Unfinished(Enum):
    """Work of the controller and of brokers that ends by itself; the value is for programs."""

    PUSHES = "pending_pushes"
    DELETIONS = "topics_being_deleted"
    REASSIGNMENTS = "reassignments"
    SHUTDOWNS = "brokers_shutting_down"


class Finding(NamedTuple):
    """``text``: for people, with the names of what it is about."""

    what: Wrong | Unfinished
    number: int
    text: str


def wrong(now: ClusterState, described: Any | str | None) -> Iterator[Finding]:
    """Everything that is wrong. ``described``: the controller's DescribeCluster response; as text why it did not
    answer; None: there is no controller to ask."""
    if now.controller_id < 0:
        yield Finding(Wrong.NO_CONTROLLER, 1, "no controller is active")
    elif isinstance(described, str):
        yield Finding(
            Wrong.CONTROLLER_SILENT, 1, f"controller {now.controller_id} does not answer: {described}"
        )
    yield from _of_brokers(now, described)
    led: list[PartitionInfo] = []
    offline: list[PartitionInfo] = []
    for p in now.partitions:
        (led if p.state is not None and p.state.leader in now.brokers else offline).append(p)
    yield from _partitions(Wrong.UNAVAILABLE, "without a leader that is alive", offline)
    short = [p for p in led if (p.spare_in_sync(now.min_isr(p.topic)) or 0) < 0]
    yield from _partitions(Wrong.UNDER_MIN_ISR, "below min.insync.replicas: writes with acks=all fail", short)
    behind = [p for p in led if p.under_replicated()]
    yield from _partitions(Wrong.UNDER_REPLICATED, "with a replica out of sync", behind)
    if now.problems:
        paths = _named(sorted(now.problems))
        yield Finding(
            Wrong.UNREADABLE, len(now.problems), f"{counted(len(now.problems), 'unreadable znode')}: {paths}"
        )
    for kind, mark in ((Wrong.PAUSED, now.maintenance.paused), (Wrong.MAINTENANCE, now.maintenance.entered)):
        if mark is not None:
            yield Finding(kind, 1, f"{kind.value} {attribution_text(mark)}")
    if (freeze := now.maintenance.freeze) is not None:
        yield Finding(Wrong.FROZEN, 1, f"frozen {freeze_text(freeze)}")


def _of_brokers(now: ClusterState, described: Any | str | None) -> Iterator[Finding]:
    for id_ in now.gone:
        lacking = sum(id_ in p.replicas for p in now.partitions)
        forgotten = (
            f" and forgotten (pctl brokers decommission {id_} moves them)" if id_ in now.forgotten else ""
        )
        text = f"broker {id_} is gone{forgotten}: {counted(lacking, 'partition')} lack it"
        yield Finding(Wrong.BROKERS_GONE, 1, text)
    if described is None or isinstance(described, str):
        return
    known = {b.broker_id: b for b in described.brokers}
    for id_ in sorted(now.brokers):
        if id_ not in known:
            yield Finding(Wrong.IGNORED, 1, f"broker {id_} is ignored by the controller")
        elif known[id_].push_problem:
            yield Finding(Wrong.PUSH_PROBLEM, 1, f"broker {id_} takes no pushes: {known[id_].push_problem}")
        if id_ in known and known[id_].hold_s:
            text = f"broker {id_} comes and goes: it was lost {known[id_].losses} times, and gets no leaderships back"
            yield Finding(Wrong.FLAPPING, 1, f"{text} until it is up for {known[id_].hold_s} s")


def unfinished(
    now: ClusterState, described: Any, shutting_down: Sequence[int], moving: int
) -> Iterator[Finding]:
    """Everything that is under way. ``moving``: number of partitions being reassigned."""
    if pushes := sum(b.pending_pushes for b in described.brokers):
        yield Finding(Unfinished.PUSHES, pushes, f"pushes pending: {pushes}")
    if now.deleting:
        text = f"{counted(len(now.deleting), 'topic')} being deleted: {_named(now.deleting)}"
        yield Finding(Unfinished.DELETIONS, len(now.deleting), text)
    if moving:
        yield Finding(Unfinished.REASSIGNMENTS, moving, f"{counted(moving, 'partition')} being reassigned")
    if shutting_down:
        text = f"shutting down: {_named(map(str, shutting_down))}"
        yield Finding(Unfinished.SHUTDOWNS, len(shutting_down), text)


def _partitions(what: Wrong, text: str, found: Sequence[PartitionInfo]) -> Iterator[Finding]:
    if found:
        named = _named(f"{p.topic}-{p.partition}" for p in found)
        yield Finding(what, len(found), f"{counted(len(found), 'partition')} {text}: {named}")


def _named(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - NAMED_MAX} more" if len(every) > NAMED_MAX else ""
    return ", ".join(every[:NAMED_MAX]) + more
