"""Partition state znodes against the cluster state (docs/adr/0016): found edited, they are taken over or put right.

Every write of ours is conditional on the znode's version, so an edit cannot be overwritten unnoticed, and no write of
ours is under way while an event is handled: what differs was written by somebody else.

- A leader that writes its ISR itself keeps leader and leader epoch: its ISR is taken over, as after a notification.
- Another edit that makes sense (the ISR is assigned, the leader in it) is taken over, and confirmed by a write under a
  leader epoch above both: brokers refuse what they know, and a leader epoch must never go back.
- What does not decode, or makes no sense, is put right from memory, under the next leader epoch. So is an older state,
  with a leader epoch below the known one: members of its ISR may lack what was acknowledged since. And so is what names
  a controller epoch above ours, also when it was found at the failover: nobody would ever touch it again. Our write is
  fenced by ``/controller_epoch``: where there is a controller of a higher epoch, it fails, and we resign.
- A znode that is gone is reported and not made again: its topic may be about to vanish, and a version that starts again
  would look old to every broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from controller.core.commits import ATTEMPTS_MAX, FOUND, refresh
from controller.core.context import EventContext, Handler
from controller.core.effects import Committed, Problem, ReadStates, SetState
from controller.core.events import StatesCheck
from controller.core.model import EPOCH_MAX, NO_EPOCH, NO_LEADER, RECOVERED, LeaderAndIsr, Partition
from controller.core.names import counted, name_shown
from controller.core.partitions import lost_data, partition_state_machine
from controller.core.partitions.leader_election import OFFLINE
from controller.core.partitions.leader_epochs import raise_leader_epochs
from controller.core.reasons import NoEpochLeft
from controller.core.reassignment.phases import begin_again, isr_changed
from controller.core.records import AuditFinding, LeadershipChange, Rejection
from controller.core.znode_paths import state_path

#: The category of a state znode that somebody deleted.
STATE_GONE = "STATE_GONE"
#: Leader epochs that are left for elections when an edited one is believed.
RESERVE = 1_000_000


@dataclass
class _Edited:
    """What one check found. ``floors``: taken over, to be confirmed above this leader epoch. ``unknown``: what was
    found is all that is known, because it could not be read before. ``lacking``: known as it is, with members that have
    lost their data: taken over in the middle of something else."""

    unknown: list[Partition] = field(default_factory=list)
    lacking: dict[Partition, LeaderAndIsr] = field(default_factory=dict)
    by_leader: list[Partition] = field(default_factory=list)
    floors: dict[Partition, int] = field(default_factory=dict)
    wrong: dict[Partition, _Wrong] = field(default_factory=dict)


@dataclass(frozen=True)
class _Wrong:
    """A state to be put right: its stored version, the leader epoch to exceed, and what is wrong with it."""

    version: int
    floor: int
    reason: str


def check_states(context: EventContext, checks: Sequence[StatesCheck]) -> Handler[None]:
    """StoredStatesCheck: read the states and handle those that somebody else wrote."""
    partitions = [p for p in dict.fromkeys(p for c in checks for p in c.partitions) if context.is_present(p)]
    stored = yield from context.read(ReadStates(partitions))
    edited = _Edited()
    for partition, found in zip(partitions, stored, strict=True):
        if found is None and _lacks_its_first(context, partition):
            edited.unknown.append(partition)
        elif found != partition.leadership or _is_beyond(found, context.cluster.controller_epoch):
            _sort(context, partition, found, edited)
        else:
            context.solved_state(partition)
            if isinstance(found, LeaderAndIsr) and context.cluster.without_data(found):
                edited.lacking[partition] = found
            elif _was_given_up(context, partition, found):
                edited.unknown.append(partition)
    if edited.lacking:
        yield from lost_data.take_out(context, edited.lacking)
        yield from _elect_where_offline(
            context, [p for p, found in edited.lacking.items() if p.leadership is not found]
        )
    if edited.unknown:
        is_deleting, online = context.cluster.is_deleting, partition_state_machine.ONLINE
        taken = [p for p in edited.unknown if p.state is online and not is_deleting(p)]
        partition_state_machine.to_offline(context, taken, "somebody took its leader away")
        # Creation reads a state that is there already, and adopts it; an election is held again.
        yield from partition_state_machine.bring_online(context, edited.unknown)
    if edited.by_leader:
        changed = yield from refresh(context, edited.by_leader, FOUND)
        # A member may have come back without its data while its leader wrote.
        yield from lost_data.take_out(context, changed)
        yield from _elect_where_offline(context, changed)
    if edited.wrong:
        yield from _put_right(context, edited.wrong)
    if edited.floors:
        yield from _confirm(context, edited.floors)
    # Nobody tells of what was found here, or in the midst of a write of ours: a reassignment may have waited for it.
    isr_changed(context, partitions)
    yield from begin_again(context, partitions)


def check_kept(context: EventContext, kept: Sequence[Partition]) -> Handler[None]:
    """Put right what ``lost_data.take_out`` could not write, before anybody is told: told to lead, a member without its
    data would have the others forget theirs. Somebody may write again before each attempt."""
    for _ in range(ATTEMPTS_MAX):
        if not kept:
            return
        yield from check_states(context, [StatesCheck(kept)])
        kept = [
            p
            for p in kept
            if (known := p.leadership) is not None and known.leader in context.cluster.without_data(known)
        ]


def _lacks_its_first(context: EventContext, partition: Partition) -> bool:
    """Whether its creation was given up after too many attempts, although somebody could lead it."""
    cluster = context.cluster
    path = state_path(partition.topic.name, partition.number)
    return (
        partition.leadership is None
        and path not in cluster.problems
        and any(cluster.online_replicas(partition))
    )


def _was_given_up(context: EventContext, partition: Partition, found: LeaderAndIsr | None) -> bool:
    """Whether its election was, after too many attempts, or was not held, as somebody took its leader away in the midst
    of another write; although a member of its ISR could lead it."""
    if found is None:
        return False
    unled = partition.state is partition_state_machine.OFFLINE or found.leader == NO_LEADER
    return unled and any(context.cluster.is_online(partition, b) for b in found.isr)


def _sort(
    context: EventContext, partition: Partition, found: LeaderAndIsr | Problem | None, edited: _Edited
) -> None:
    known = partition.leadership
    if known is None:
        if isinstance(found, LeaderAndIsr):
            edited.unknown.append(partition)
        return
    path = state_path(partition.topic.name, partition.number)
    if found is None:
        context.problem(
            Problem(
                path,
                f"somebody deleted it: create it again ({words(known)}), or {_way_on(context, partition)}",
                error=STATE_GONE,
            )
        )
    elif isinstance(found, Problem):
        context.problem(found)
        if found.version >= 0:
            edited.wrong[partition] = _Wrong(found.version, NO_EPOCH, f"it did not decode: {found.problem}")
    elif (why := _wrong(partition, known, found, context.cluster.controller_epoch)) is not None:
        reason = f"somebody wrote {words(found)}: {why}{_behind(known, found)}"
        edited.wrong[partition] = _Wrong(found.partition_epoch, _believed(known, found), reason)
    elif _by_leader(known, found):
        edited.by_leader.append(partition)
    else:
        reason = f"somebody wrote {words(found)} over {words(known)}{_behind(known, found)}"
        finding(context, partition, "taken_over", reason)
        context.log([LeadershipChange(partition, known, found)], "edited_in_zookeeper")
        context.solved_state(partition)
        partition.leadership = found
        edited.floors[partition] = found.leader_epoch


def _behind(known: LeaderAndIsr, found: LeaderAndIsr) -> str:
    if found.partition_epoch >= known.partition_epoch:
        return ""
    return ": brokers that know the higher version skip it until it is raised above that"


def _way_on(context: EventContext, partition: Partition) -> str:
    """Without its state a partition can neither end a move nor be led anew, so that its topic may go."""
    name = partition.topic.name
    moving = context.cluster.reassigning(name)
    if not moving:
        return "delete the topic"
    cancel = f"pctl reassign cancel --topic {name_shown(name)} --partition {moving[0].number}"
    more = f" (and {counted(len(moving) - 1, 'partition')} more of it)" if len(moving) > 1 else ""
    return f"{cancel}{more}, then delete the topic"


def _believed(known: LeaderAndIsr, found: LeaderAndIsr) -> int:
    """The leader epoch that was written; NO_EPOCH: no controller's, and brokers were not told of it."""
    return (
        found.leader_epoch if found.leader_epoch <= max(known.leader_epoch, EPOCH_MAX - RESERVE) else NO_EPOCH
    )


