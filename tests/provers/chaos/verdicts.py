"""The judgement of a run, from what was written down in it. Pure: logs and notes in, findings out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from controller.runtime.zookeeper.cluster_reader import ClusterState
from tests.provers.chaos.apply import Skew, Struck
from tests.provers.chaos.operators import ControllerRequest, Outcome, Verb
from tests.provers.chaos.recovery import Recovery, lacking

Record = Mapping[str, Any]
Key = tuple[str, int]
#: Reasons of changes of leaders that begin with one of these: the one before was gone.
LOST = ("offline", "isr_change")


class What(StrEnum):
    RECORDS = "acknowledged records"
    EPOCHS = "controllers in one epoch"
    STUCK = "stuck operations"
    RECOVERY = "never whole again"
    PROCESSES = "processes and their logs"


@dataclass(frozen=True)
class Finding:
    """Something that must not be. ``at_us``: when, 0: at the end; ``episode`` and ``fault``: what went on then."""

    what: What
    words: str
    at_us: int = 0
    episode: int = 0
    fault: str = ""

    def __str__(self) -> str:
        when = f" [episode {self.episode}: {self.fault}]" if self.episode else ""
        return f"{self.what}: {self.words}{when}"


@dataclass
class Played:
    """An episode as it was: whom its faults struck in the end, and times in microseconds since 1970."""

    number: int
    name: str
    began_us: int
    healed_us: int = 0
    recovered_us: int = 0
    recovery: Recovery | None = None

    @property
    def limit_passed(self) -> bool:
        return self.recovery is not None and not self.recovery.within


def attributed(finding: Finding, played: Sequence[Played]) -> Finding:
    """With the episode in which it was, or the last one before it."""
    before = [one for one in played if one.began_us <= finding.at_us]
    if finding.episode or not before:
        return finding
    last = before[-1]
    return Finding(finding.what, finding.words, finding.at_us, last.number, last.name)


class Line(NamedTuple):
    """A record of a state-change log and when it was written: true time, microseconds since 1970."""

    at_us: int
    record: Record

    @property
    def node(self) -> str:
        return f"{self.record['role']}-{self.record['node']}"


def true_time(at_us: int, node: str, skews: Iterable[Skew]) -> int:
    """What a node with a wrong clock wrote, put right."""
    for skew in skews:
        if skew.name == node and skew.since_us <= at_us - skew.offset_us <= skew.until_us + 2_000_000:
            return at_us - skew.offset_us
    return at_us


# --- one controller an epoch -----------------------------------------------------------------------------


def two_masters(lines: Iterable[Line]) -> list[Finding]:
    """Two controllers in one epoch, writes or pushes of a deposed one that were taken, two leaders in an epoch.

    ``lines``: of all controllers and brokers, each node's in the order it wrote them.
    """
    findings: list[Finding] = []
    owners: dict[int, int] = {}
    ordered: list[Line] = []
    seen_by: dict[str, int] = {}
    for line in lines:
        record, epoch = line.record, line.record["controller_epoch"]
        if record["role"] == "broker":
            _taken_by_broker(line, seen_by, findings)
        elif epoch >= 0:
            owner = owners.setdefault(epoch, record["node"])
            if owner != record["node"]:
                owners[epoch] = record["node"]
                words = f"controllers {owner} and {record['node']} both acted in controller epoch {epoch}"
                findings.append(Finding(What.EPOCHS, words, line.at_us))
            if record["kind"] in ("leader", "isr") and record.get("reason") != "isr_change_notification":
                ordered.append(line)
    findings += _deposed_writes(ordered)
    return findings


def _taken_by_broker(line: Line, seen_by: dict[str, int], findings: list[Finding]) -> None:
    record, node = line.record, line.node
    if record["kind"] == "broker" and record.get("to") == "started":
        seen_by.pop(node, None)
    if record["kind"] not in ("replica", "unchanged") or record["controller_epoch"] < 0:
        return
    newest = seen_by.get(node, -1)
    if record["controller_epoch"] < newest:
        words = f"{node} took an order of controller epoch {record['controller_epoch']} after one of epoch {newest}"
        findings.append(Finding(What.EPOCHS, words, line.at_us))
    seen_by[node] = max(newest, record["controller_epoch"])


def _deposed_writes(lines: Sequence[Line]) -> list[Finding]:
    """Durable states of one partition in the order of its versions: the controller epoch never falls."""
    findings = []
    states: dict[Key, dict[int, Line]] = {}
    leaders: dict[tuple[Key, int], tuple[int, Line]] = {}
    for line in lines:
        record = line.record
        key = (record["topic"], record["partition"])
        states.setdefault(key, {})[record["partition_epoch"]] = line
        leader, _ = leaders.setdefault((key, record["leader_epoch"]), (record["leader"], line))
        if leader != record["leader"]:
            words = (
                f"{key[0]}-{key[1]} has leaders {leader} and {record['leader']} in leader epoch "
                f"{record['leader_epoch']}"
            )
            findings.append(Finding(What.EPOCHS, words, line.at_us))
    for key, by_version in states.items():
        newest = -1
        for version, line in sorted(by_version.items()):
            epoch = line.record["controller_epoch"]
            if epoch < newest:
                words = f"{key[0]}-{key[1]}: version {version} was written in controller epoch {epoch}, after {newest}"
                findings.append(Finding(What.EPOCHS, words, line.at_us))
            newest = max(newest, epoch)
    return findings


# --- operations ------------------------------------------------------------------------------------------


def stuck(
    asked: Sequence[ControllerRequest], cluster_state: ClusterState, why: Mapping[str, str]
) -> list[Finding]:
    """What was asked for and is neither done nor undone at the end.

    ``seen``: the cluster after everything was healed and had its time. ``why``: what ``pctl explain`` says, by topic
    (deletions) or topic-partition (moves).
    """
    last = {(one.topic, one.partition): one for one in asked}
    left: list[tuple[str, str, ControllerRequest | None]] = []
    for topic in cluster_state.deleting:
        left.append((f"{topic} is still being deleted", topic, last.get((topic, -1))))
    for topic, info in cluster_state.topics.items():
        for number in sorted({*info.adding, *info.removing, *info.queued}):
            if topic not in cluster_state.deleting:
                one = last.get((topic, number))
                words = f"{topic}-{number} is still being moved ({one or 'nobody asked'})"
                left.append((words, f"{topic}-{number}", one))
    for one in asked:
        if one.outcome is Outcome.ACCEPTED and (words := _not_carried_out(one, asked, cluster_state)):
            left.append((f"{one}: {words}", one.topic, one))
    findings = []
    for words, name, about in left:
        explained = f"; explain: {why[name]}" if why.get(name) else ""
        findings.append(Finding(What.STUCK, f"{words}{explained}", about.at_us if about else 0))
    for condition, problems in lacking(cluster_state).items():
        findings += [Finding(What.STUCK, f"{condition}: {problem}") for problem in problems]
    return findings


def _not_carried_out(
    one: ControllerRequest, asked: Sequence[ControllerRequest], cluster_state: ClusterState
) -> str:
    """How the end differs from what was accepted; empty: it does not, or what came later explains it."""
    there = one.topic in cluster_state.topics and one.topic not in cluster_state.deleting
    match one.verb:
        case Verb.DELETE if there:
            return "the topic is there"
        case Verb.CREATE if one.topic not in cluster_state.topics:
            deleted = any(other.verb is Verb.DELETE and other.topic == one.topic for other in asked)
            return "" if deleted else "there is no such topic"
        case Verb.MOVE if there and not _moved_again(one, asked):
            info = cluster_state.topics[one.topic]
            replicas = tuple(info.partitions.get(one.partition, ()))
            ongoing = one.partition in info.adding or one.partition in info.removing
            return "" if replicas == one.target or ongoing else f"the replicas are {list(replicas)}"
    return ""


def _moved_again(one: ControllerRequest, asked: Sequence[ControllerRequest]) -> bool:
    """Whether something that came later can have changed where the partition is."""
    return any(
        (other.topic, other.partition) == (one.topic, one.partition)
        and other.at_us > one.at_us
        and other.verb in (Verb.MOVE, Verb.CANCEL)
        and other.outcome is not Outcome.REFUSED
        for other in asked
    )


# --- time without a leader -------------------------------------------------------------------------------


class Leaderless(NamedTuple):
    """A partition that nobody led. ``counted``: a replica in sync was alive all the time, and could have led."""

    topic: str
    partition: int
    since_us: int
    until_us: int
    counted: bool

    @property
    def took_s(self) -> float:
        return (self.until_us - self.since_us) / 1e6


def leaderless(lines: Sequence[Line], away: Sequence[Struck], end_us: int) -> list[Leaderless]:
    """From the records of all controllers: from the moment that a fault struck the leader, or that the controller
    took the leader away, to the record of the next one. ``away``: brokers that a fault kept from leading; who leads on
    in spite of it was never away, and makes no entry. What is being deleted needs no leader."""
    deleting: dict[str, int] = {}
    reassignments: dict[Key, list[Line]] = {}
    for line in lines:
        if line.record["role"] != "controller":
            continue
        if line.record["kind"] == "topic" and line.record["to"] != "known":
            topic = line.record["topic"]
            deleting[topic] = min(line.at_us, deleting.get(topic, line.at_us))
        elif line.record["kind"] in ("leader", "isr"):
            reassignments.setdefault((line.record["topic"], line.record["partition"]), []).append(line)
    found: list[Leaderless] = []
    for key, changes in reassignments.items():
        end = min(end_us, deleting.get(key[0], end_us))
        changes.sort(key=lambda line: (line.record["partition_epoch"], line.at_us))
        found += _gaps(key, [line for line in changes if line.at_us < end], away, end)
    return found


def _gaps(key: Key, changes: Sequence[Line], away: Sequence[Struck], end_us: int) -> Iterator[Leaderless]:
    since, led_us, could_lead, isr = 0, 0, set[int](), set[int]()
    for line in changes:
        record = line.record
        if record["kind"] == "leader":
            before, after = int(record["from"]), int(record["to"])
            if before >= 0:
                lost = str(record.get("reason", "")).startswith(LOST)
                struck_us = _struck_since(before, line.at_us, away) if lost else 0
                # Who was made leader under a fault that was there already led until it was seen that he cannot.
                since = max(struck_us, led_us) if struck_us else line.at_us
                could_lead = isr - {before}
            if after >= 0:
                if since and line.at_us > since:
                    alive = _one_was_alive(could_lead, since, line.at_us, away)
                    yield Leaderless(*key, since, line.at_us, alive)
                since, led_us = 0, line.at_us
        isr = set(record["isr"])
    if since:
        yield Leaderless(*key, since, end_us, _one_was_alive(could_lead, since, end_us, away))


def _struck_since(broker: int, at_us: int, away: Sequence[Struck]) -> int:
    """When the fault began that a broker was under then; 0: under none."""
    since = [
        one.since_us
        for one in away
        if one.name == f"broker-{broker}" and one.since_us <= at_us <= one.until_us
    ]
    return min(since, default=0)


def _one_was_alive(ids: Iterable[int], since_us: int, until_us: int, away: Sequence[Struck]) -> bool:
    gone = {one.name for one in away if one.since_us <= until_us and one.until_us >= since_us}
    return any(f"broker-{id_}" not in gone for id_ in ids)


@dataclass(frozen=True)
class Distribution:
    """Of some times, seconds."""

    count: int = 0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    longest: float = 0.0

    @staticmethod
    def of(values: Iterable[float]) -> Distribution:
        """Percentiles are values that were measured: the smallest that as many per cent do not exceed."""
        ordered = sorted(values)
        if not ordered:
            return Distribution()

        def at(share: float) -> float:
            return round(ordered[math.ceil(share * len(ordered)) - 1], 3)

        return Distribution(len(ordered), at(0.5), at(0.9), at(0.99), round(ordered[-1], 3))
