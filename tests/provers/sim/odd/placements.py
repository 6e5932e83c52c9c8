"""Reassignments and elections that cannot be carried out as asked, and a topic that is moved to and fro."""

from __future__ import annotations

from collections.abc import Sequence

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2 as codes
from tests.provers.sim.actors.operators import REASON
from tests.provers.sim.checks.refusals import NOBODY, REFUSED
from tests.provers.sim.odd.asking import DONE, INVALID, Asker, Case, Codes
from tests.provers.sim.odd.topics import LISTS, NAME, UNKNOWN, creation, deletion, lists, topic
from tests.provers.sim.plans.plan import TOPICS

NOT_MOVING: Codes = (codes.NO_REASSIGNMENT_IN_PROGRESS,)
NOT_NEEDED: Codes = (codes.ELECTION_NOT_NEEDED,)
NOT_AVAILABLE: Codes = (codes.PREFERRED_LEADER_NOT_AVAILABLE, codes.ELIGIBLE_LEADERS_NOT_AVAILABLE)
_UNWRITTEN: Codes = (codes.UNKNOWN_SERVER_ERROR,)
_NO_TYPE = 9
#: How long a scenario lets things go on, virtual seconds.
_WHILE_S = (0.0, 0.05, 0.5)


def move(name: str, number: int, ids: Sequence[int] | None) -> pb.ReassignablePartition:
    replicas = None if ids is None else pb.ReplicaList(broker_ids=ids)
    return pb.ReassignablePartition(topic=name, partition=number, replicas=replicas)


def moves(*wanted: pb.ReassignablePartition, parts: Sequence[Codes]) -> Case:
    request = pb.AlterPartitionReassignmentsRequest(partitions=wanted, reason=REASON)
    return Case("AlterPartitionReassignments", request, parts)


async def refused_moves(asker: Asker) -> None:
    """What is wrong whatever there is comes first, so that it is told of topics that are there and of others."""
    name, number = asker.rng.choice((*TOPICS, asker.refused())), asker.rng.randrange(3)
    for ids in ([], [NOBODY, NOBODY], [-1], [NOBODY], list(range(NOBODY, NOBODY + 1500))):
        await asker.ask(moves(move(name, number, ids), parts=[LISTS]))
    unknown = asker.refused()
    await asker.ask(
        moves(
            move(unknown, 0, asker.ids[:1]),
            move(unknown, 0, asker.ids[:1]),
            move(unknown, 1, None),
            move(unknown, 1, None),
            parts=[(*UNKNOWN, *LISTS), INVALID, UNKNOWN, INVALID],
        )
    )


async def to_and_fro(asker: Asker) -> None:
    """A topic of its own is moved, moved elsewhere before it is there, and back; meanwhile it is expanded, deleted."""
    name = f"odd_{asker.serial}"
    try:
        await _moved(asker, name)
    finally:
        gone = (*DONE, *UNKNOWN, *_UNWRITTEN)
        await asker.ask(deletion(pb.DeletableTopic(name=name), parts=[gone]), tidying=True)


async def _moved(asker: Asker, name: str) -> None:
    rng, ids = asker.rng, asker.ids
    first = rng.sample(ids, rng.randint(1, min(2, len(ids))))
    exists = (codes.TOPIC_ALREADY_EXISTS,)
    made = await asker.ask(
        creation(topic(name, assignments=lists(first)), parts=[(*DONE, *_UNWRITTEN, *exists)])
    )
    if made is None or made.topics[0].error_code:
        return
    if not asker.again:
        await asker.ask(moves(move(name, 0, None), parts=[NOT_MOVING]))
    await asker.ask(moves(move(name, 7, first), move(name, 8, None), parts=[(*UNKNOWN, *LISTS), UNKNOWN]))
    for _ in range(rng.randint(1, 4)):
        target = rng.choice((None, first, rng.sample(ids, rng.randint(1, min(3, len(ids))))))
        allowed = (*NOT_MOVING, *LISTS) if target is None else LISTS
        asked = await asker.ask(moves(move(name, 0, target), parts=[(*DONE, *_UNWRITTEN, *allowed)]))
        if asked is not None and not asked.responses[0].error_code and target is not None and not asker.again:
            _check_moving(asker, name, target)
        listing = pb.ListPartitionReassignmentsRequest()
        if rng.random() < 0.5:
            listing.partitions.add(topic=name, partition=0)
            listing.partitions.add(topic=asker.refused(), partition=0)
        await asker.ask(Case("ListPartitionReassignments", listing))
        await asker.pass_s(rng.choice(_WHILE_S))
    if rng.random() < 0.5:
        wanted = pb.NewPartitions(name=name, count=2)
        request = pb.CreatePartitionsRequest(topics=[wanted], validate_only=rng.random() < 0.5)
        busy = (codes.REASSIGNMENT_IN_PROGRESS, codes.INVALID_REPLICATION_FACTOR, codes.INVALID_PARTITIONS)
        await asker.ask(Case("CreatePartitions", request, [(*DONE, *_UNWRITTEN, *busy)]))


