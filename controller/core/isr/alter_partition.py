"""AlterPartition: leaders propose ISRs, the controller makes them durable (reference, section 8.4).

The checks have the reference's order, with these differences (reference, section 14, point 9):

- ISRs are compared as sets: the same brokers in another order are no change.
- Only an *added* member must be live (check 7): a leader can drop a lagging follower while another member is dead.
  The dead member leaves when its broker's failure is handled.
- Check 6 also refuses an ISR without its leader, with a broker twice, or with a new member outside the assignment.
  A present member outside the assignment may stay: while a reassignment completes, brokers see such ISRs
  (KAFKA-9672).
- Check 8 refuses a member with a stale broker epoch (KIP-903). Kafka's ZooKeeper controller does not read the epochs,
  and its brokers send -1.
- A sender that is not the leader gets INVALID_REQUEST, so the broker waits for its next LeaderAndIsr.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from controller.core.commits import StateChange, write_states
from controller.core.context import SLICE_MAX, EventContext, Handler, Pause
from controller.core.model import (
    NO_EPOCH,
    RECOVERED,
    RECOVERING,
    BrokerIds,
    Cluster,
    DirectoryIds,
    LeaderAndIsr,
    Partition,
    interned,
    members,
    shared_directories,
)
from controller.core.names import ids_shown
from controller.core.reasons import NewerController, Reason, StateGone
from controller.core.reassignment.phases import isr_changed
from controller.core.records import LeadershipChange, Rejection
from controller.core.requests.brokers import Altered, AlterPartition, AlterPartitionReply, Proposal
from controller.core.requests.errors import ErrorCode

#: Proposals looked at between yields.
EXAMINED_MAX = SLICE_MAX
#: Refusals of one event and error that are recorded one by one.
REFUSALS_RECORDED_MAX = 1000
NAMED_TWICE = "the request names the partition more than once: only the first counts"


class Verdict(NamedTuple):
    """The verdict on one proposal: an error with a text, a state to write, or neither (the proposed state is stored
    already)."""

    error: ErrorCode = ErrorCode.NONE
    why: str = ""
    new: LeaderAndIsr | None = None


def resolve(cluster: Cluster, proposal: Proposal) -> Partition | ErrorCode:
    """Check 1: find the partition. The topic id, where given, must match the named topic."""
    topic = cluster.topics.get(proposal.topic)
    if proposal.topic_id and (topic is None or topic.id != proposal.topic_id):
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(proposal.partition) if topic is not None else None
    if partition is None or partition.leadership is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return partition


#: What ``_next_isr`` found, by all that it depends on but epochs.
Alike = dict[tuple[object, ...], "tuple[BrokerIds, DirectoryIds] | Verdict"]


def evaluate(
    cluster: Cluster, partition: Partition, sender: int, proposal: Proposal, alike: Alike | None = None
) -> Verdict:
    """Apply checks 2 to 8 to one proposal of broker ``sender``, against the cached leadership. ``alike``: for one who
    asks about many partitions, while brokers and disks stay as they are."""
    current = partition.leadership
    assert current is not None
    if verdict := _outdated_controller(cluster, current, proposal):
        return verdict
    if proposal.leader_epoch < current.leader_epoch:
        return Verdict(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"leader epoch {proposal.leader_epoch} is older than {current.leader_epoch}",
        )
    if (
        sender == current.leader
        and proposal.recovery == current.recovery
        and sorted(proposal.new_isr) == sorted(current.isr)
        and not _tells_more(cluster, current, proposal)
    ):
        return Verdict()
    if proposal.partition_epoch < current.partition_epoch:
        return Verdict(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"partition epoch {proposal.partition_epoch} is older than {current.partition_epoch}",
        )
    found = _next_isr(cluster, partition, sender, proposal, {} if alike is None else alike)
    if isinstance(found, Verdict):
        return found
    isr, directories = found
    return Verdict(
        new=LeaderAndIsr(
            current.leader,
            current.leader_epoch,
            isr,
            current.partition_epoch + 1,
            cluster.controller_epoch,
            proposal.recovery,
            directories,
        )
    )


def _next_isr(
    cluster: Cluster, partition: Partition, sender: int, proposal: Proposal, alike: Alike
) -> tuple[BrokerIds, DirectoryIds] | Verdict:
    """Checks 6 to 8: the ISR with its directories, or why it is refused. Thousands of partitions have one of few."""
    current = partition.leadership
    assert current is not None
    key = (
        sender,
        partition.replicas,
        current.leader,
        current.isr,
        current.directories,
        current.recovery,
        proposal.new_isr,
        proposal.recovery,
        proposal.isr_epochs,
        proposal.isr_directories,
        not proposal.topic_id,
    )
    found = None if cluster.offline_dirs else alike.get(key)
    if found is None:
        found = alike[key] = _checked(cluster, partition, current, sender, proposal)
    return found


def _checked(
    cluster: Cluster, partition: Partition, current: LeaderAndIsr, sender: int, proposal: Proposal
) -> tuple[BrokerIds, DirectoryIds] | Verdict:
    if problem := _invalid(partition, current, sender, proposal):
        return Verdict(ErrorCode.INVALID_REQUEST, problem)
    in_sync = members(current.isr)
    if stale := _stale(cluster, proposal):
        error = ErrorCode.INELIGIBLE_REPLICA if proposal.topic_id else ErrorCode.OPERATION_NOT_ATTEMPTED
        return Verdict(error, f"{ids_shown(stale)} registered anew since they got in sync")
    unfit = [b for b in proposal.new_isr if b not in in_sync and not cluster.is_online(partition, b)]
    if unfit:
        error = ErrorCode.INELIGIBLE_REPLICA if proposal.topic_id else ErrorCode.OPERATION_NOT_ATTEMPTED
        return Verdict(error, f"{ids_shown(unfit)} may not join the ISR: not online, or shutting down")
    return interned(proposal.new_isr), _directories(cluster, current, proposal)


def _stale(cluster: Cluster, proposal: Proposal) -> list[int]:
    """Check 8 (KIP-903): members whose broker epoch is not that of their registration. One that is not registered is
    left to check 7."""
    epochs = zip(proposal.new_isr, proposal.isr_epochs, strict=False)
    known = cluster.brokers
    return [b for b, epoch in epochs if epoch != NO_EPOCH and b in known and known[b].epoch != epoch]


def _directories(cluster: Cluster, current: LeaderAndIsr, proposal: Proposal) -> DirectoryIds:
    """Members that stay keep theirs. Of a new one the registration tells it, if that is the one it got in sync in. Of
    several, the leader may tell which it is."""
    if not current.directories and not proposal.isr_epochs:
        return ()
    stayed = dict(zip(current.isr, current.directories, strict=False))
    epochs = dict(zip(proposal.new_isr, proposal.isr_epochs, strict=False))
    told = dict(zip(proposal.new_isr, proposal.isr_directories, strict=False))
    in_sync = members(current.isr)
    found: list[int] = []
    for b in proposal.new_isr:
        in_this_epoch = epochs.get(b, NO_EPOCH) != NO_EPOCH
        known = stayed.get(b, 0) if b in in_sync or not in_this_epoch else cluster.directory_of(b)
        found.append(cluster.more_exactly(b, known, told[b]) if in_this_epoch and told.get(b) else known)
    return shared_directories(found)


def _tells_more(cluster: Cluster, current: LeaderAndIsr, proposal: Proposal) -> bool:
    """Whether it tells in which of its directories a member has its replica, and we do not know that yet."""
    if not any(proposal.isr_directories):
        return False
    found = _directories(cluster, current, proposal) or (0,) * len(proposal.new_isr)
    known = dict(zip(current.isr, current.directories, strict=False))
    return any(known.get(b, 0) != d for b, d in zip(proposal.new_isr, found, strict=True))


def _outdated_controller(cluster: Cluster, current: LeaderAndIsr, proposal: Proposal) -> Verdict | None:
    """Check 2: an epoch newer than ours proves a newer controller (KAFKA-14154)."""
    if (
        proposal.partition_epoch <= current.partition_epoch
        and proposal.leader_epoch <= current.leader_epoch
        and current.controller_epoch <= cluster.controller_epoch
    ):
        return None
    for what, theirs, ours in (
        ("partition epoch", proposal.partition_epoch, current.partition_epoch),
        ("leader epoch", proposal.leader_epoch, current.leader_epoch),
        ("stored controller epoch", current.controller_epoch, cluster.controller_epoch),
    ):
        if theirs > ours:
            return Verdict(ErrorCode.NOT_CONTROLLER, f"{what} {theirs} is newer than ours, {ours}")
    return None


def _invalid(partition: Partition, current: LeaderAndIsr, sender: int, proposal: Proposal) -> str:
    """Check 6: the problem as text; empty when the proposal may be stored."""
    isr = proposal.new_isr
    if sender != current.leader:
        return f"broker {sender} is not the leader, {current.leader} is"
    if proposal.recovery not in (RECOVERED, RECOVERING):
        return f"leader recovery state {proposal.recovery} must be 0 (RECOVERED) or 1 (RECOVERING)"
    if proposal.recovery == RECOVERING and len(isr) > 1:
        return "a leader that is RECOVERING is alone in its ISR"
    if proposal.recovery == RECOVERING and current.recovery == RECOVERED:
        return "RECOVERED does not become RECOVERING again"
    if sender not in isr:
        return f"the ISR {ids_shown(isr)} must contain its leader {sender}"
    if proposal.isr_epochs and len(proposal.isr_epochs) != len(isr):
        return f"{len(proposal.isr_epochs)} broker epochs are given for the {len(isr)} members of the ISR"
    if proposal.isr_directories and len(proposal.isr_directories) != len(isr):
        return f"{len(proposal.isr_directories)} directories are given for the {len(isr)} members of the ISR"
    if len(set(isr)) != len(isr):
        return f"the ISR {ids_shown(isr)} names a broker twice"
    assigned, in_sync = members(partition.replicas), members(current.isr)
    if foreign := [b for b in isr if b not in assigned and b not in in_sync]:
        return f"{ids_shown(foreign)} hold no replica, assigned are {ids_shown(partition.replicas)}"
    return ""


class _Item(msgspec.Struct, eq=False):
    """One proposal and its result."""

    sender: int
    proposal: Proposal
    partition: Partition | None = None
    error: ErrorCode = ErrorCode.NONE
    why: str = ""

    def refuse(self, error: ErrorCode, why: str) -> None:
        self.error, self.why = error, why

    def answer(self) -> Altered:
        """The result for the response; it has the stored state on success only."""
        asked = self.proposal
        known = self.partition.leadership if self.partition and self.error is ErrorCode.NONE else None
        return Altered(asked.topic, asked.partition, self.error, known)


def alter_partitions(context: EventContext, calls: Sequence[tuple[int, AlterPartition]]) -> Handler[None]:
    """Handle queued requests together, given as (serial, request); each gets its own reply.

    Then all brokers get UpdateMetadata of every named partition, changed or not, as in the original. No broker gets
    LeaderAndIsr: the leader gets the ISR in the reply, and followers do not need it. A separate event completes
    reassignments that waited for this ISR (reference, section 8.2).
    """
    answers: list[tuple[int, list[_Item]]] = []
    for serial, request in calls:
        broker = context.cluster.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            known = f"known is {broker.epoch}" if broker else "no such broker is registered"
            context.reject(
                ErrorCode.STALE_BROKER_EPOCH.name,
                f"AlterPartition of broker {request.broker_id} with broker epoch {request.broker_epoch}: {known}",
            )
            context.reply(serial, AlterPartitionReply(ErrorCode.STALE_BROKER_EPOCH))
        else:
            answers.append((serial, (yield from _items(request))))
    named: list[Partition] = []
    for part in context.parts([item for _, items in answers for item in items]):
        if context.gives_way:
            yield from context.give_way()
        named += yield from _altered(context, part)
    _record_refusals(context, [item for _, items in answers for item in items])
    for serial, items in answers:
        altered: list[Altered] = []
        for start in range(0, len(items), EXAMINED_MAX):
            altered += [item.answer() for item in items[start : start + EXAMINED_MAX]]
            yield Pause.YIELD
        context.reply(serial, AlterPartitionReply(ErrorCode.NONE, altered))
    isr_changed(context, named)


def _altered(context: EventContext, items: Sequence[_Item]) -> Handler[Iterable[Partition]]:
    """Decide, write and tell; the partitions that are named."""
    waiting = yield from _resolved(context, items)
    named = waiting.keys()
    # Several requests may name a partition: that takes several writes, one after the other.
    while waiting:
        yield from _round(context, {partition: asked.popleft() for partition, asked in waiting.items()})
        waiting = {partition: asked for partition, asked in waiting.items() if asked}
    context.push_metadata(named)
    return named


def _items(request: AlterPartition) -> Handler[list[_Item]]:
    """The proposals of one request. A partition is taken once: each of its repetitions is refused."""
    items: list[_Item] = []
    seen: set[tuple[str, str, int]] = set()
    for asked in request.proposals:
        if len(items) % EXAMINED_MAX == EXAMINED_MAX - 1:
            yield Pause.YIELD
        item = _Item(request.broker_id, asked)
        items.append(item)
        if (key := (asked.topic, asked.topic_id, asked.partition)) in seen:
            item.refuse(ErrorCode.INVALID_REQUEST, NAMED_TWICE)
        seen.add(key)
    return items


def _resolved(context: EventContext, items: Sequence[_Item]) -> Handler[dict[Partition, deque[_Item]]]:
    """The items that name a known partition; the others are refused."""
    known: dict[Partition, deque[_Item]] = {}
    for position, item in enumerate(items):
        if position % EXAMINED_MAX == EXAMINED_MAX - 1:
            yield Pause.YIELD
        if item.error is not ErrorCode.NONE:
            continue
        asked = item.proposal
        found = resolve(context.cluster, asked)
        if isinstance(found, Partition):
            item.partition = found
            known.setdefault(found, deque()).append(item)
        else:
            item.refuse(found, f"{asked.topic}-{asked.partition}, topic id {asked.topic_id or 'not given'}")
    return known


def _round(context: EventContext, items: Mapping[Partition, _Item]) -> Handler[None]:
    """Decide and write one proposal of each partition."""

    alike: Alike = {}

    def decide(partition: Partition) -> StateChange | None:
        item = items[partition]
        verdict = evaluate(context.cluster, partition, item.sender, item.proposal, alike)
        item.refuse(verdict.error, verdict.why)
        if verdict.new is None:
            return None
        assert partition.leadership is not None
        return StateChange(partition, partition.leadership, verdict.new)

    def overtaken(partition: Partition) -> StateChange | None:
        items[partition].refuse(ErrorCode.INVALID_UPDATE_VERSION, "another process wrote its state meanwhile")
        return None

    failed = yield from write_states(
        context, map(decide, items), lambda batch: _applied(context, batch), overtaken
    )
    for partition, why in failed.items():
        items[partition].refuse(_error_of(why), str(why))


def _applied(context: EventContext, batch: list[StateChange]) -> None:
    for change in batch:
        change.partition.leadership = change.new
    context.log([LeadershipChange(c.partition, c.old, c.new) for c in batch], "alter_partition")


def _error_of(why: Reason) -> ErrorCode:
    """The error code for a failed write."""
    match why:
        case StateGone():
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        case NewerController():
            return ErrorCode.NOT_CONTROLLER
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR


def _record_refusals(context: EventContext, items: Iterable[_Item]) -> None:
    """Record refusals by error, of each one only the first ``REFUSALS_RECORDED_MAX`` and the number of the others."""
    by_error: dict[ErrorCode, list[Rejection]] = {}
    more: Counter[ErrorCode] = Counter()
    for item in items:
        if item.error is not ErrorCode.NONE:
            recorded = by_error.setdefault(item.error, [])
            if len(recorded) == REFUSALS_RECORDED_MAX:
                more[item.error] += 1
                continue
            why = f"AlterPartition of broker {item.sender}: {item.why}"
            recorded.append(Rejection(item.error.name, why, item.partition))
    for error, rejections in by_error.items():
        if more[error]:
            rejections.append(
                Rejection(error.name, f"AlterPartition: {more[error]} more, which are not recorded")
            )
        context.log(rejections)
