"""The product beside the model: what it came to and what it sent, in the model's words, and whether both agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from controller.core.model import RECOVERED, RECOVERING, LeaderAndIsr, Partition, PartitionState, ReplicaState
from controller.core.outbox import PushKind
from controller.core.records import Rejection
from tests.provers.model import tables
from tests.provers.model.machines import DURING_DELETE, Entry, Leadership, Model, Push
from tests.support.core.harness import MachineHarness
from tests.support.core.sent import Sent

PARTITION_STATES = {
    tables.NEW: PartitionState.NEW,
    tables.ONLINE: PartitionState.ONLINE,
    tables.OFFLINE: PartitionState.OFFLINE,
    tables.GONE: PartitionState.NON_EXISTENT,
}
REPLICA_STATES = {
    tables.NEW: ReplicaState.NEW,
    tables.ONLINE: ReplicaState.ONLINE,
    tables.OFFLINE: ReplicaState.OFFLINE,
    tables.STARTED: ReplicaState.DELETION_STARTED,
    tables.SUCCESSFUL: ReplicaState.DELETION_SUCCESSFUL,
    tables.INELIGIBLE: ReplicaState.DELETION_INELIGIBLE,
    tables.GONE: ReplicaState.NON_EXISTENT,
}
_PARTITION = {theirs: ours for ours, theirs in PARTITION_STATES.items()}
_REPLICA = {theirs: ours for ours, theirs in REPLICA_STATES.items()}
_KINDS = {PushKind.LEADER_AND_ISR: "LISR", PushKind.UPDATE_METADATA: "UMR", PushKind.STOP_REPLICA: "SR"}
KEY = ("t", 0)


def leadership(state: LeaderAndIsr | None) -> Leadership | None:
    if state is None:
        return None
    return Leadership(
        state.leader,
        state.leader_epoch,
        state.isr,
        state.partition_epoch,
        state.controller_epoch,
        state.recovery == RECOVERING,
        state.directories,
    )


def stored_form(state: Leadership) -> LeaderAndIsr:
    recovery = RECOVERING if state.recovering else RECOVERED
    return LeaderAndIsr(
        *state[:2], state.isr, state.partition_epoch, state.controller_epoch, recovery, state.directories
    )


def found(rig: MachineHarness) -> dict[str, Any]:
    """Where the product is now."""
    cluster = rig.cluster
    partition: Partition | None = cluster.partition(*KEY)
    topic = {}
    if partition is not None:
        topic = {
            "partition": _PARTITION[partition.state],
            "replicas": partition.replicas,
            "states": {b: _REPLICA[partition.replica_state(b)] for b in partition.replicas},
            "cached": leadership(partition.leadership),
        }
    return {
        "registered": set(cluster.brokers),
        "leaving": set(cluster.shutting_down),
        "failed disks": {b for b, lost in cluster.offline_dirs.items() if partition in lost},
        "stored": leadership(rig.world.states.get(KEY)),
        "queued": "t" in cluster.topics_to_delete,
        "started": "t" in cluster.topics_deletion_started,
        "held": "t" in cluster.deletions_ineligible,
        **topic,
    }


def expected(model: Model) -> dict[str, Any]:
    """Where the model is now."""
    topic = {}
    if model.known:
        topic = {
            "partition": model.partition,
            "replicas": model.replicas,
            "states": {b: model.state(b) for b in model.replicas},
            "cached": model.cached,
        }
    return {
        "registered": set(model.registered),
        "leaving": set(model.leaving),
        "failed disks": set(model.failed_disks),
        "stored": model.stored,
        "queued": model.queued,
        "started": model.started,
        "held": model.held,
        **topic,
    }


def pushed(sent: Iterable[Sent]) -> list[Push]:
    """What brokers got, in the model's words."""
    pushes = []
    for one in sent:
        kind = _KINDS[one.kind]
        if kind == "UMR":
            live = tuple(sorted(b.broker_id for b in one.message.live_brokers))
            pushes.append(Push(one.broker, "LIVE", live))
        for entry in one.message.partition_states:
            pushes.append(Push(one.broker, kind, _content(kind, entry)))
    return pushes