def _by_leader(known: LeaderAndIsr, found: LeaderAndIsr) -> bool:
    """Whether only the ISR differs, under a newer version: what a leader writes that writes ISRs itself. It knows
    nothing of recovery: to it every leader has recovered."""
    mine = (known.leader, known.leader_epoch)
    return mine == (found.leader, found.leader_epoch) and (
        found.partition_epoch > known.partition_epoch and found.recovery in (known.recovery, RECOVERED)
    )


def _is_beyond(found: LeaderAndIsr | Problem | None, controller_epoch: int) -> bool:
    """Whether a state names a controller epoch that no controller has had."""
    return isinstance(found, LeaderAndIsr) and found.controller_epoch > controller_epoch


def _wrong(
    partition: Partition, known: LeaderAndIsr, found: LeaderAndIsr, controller_epoch: int
) -> str | None:
    """Why a state cannot be one of this partition; None: it can."""
    if _is_beyond(found, controller_epoch):
        return f"no controller has had epoch {found.controller_epoch}, the present one is {controller_epoch}"
    if found.leader_epoch < known.leader_epoch:
        return f"it is an older state, leader epoch {known.leader_epoch} is known"
    strangers = [b for b in found.isr if b not in partition.replicas and b not in partition.departing]
    if strangers:
        return f"{strangers} in the ISR are not assigned"
    if not found.isr:
        return "the ISR is empty"
    if found.leader not in (NO_LEADER, *found.isr):
        return f"its leader {found.leader} is not in the ISR"
    if _believed(known, found) == NO_EPOCH:
        return "its leader epoch leaves none for elections"
    return None


