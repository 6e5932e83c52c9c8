"""Topics that cannot be created, expanded or deleted as asked, and the life of one that can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2 as codes
from tests.provers.sim.actors.operators import REASON
from tests.provers.sim.checks.refusals import NOBODY, REFUSED
from tests.provers.sim.odd.asking import DONE, INVALID, Asker, Case, Codes

NAME: Codes = (codes.INVALID_TOPIC_EXCEPTION,)
COUNT: Codes = (codes.INVALID_PARTITIONS,)
FACTOR: Codes = (codes.INVALID_REPLICATION_FACTOR,)
LISTS: Codes = (codes.INVALID_REPLICA_ASSIGNMENT,)
CONFIG: Codes = (codes.INVALID_CONFIG,)
EXISTS: Codes = (codes.TOPIC_ALREADY_EXISTS,)
UNKNOWN: Codes = (codes.UNKNOWN_TOPIC_OR_PARTITION,)
UNKNOWN_ID: Codes = (codes.UNKNOWN_TOPIC_ID,)
_NOT_GIVEN = -1


def lists(*replicas: Sequence[int], first: int = 0) -> dict[int, pb.ReplicaList]:
    return {number: pb.ReplicaList(broker_ids=ids) for number, ids in enumerate(replicas, first)}


def topic(
    name: str,
    partitions: int = _NOT_GIVEN,
    factor: int = _NOT_GIVEN,
    assignments: Mapping[int, pb.ReplicaList] | None = None,
    configs: Mapping[str, str] | None = None,
) -> pb.CreatableTopic:
    return pb.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=assignments or {},
        configs=configs or {},
    )


#: Each by what it has beside its name.
_WRONG: tuple[tuple[Codes, dict[str, Any]], ...] = (
    (COUNT, {"partitions": 0}),
    (COUNT, {"partitions": -7, "factor": 1}),
    (COUNT, {"partitions": 400_000}),
    (FACTOR, {"partitions": 2, "factor": 0}),
    (FACTOR, {"factor": 99}),
    (INVALID, {"partitions": 1, "assignments": lists((1,))}),
    (INVALID, {"factor": 1, "assignments": lists((1,))}),
    (LISTS, {"assignments": lists((NOBODY, NOBODY))}),
    (LISTS, {"assignments": lists((1,), (1, NOBODY))}),
    (LISTS, {"assignments": lists(())}),
    (LISTS, {"assignments": lists((-1,))}),
    (LISTS, {"assignments": lists((1,), first=1)}),
    (LISTS, {"assignments": lists(range(NOBODY, NOBODY + 1500))}),
    (CONFIG, {"assignments": lists((1,)), "configs": {"retention.ms": REFUSED}}),
    (CONFIG, {"assignments": lists((1,)), "configs": {"cleanup.policy": REFUSED}}),
    (CONFIG, {"assignments": lists((1,)), "configs": {"min.cleanable.dirty.ratio": REFUSED}}),
    (CONFIG, {"assignments": lists((1,)), "configs": {"min.insync.replicas": "0", " ": REFUSED}}),
    (CONFIG, {"assignments": lists((1,)), "configs": {"preallocate": REFUSED}}),
    (CONFIG, {"assignments": lists((1,)), "configs": {"leader.replication.throttled.replicas": REFUSED}}),
)
_NAMES = ("", ".", "..", f"{REFUSED}!", f"{REFUSED}/0", REFUSED * 40)


def creation(*topics: pb.CreatableTopic, parts: Sequence[Codes], trying: bool = False) -> Case:
    return Case("CreateTopics", pb.CreateTopicsRequest(topics=topics, validate_only=trying), parts)


def deletion(*topics: pb.DeletableTopic, parts: Sequence[Codes]) -> Case:
    return Case("DeleteTopics", pb.DeleteTopicsRequest(topics=topics, reason=REASON), parts)


async def refused_topics(asker: Asker) -> None:
    """Some of what is wrong in any state of the cluster, each in a request of its own or together with others."""
    rng = asker.rng
    wrong: list[tuple[Codes, pb.CreatableTopic]] = [
        (expected, topic(f"{asker.refused()}-{number}", **fields))
        for number, (expected, fields) in enumerate(_WRONG)
    ]
    wrong += [(NAME, topic(name, 1, 1)) for name in _NAMES]
    some = rng.sample(wrong, 8)
    await asker.ask(creation(*(t for _, t in some[:5]), parts=[expected for expected, _ in some[:5]]))
    for expected, one in some[5:]:
        await asker.ask(creation(one, parts=[expected], trying=rng.random() < 0.3))
    twice = topic(asker.refused(), 1, 1)
    await asker.ask(creation(twice, twice, parts=[INVALID, INVALID]))
    # Valid ones that are only to be tried.
    await asker.ask(creation(topic(asker.refused(), 3, 1), parts=[(*DONE, *FACTOR)], trying=True))
    by_hand = topic(asker.refused(), assignments=lists((1,)))
    await asker.ask(creation(by_hand, parts=[DONE], trying=True))


async def refused_deletions(asker: Asker) -> None:
    unknown = asker.refused()
    id_ = "AAAAAAAAAAAAAAAAAAAAAQ"
    neither, both = pb.DeletableTopic(), pb.DeletableTopic(name=unknown, topic_id=id_)
    await asker.ask(
        deletion(
            neither,
            both,
            pb.DeletableTopic(topic_id=id_),
            pb.DeletableTopic(name=unknown),
            pb.DeletableTopic(name=f"{REFUSED}!"),
            parts=[INVALID, INVALID, UNKNOWN_ID, (*UNKNOWN, *INVALID), UNKNOWN],
        )
    )
    twice = pb.DeletableTopic(name=asker.refused())
    await asker.ask(deletion(twice, twice, parts=[INVALID, INVALID]))


def _expansion(name: str, count: int, *replicas: Sequence[int]) -> pb.NewPartitions:
    return pb.NewPartitions(
        name=name, count=count, assignments=[pb.ReplicaList(broker_ids=ids) for ids in replicas]
    )


def _expansions(*wanted: pb.NewPartitions, parts: Sequence[Codes], trying: bool = False) -> Case:
    request = pb.CreatePartitionsRequest(topics=wanted, validate_only=trying)
    return Case("CreatePartitions", request, parts)


async def refused_expansions(asker: Asker) -> None:
    unknown, twice = asker.refused(), _expansion(f"{REFUSED}-twice", 3)
    wanted = [twice, twice, _expansion(f"{REFUSED}!", 3), _expansion(unknown, 3)]
    await asker.ask(_expansions(*wanted, parts=[INVALID, INVALID, NAME, UNKNOWN]))


async def life_of_a_topic(asker: Asker) -> None:
    """Nobody else touches it: what there is, is known, as long as every request is answered."""
    name = f"odd_{asker.serial}"
    try:
        await _live(asker, name)
    finally:
        unknown = (*DONE, *UNKNOWN, codes.UNKNOWN_SERVER_ERROR)
        await asker.ask(deletion(pb.DeletableTopic(name=name), parts=[unknown]), tidying=True)


async def _live(asker: Asker, name: str) -> None:
    made = await _made(asker, name)
    if made is None:
        return
    factor = len(made[0])
    other = name.replace("_", ".")
    await asker.ask(creation(topic(name, 1, 1), topic(other, 1, 1), parts=[EXISTS, NAME]))
    count = len(made)
    fewer: Codes = (*COUNT, *_moving(asker))
    for wanted, allowed in (
        (_expansion(name, count), fewer),
        (_expansion(name, 0), fewer),
        (_expansion(name, count + 1, *[[NOBODY] * factor]), LISTS),
        (_expansion(name, count + 1, *[[NOBODY + k for k in range(factor)]]), LISTS),
        (_expansion(name, count + 2, asker.ids[:factor]), LISTS),
        (_expansion(name, count + 1, asker.ids[:factor], asker.ids[:factor]), LISTS),
        (_expansion(name, count + 1, [*asker.ids[:factor], NOBODY]), LISTS),
    ):
        await asker.ask(_expansions(wanted, parts=[allowed], trying=asker.rng.random() < 0.2))
    await asker.ask(_expansions(_expansion(name, count + 1), parts=[(*DONE, *FACTOR)], trying=True))
    if len(asker.cluster.ledger.topics[name].partitions) != count:
        asker.cluster.violated(f"{name} has grown by requests that were refused or only tried")
    added = await asker.ask(
        _expansions(_expansion(name, count + 1), parts=[_written(asker, *FACTOR, *COUNT)])
    )
    if added is not None and not added.results[0].error_code:
        _check_there(asker, name, dict(made) | _replicas(added.results[0]))
    by_id = pb.DeletableTopic(topic_id=asker.cluster.ledger.topics[name].id)
    await asker.ask(deletion(by_id, pb.DeletableTopic(name=name), parts=[INVALID, INVALID]))
    deleted = await asker.ask(deletion(by_id, parts=[_written(asker)]))
    if deleted is not None and not deleted.responses[0].error_code:
        await _while_deleted(asker, name, count)


async def _while_deleted(asker: Asker, name: str, count: int) -> None:
    """It is gone, or waits for its deletion."""
    marked = (
        name in asker.cluster.nodes_below("/admin/delete_topics") or name not in asker.cluster.ledger.topics
    )
    if not marked:
        asker.cluster.violated(f"{name} was to be deleted, and is neither marked nor gone")
    await asker.ask(Case("ListTopicDeletions", pb.ListTopicDeletionsRequest()))
    await asker.ask(_expansions(_expansion(name, count + 2), parts=[(*NAME, *UNKNOWN)]))


async def _made(asker: Asker, name: str) -> dict[int, tuple[int, ...]] | None:
    """Its assignment; None: it is not there, or nobody knows."""
    rng, ids = asker.rng, asker.ids
    count, factor = rng.randint(1, 2), rng.randint(1, min(3, len(ids)))
    configs = rng.choice(({}, {"retention.ms": "3600000"}))
    how = rng.choice(("counts", "lists", "defaults"))
    if how == "lists":
        wanted = topic(
            name, assignments=lists(*(rng.sample(ids, factor) for _ in range(count))), configs=configs
        )
    elif how == "counts":
        wanted = topic(name, count, factor, configs=configs)
    else:
        wanted, count, factor = topic(name, configs=configs), 1, 1
    answer = await asker.ask(creation(wanted, parts=[_written(asker, *FACTOR, *EXISTS)]))
    if answer is None or answer.topics[0].error_code:
        return None
    made = _replicas(answer.topics[0])
    placed = {number: tuple(found.broker_ids) for number, found in wanted.assignments.items()}
    if (placed and made != placed) or len(made) != count or any(len(set(r)) != factor for r in made.values()):
        asker.cluster.violated(f"{name} was created as {made}: asked was {wanted}")
    _check_there(asker, name, made)
    return made


def _written(asker: Asker, *others: int) -> Codes:
    """What may be said to a request for which a write is needed. ``others``: in some states of the cluster."""
    again = (*EXISTS, *COUNT, *UNKNOWN_ID) if asker.again else ()
    return (*DONE, codes.UNKNOWN_SERVER_ERROR, *others, *again)


def _moving(asker: Asker) -> Codes:
    return (codes.REASSIGNMENT_IN_PROGRESS,) if asker.again else ()


def _replicas(answer: Any) -> dict[int, tuple[int, ...]]:
    return {number: tuple(found.broker_ids) for number, found in answer.assignments.items()}


def _check_there(asker: Asker, name: str, made: Mapping[int, tuple[int, ...]]) -> None:
    """What was granted is durable."""
    found = asker.cluster.ledger.topics.get(name)
    if found is None or dict(found.partitions) != dict(made):
        asker.cluster.violated(f"{name} is {found}: granted was {made}")