def _content(kind: str, entry: Any) -> object:
    if kind == "SR":
        return entry.leader_epoch, entry.delete_partition
    isr, replicas = tuple(entry.isr), tuple(entry.replicas)
    if kind == "UMR" and entry.leader == DURING_DELETE:
        return Entry(DURING_DELETE, entry.leader_epoch, (), entry.partition_epoch)
    if kind == "UMR":
        offline = tuple(entry.offline_replicas)
        return Entry(
            entry.leader, entry.leader_epoch, isr, entry.partition_epoch, None, replicas, offline=offline
        )
    return Entry(
        entry.leader,
        entry.leader_epoch,
        isr,
        entry.partition_epoch,
        entry.leader_recovery_state == RECOVERING,
        replicas,
        tuple(entry.adding_replicas),
        tuple(entry.removing_replicas),
        entry.is_new,
    )


def normal(pushes: Iterable[Push]) -> dict[tuple[int, str], list[object]]:
    """By broker and kind, in order, repetitions at once left out; of partitions being deleted only that they are."""
    streams: dict[tuple[int, str], list[object]] = {}
    for broker, kind, what in pushes:
        if isinstance(what, Entry) and what.leader == DURING_DELETE:
            what = Entry(DURING_DELETE, what.leader_epoch, (), what.partition_epoch)
        stream = streams.setdefault((broker, kind), [])
        if not stream or stream[-1] != what:
            stream.append(what)
    return streams


def differences_of_pushes(model: Sequence[Push], real: Sequence[Push]) -> list[str]:
    """ADR 3 and section 9: a broker may miss what was overtaken, never the newest, and gets nothing else.

    Which replicas are offline is read when a message is built, and so counts in the newest entry alone.
    """
    wanted, got = normal(model), normal(real)
    problems = []
    for stream in sorted(wanted.keys() | got.keys()):
        want, have = wanted.get(stream, []), got.get(stream, [])
        rest = iter(_bare(want))
        if want[-1:] != have[-1:] or not all(one in rest for one in _bare(have)):
            problems.append(f"broker {stream[0]} {stream[1]}:\n    expected {want}\n    was sent {have}")
    return problems


def _bare(stream: Iterable[object]) -> list[object]:
    bare: list[object] = []
    for one in stream:
        stripped = one._replace(offline=()) if isinstance(one, Entry) else one
        if bare[-1:] != [stripped]:
            bare.append(stripped)
    return bare


def differences(model: Model, rig: MachineHarness, refusals: bool = True) -> list[str]:
    """Everything in which the product is not where the model is; empty: they agree."""
    theirs, ours = expected(model), found(rig)
    problems = [
        f"{field}: expected {theirs.get(field)}, found {ours.get(field)}"
        for field in sorted(theirs.keys() | ours.keys())
        if theirs.get(field) != ours.get(field)
    ]
    problems += differences_of_pushes(model.pushes, pushed(rig.sent))
    if refusals:
        said = rig.recorded(Rejection)
        real = sorted(
            _refusal(refused) for refused in said if refused.partition is not None and _counts(refused)
        )
        model_said = sorted(set(_words(model.refusals)))
        if sorted(set(real)) != model_said:
            problems.append(f"refused: expected {model_said}, found {sorted(set(real))}")
    return problems


def _counts(refused: Rejection) -> bool:
    """A conflict that was decided anew is no refusal."""
    error = refused.error
    return error in ("ILLEGAL_TRANSITION", "ELECTION_FAILED") or (
        error == "CONFLICT" and bool(refused.before)
    )


def _refusal(refused: Rejection) -> tuple[str, str]:
    why = refused.reason
    return refused.error, why.split(":")[0].removeprefix("replica ") if why.startswith("replica ") else ""


def _words(refusals: Iterable[tuple[str, str, str, str]]) -> Iterable[tuple[str, str]]:
    """What the state-change log says of a refusal: error, and which replica."""
    for machine, who, _, why in refusals:
        if why in tables.ERRORS:
            yield tables.ERRORS[why], "" if why != "is the leader" else f"{who} is the leader"
        else:
            yield "ILLEGAL_TRANSITION", who if machine == "replica" else ""