def _put_right(context: EventContext, wrong: dict[Partition, _Wrong]) -> Handler[None]:
    """Write what memory has, at the next leader epoch, over exactly the version that was read."""
    changes: list[tuple[Partition, LeaderAndIsr, LeaderAndIsr]] = []
    for partition, found in wrong.items():
        known = partition.leadership
        assert known is not None
        new = known.successor(known.leader, known.isr, context.cluster.controller_epoch, known.recovery)
        new = context.cluster.with_directories(new, known.isr)
        epochs = {
            "leader_epoch": max(new.leader_epoch, found.floor + 1),
            "partition_epoch": found.version + 1,
        }
        if epochs["leader_epoch"] > EPOCH_MAX:
            context.reject("CONFLICT", f"not put right: {NoEpochLeft(known.leader_epoch)}", partition)
            continue
        changes.append((partition, known, msgspec.structs.replace(new, **epochs)))
    if not changes:
        return
    outcome = yield from context.commit([SetState(p, new) for p, _, new in changes])
    if not isinstance(outcome, Committed):
        # Written again meanwhile, or the connection was lost: the next check sees.
        context.log([Rejection("CONFLICT", f"not put right: {outcome.reason}", p) for p, _, _ in changes])
        return
    for partition, _, new in changes:
        finding(context, partition, "put_right", wrong[partition].reason)
        partition.leadership = new
        context.solved_state(partition)
    context.log([LeadershipChange(*change) for change in changes], "put_right")
    written = [p for p, _, _ in changes]
    context.push_metadata(written)
    yield from tell_replicas(context, written)


def _confirm(context: EventContext, floors: dict[Partition, int]) -> Handler[None]:
    """Write what was taken over under a new leader epoch."""
    raised: list[Partition] = []
    failed = yield from raise_leader_epochs(context, floors, "edited_in_zookeeper", raised.extend)
    for partition, why in failed.items():
        context.reject("CONFLICT", f"taken over, but not confirmed: {why}", partition)
    yield from tell_replicas(context, raised)


def tell_replicas(context: EventContext, written: Sequence[Partition]) -> Handler[None]:
    """Tell replicas, once no leader is one that came back without its data."""
    kept = set((yield from lost_data.take_out(context, written)))
    context.push_leadership([(p.replicas, p) for p in written if p not in kept])
    yield from _elect_where_offline(context, written)


def _elect_where_offline(context: EventContext, stored: Sequence[Partition]) -> Handler[None]:
    """Elect for partitions whose leader, as it is stored now, is not online; the others are led."""
    lost, led = list[Partition](), list[Partition]()
    for p in stored:
        if p.leadership is not None and not context.cluster.is_online(p, p.leadership.leader):
            lost.append(p)
        elif p.state is not partition_state_machine.ONLINE:
            led.append(p)
    if lost:
        partition_state_machine.to_offline(context, lost, "its stored leader is not online")
        if context.cluster.maintenance.paused is None:
            yield from partition_state_machine.to_online(context, lost, OFFLINE)
    partition_state_machine.led(context, led)


def finding(context: EventContext, partition: Partition, to: str, reason: str) -> None:
    context.log([AuditFinding(partition, None, to, reason)])


def words(state: LeaderAndIsr) -> str:
    return (
        f"leader {state.leader}, leader epoch {state.leader_epoch}, ISR {list(state.isr)}, version"
        f" {state.partition_epoch}"
    )