def _check_moving(asker: Asker, name: str, target: Sequence[int]) -> None:
    """What was granted is durable: the new replicas are there, or it waits for its turn, if something holds it up."""
    found = asker.cluster.ledger.topics.get(name)
    waits = found is not None and found.queued.get(0) == tuple(target) and _held_up(asker)
    if found is None or not (waits or set(target) <= set(found.partitions[0])):
        asker.cluster.violated(f"{name} is {found}: a reassignment to {list(target)} was granted")


def _held_up(asker: Asker) -> bool:
    """Whether moves wait: at most so many go on at a time, or automatic work is or was suspended."""
    return asker.cluster.ledger.was_suspended or asker.cluster.plan.options.moves_max > 0


# elections


def election(
    kind: int,
    *partitions: tuple[str, int],
    parts: Sequence[Codes] | None = (),
    whole: Codes = DONE,
    leader: int | None = None,
    everything: bool = False,
) -> Case:
    named = [codes.PartitionName(topic=name, partition=number) for name, number in partitions]
    request = pb.ElectLeadersRequest(
        election_type=kind,  # type: ignore[arg-type]
        topic_partitions=named,
        all_partitions=everything,
        leader=leader,
        reason=REASON,
    )
    return Case("ElectLeaders", request, parts, whole)


async def refused_elections(asker: Asker) -> None:
    rng, unknown = asker.rng, (asker.refused(), 0)
    known = (rng.choice(TOPICS), rng.randrange(2))
    for case in (
        election(_NO_TYPE, unknown, whole=INVALID),
        election(pb.CHOSEN, unknown, whole=INVALID),
        election(pb.PREFERRED, unknown, whole=INVALID, leader=1),
        election(pb.CHOSEN, whole=INVALID, leader=1, everything=True),
        election(pb.PREFERRED, whole=INVALID),
        election(pb.PREFERRED, unknown, whole=INVALID, everything=True),
        election(pb.PREFERRED, unknown, unknown, parts=[UNKNOWN]),
        election(pb.CHOSEN, unknown, leader=1, parts=[UNKNOWN]),
        election(pb.CHOSEN, known, leader=NOBODY, parts=[(*INVALID, *UNKNOWN, *NAME, *NOT_AVAILABLE)]),
    ):
        await asker.ask(case)
    answer = await asker.ask(election(pb.PREFERRED, everything=True, parts=None))
    for found in answer.results if answer is not None else ():
        if found.error_code in (*NOT_NEEDED, *UNKNOWN) or REFUSED in found.topic:
            asker.cluster.violated(f"of an election of all, {found} was told")


async def elections_twice(asker: Asker) -> None:
    """An election is held, and then there is no need for another."""
    kind = asker.rng.choice((pb.PREFERRED, pb.UNCLEAN))
    name, number = asker.rng.choice(TOPICS), asker.rng.randrange(2)
    anything = (*DONE, *NOT_NEEDED, *NOT_AVAILABLE, *UNKNOWN, *NAME, *_UNWRITTEN)
    if kind == pb.UNCLEAN and not asker.cluster.ledger.unclean_possible:
        return
    await asker.ask(election(kind, (name, number), parts=[anything]))
    again = await asker.ask(election(kind, (name, number), parts=[anything]))
    for found in again.results if again is not None else ():
        if found.error_code in (*DONE, *NOT_NEEDED) and found.leader not in asker.ids:
            asker.cluster.violated(f"an election of {kind} was held, and nobody leads: {found}")
