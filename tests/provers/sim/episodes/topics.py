"""Topics whose writes somebody else is always ahead of, moves that cannot go on, and a broker that is given up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2 as codes
from proto.gen import maintenance_pb2 as maintenance
from tests.provers.sim.episodes.calm import UNWRITTEN, Calm
from tests.provers.sim.odd.asking import DONE, INVALID, Case
from tests.provers.sim.odd.configs import alter, alteration
from tests.provers.sim.odd.placements import NOT_AVAILABLE, NOT_MOVING, NOT_NEEDED, election, move, moves
from tests.provers.sim.odd.topics import EXISTS, LISTS, UNKNOWN, creation, lists, topic
from tests.provers.sim.zookeeper.messages import Delete

_SAID: dict[str, Any] = {"author": "operator", "reason": "simulated"}
_WHILE_S = (0.0, 0.05, 1.0)
#: What is written while a topic is created, and by whom.
_WHILE_CREATED = (
    ("config", ("busy",)),
    ("topic", ("created_first", "created_alike", "touched")),
    ("topic", ("touched",)),
    ("state", ("created_first", "touched")),
)


async def never_first(asker: Calm) -> None:
    """A topic is created, configured, expanded, led by another and deleted; each time somebody may write before it."""
    rng, name = asker.rng, asker.name()
    replicas = rng.sample(asker.ids, min(2, len(asker.ids)))
    what, rivals = rng.choice(_WHILE_CREATED)
    asker.thwart((what,), rivals)
    if rng.random() < 0.5:
        asker.cluster.operator.begin("create", (name, (tuple(replicas),), True))
    else:
        await asker.ask(
            creation(topic(name, assignments=lists(replicas)), parts=[(*DONE, *UNWRITTEN, *EXISTS)])
        )
    await asker.pass_s(rng.choice(_WHILE_S))
    asker.thwart(("config",))
    configured = alteration(pb.TOPIC, name, ("retention.ms", "7200000"))
    if await asker.granted(alter(configured, parts=[(*DONE, *UNWRITTEN, *UNKNOWN)])):
        _check_configured(asker, name)
    count = len(asker.partitions(name))
    uneven = pb.NewPartitions(
        name=name,
        count=count + 1,
        assignments=[pb.ReplicaList(broker_ids=asker.ids[: len(replicas) % 2 + 1])],
    )
    refused = (*LISTS, *UNKNOWN, codes.INVALID_PARTITIONS, *(DONE if len(asker.ids) == 1 else ()))
    await asker.ask(Case("CreatePartitions", pb.CreatePartitionsRequest(topics=[uneven]), [refused]))
    count = len(asker.partitions(name))
    asker.thwart(("topic",))
    grown = pb.NewPartitions(name=name, count=count + 1)
    allowed = (*DONE, *UNWRITTEN, *UNKNOWN, codes.INVALID_PARTITIONS)
    request = pb.CreatePartitionsRequest(topics=[grown])
    if (
        await asker.granted(Case("CreatePartitions", request, [allowed]))
        and len(asker.partitions(name)) <= count
    ):
        asker.cluster.violated(f"{name} was to have {count + 1} partitions, and has {asker.partitions(name)}")
    asker.thwart(("state",), ("touched", "led_by_another", "newer", "scribbled", "bereft", "unanswered"))
    # By somebody else it may have been given to others.
    anything = (*DONE, *INVALID, *NOT_NEEDED, *NOT_AVAILABLE, *UNKNOWN, *UNWRITTEN)
    await asker.ask(election(pb.CHOSEN, (name, 0), leader=replicas[-1], parts=[anything]))
    asker.thwart(("topic", "state", "deletion"), ("littered", "touched", "busy"))
    await asker.delete(name)
    await asker.pass_s(rng.choice(_WHILE_S))


def _check_configured(asker: Calm, name: str) -> None:
    found = json.loads(asker.cluster.stored(f"/config/topics/{name}") or b"{}")
    if found.get("config", {}).get("retention.ms") != "7200000":
        asker.cluster.violated(f"a setting of {name} was granted, and stored is {found}")


async def moves_held_up(asker: Calm) -> None:
    """Two topics move to a broker that follows nobody, at once or one after the other; they are moved elsewhere, taken
    back, or their topic is deleted."""
    rng, ids = asker.rng, asker.ids
    names = [asker.name("a"), asker.name("b")]
    held, *others = rng.sample(ids, len(ids))
    if not others:
        return
    for name in names:
        await asker.made(name, others[:1])
    frozen = rng.random() < 0.4
    if frozen:
        await asker.ask(_freeze(asker, frozen=True))
    # Both move: one of them waits, where only one may move at a time.
    harmless = rng.random() < 0.6
    with asker.held_back(held):
        for name in names:
            await _ask_to_move(asker, name, [held])
        for _ in range(rng.randint(2, 6)):
            if not harmless:
                asker.thwart(("topic", "state"))
            await _something(asker, rng.choice(names), held, others)
            await asker.pass_s(rng.choice(_WHILE_S))
    if frozen:
        await asker.ask(_freeze(asker, frozen=False))
    for name in names:
        await asker.delete(name)


async def _something(asker: Calm, name: str, held: int, others: Sequence[int]) -> None:
    """About a topic that moves from the first of the others to who is held back, or waits for that."""
    what = asker.rng.choice(("again", "elsewhere", "back", "back", "listed", "alone", "deleted"))
    if what == "deleted":
        await asker.delete(name)
        if asker.rng.random() < 0.5:
            anew = creation(topic(name, assignments=lists(others[:1])), parts=[(*DONE, *UNWRITTEN, *EXISTS)])
            await asker.ask(anew)
        await asker.pass_s(asker.rng.choice(_WHILE_S))
        _once_deleted(asker, name)
    elif what == "back":
        await _take_back(asker, name)
    elif what == "alone":
        # Who has it now dies, and with it whoever could give it to others.
        with asker.gone(others[0]):
            await asker.pass_s(asker.rng.choice((0.0, 2 * asker.session_s)))
            await _take_back(asker, name)
    elif what == "listed":
        asker.cluster.operator.begin("reassign", (name, 0, (*others[:2], *others[:1]), True))
        await asker.pass_s(0.5)
        asker.cluster.operator.begin("reassign", (name, 0, tuple(others[:2]), True))
    else:
        ids = asker.ids
        target = [held] if what == "again" else asker.rng.sample(ids, min(2, len(ids)))
        await _ask_to_move(asker, name, target)


def _once_deleted(asker: Calm, name: str) -> None:
    """While its deletion waits, somebody expands it, or takes the request back."""
    path = f"/brokers/topics/{name}"
    if asker.rng.random() < 0.5 or not asker.cluster.stored(path):
        asker.cluster.ask_zookeeper(Delete(f"/admin/delete_topics/{name}"))
        return

    def expanded(value: dict[str, Any]) -> None:
        value["partitions"][str(len(value["partitions"]))] = value["partitions"]["0"]

    asker.edit(path, expanded)


async def _ask_to_move(asker: Calm, name: str, target: Sequence[int]) -> None:
    parts = [(*DONE, *UNWRITTEN, *UNKNOWN, *LISTS)]
    if not await asker.granted(moves(move(name, 0, target), parts=parts)):
        return
    found = asker.cluster.ledger.topics.get(name)
    if found and found.queued.get(0) != tuple(target) and not set(target) <= set(found.partitions[0]):
        asker.cluster.violated(f"{name} is {found}: a move to {list(target)} was granted")


async def _take_back(asker: Calm, name: str) -> None:
    """What is taken back leaves the replicas as they were before, in their order; but where none of them is in sync any
    more, it has ended, and only could not be recorded."""
    before, led = asker.stored_topic(name), asker.cluster.ledger.states.get((name, 0))
    parts = [(*DONE, *NOT_MOVING, *UNWRITTEN, *UNKNOWN, *LISTS)]
    if not await asker.granted(moves(move(name, 0, None), parts=parts)):
        return
    after = asker.stored_topic(name)
    former = before.get("original_replicas", {}).get("0") or before.get("partitions", {}).get("0")
    ended = led is not None and former is not None and set(led.isr).isdisjoint(former)
    if (
        after
        and not ended
        and (after["partitions"]["0"] != former or (after.get("queued_replicas") or {}).get("0"))
    ):
        asker.cluster.violated(f"the move of {name} was taken back: it was {before}, and is {after}")


def _freeze(asker: Calm, *, frozen: bool) -> Case:
    until_ms = 4_102_444_800_000 if frozen else 0
    request = maintenance.SetFreezeRequest(frozen=frozen, until_ms=until_ms, **_SAID)
    return Case("SetFreeze", request, whole=(*DONE, *UNWRITTEN))


async def given_up(asker: Calm) -> None:
    """A broker is forgotten while a topic of it is deleted, which may be there again when it comes back; what is said
    of it is always written by others, too."""
    rng = asker.rng
    id_, name = rng.choice(asker.ids), asker.name()
    whole = [id_, *(b for b in asker.ids if b != id_)][: rng.randint(1, 3)]
    if not await asker.made(name, whole, whole[::-1]):
        return
    request = maintenance.ForgetBrokerRequest(broker_id=id_, **_SAID)
    with asker.gone(id_):
        await asker.pass_s(2 * asker.session_s + 0.2)
        asker.thwart(("ours",))
        allowed = (*DONE, *UNWRITTEN, codes.POLICY_VIOLATION, codes.BROKER_NOT_AVAILABLE)
        await asker.ask(Case("ForgetBroker", request, whole=allowed))
        await asker.ask(Case("ForgetBroker", request, whole=allowed))
        asker.thwart(("ours", "topic"), ("busy", "touched", "littered", "unanswered"))
        await asker.delete(name)
        await asker.pass_s(rng.choice((0.2, 3.0)))
        if rng.random() < 0.4:
            placed = creation(
                topic(name, assignments=lists([id_])), parts=[(*LISTS, *DONE, *EXISTS, *UNWRITTEN)]
            )
            await asker.ask(placed)
        if rng.random() < 0.3:
            asker.cluster.operator.begin("create", (name, ((id_,),), True))
        asker.thwart(("ours",))
    await asker.pass_s(1.0)
    await asker.delete(name)
