"""Moves of which one new replica is in sync and another is not, and what may still be asked for then."""

from __future__ import annotations

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as service
from proto.gen import maintenance_pb2 as maintenance
from tests.provers.sim.episodes.calm import UNWRITTEN, Calm
from tests.provers.sim.odd.asking import DONE, Case
from tests.provers.sim.odd.placements import NOT_AVAILABLE, NOT_MOVING, NOT_NEEDED, election, move, moves
from tests.provers.sim.odd.topics import LISTS, UNKNOWN
from tests.provers.sim.zookeeper.messages import Exists, Stat

_SETTLED_S = 20.0


async def last_in_sync_was_added(asker: Calm) -> None:
    """Of the replicas that there were none is in sync any more: to take the move back would lose what they hold."""
    if len(asker.ids) < 3:
        return
    before, added, slow = asker.rng.sample(asker.ids, 3)
    name, cluster = asker.name(), asker.cluster
    if not await asker.made(name, [before]):
        return

    def isr() -> set[int]:
        state = cluster.ledger.states.get((name, 0))
        return set(state.isr) if state is not None else set()

    said = (*DONE, *UNWRITTEN)
    with asker.held_back(slow):
        if not await asker.granted(moves(move(name, 0, [added, slow]), parts=[said])):
            return
        await asker.until(f"{added} is in sync", _SETTLED_S, lambda: added in isr())
        if asker.rng.random() < 0.5:
            chosen = election(
                pb.CHOSEN, (name, 0), leader=added, parts=[(*said, *NOT_NEEDED, *NOT_AVAILABLE)]
            )
            await asker.ask(chosen)
        if asker.rng.random() < 0.7:
            with asker.gone(before):
                await asker.until(f"{before} is out of sync", _SETTLED_S, lambda: before not in isr())
                refused = (*LISTS, *UNWRITTEN)
                for target in (None, [before]):
                    if target is None or asker.rng.random() < 0.5:
                        parts = [refused if target is None else (*said, *LISTS)]
                        await asker.ask(moves(move(name, 0, target), parts=parts))
                cluster.operator.begin("reassign", (name, 0, (before,), True))
                await asker.pass_s(0.5)
        else:
            await asker.ask(moves(move(name, 0, None), parts=[(*said, *NOT_MOVING)]))
    if not isr():
        cluster.violated(f"{name} has nobody in sync")
    await asker.delete(name)


async def never_led(asker: Calm) -> None:
    """A topic is made on a broker that is gone: it has no state, whatever is asked for, until somebody can lead it."""
    gone, *others = asker.rng.sample(asker.ids, len(asker.ids))
    name = asker.name()
    anything = (*DONE, *UNWRITTEN, *NOT_NEEDED, *NOT_AVAILABLE, *UNKNOWN, codes.INVALID_REQUEST)
    with asker.gone(gone):
        await asker.pass_s(2 * asker.session_s + 0.2)
        if not await asker.made(name, [gone]):
            return
        for kind in (pb.PREFERRED, pb.UNCLEAN):
            answer = await asker.ask(election(kind, (name, 0), parts=[anything]))
            if answer is not None and not answer.results[0].error_code:
                asker.cluster.violated(f"nobody can lead {name}, and an election was granted: {answer}")
        asker.cluster.operator.begin("elect_preferred", (name, 0, True))
        await asker.pass_s(0.3)
        if others and asker.rng.random() < 0.7:
            # Whoever gets it now may lead it: there is nothing to lose.
            await asker.ask(moves(move(name, 0, others[:1]), parts=[(*DONE, *UNWRITTEN, *LISTS)]))
            if asker.rng.random() < 0.5:
                await asker.ask(moves(move(name, 0, None), parts=[(*DONE, *UNWRITTEN, *NOT_MOVING, *LISTS)]))
        if asker.rng.random() < 0.3:
            await asker.delete(name)
            await asker.pass_s(0.3)
    await asker.pass_s(1.0)
    await asker.delete(name)


async def asked_to_leave_twice(asker: Calm) -> None:
    """A broker asks twice to be let go, and stays after all; meanwhile somebody wants to have it forgotten, elected and
    moved to."""
    cluster, rng = asker.cluster, asker.rng
    id_, name = rng.choice(asker.ids), asker.name()
    replicas = [id_, *(b for b in asker.ids if b != id_)]
    await asker.made(name, replicas[:2], replicas[:2][::-1])
    registered = cluster.ask_zookeeper(Exists(f"/brokers/ids/{id_}"))
    if not isinstance(registered, Stat):
        return
    cluster.shutdown_undone = True
    leaving = Case(
        "ControlledShutdown",
        service.ControlledShutdownRequest(broker_id=id_, broker_epoch=registered.czxid),
        whole=(*DONE, *UNWRITTEN),
        certificate=f"broker-{id_}",
    )
    for _ in range(2):
        await asker.ask(leaving)
        await asker.pass_s(rng.choice((0.0, 0.3)))
    anything = (*DONE, *UNWRITTEN, *NOT_NEEDED, *NOT_AVAILABLE, *UNKNOWN, codes.INVALID_REQUEST)
    await asker.ask(election(pb.CHOSEN, (name, 0), leader=id_, parts=[anything]))
    if rng.random() < 0.5:
        await asker.ask(moves(move(name, 1, replicas[1:2] or [id_]), parts=[(*DONE, *UNWRITTEN, *LISTS)]))
    stays = maintenance.CancelShutdownRequest(broker_id=id_, broker_epoch=registered.czxid)
    await asker.ask(Case("CancelShutdown", stays, whole=(*DONE, *UNWRITTEN, codes.STALE_BROKER_EPOCH)))
    await asker.pass_s(1.0)
    await asker.delete(name)


async def while_paused(asker: Calm) -> None:
    """Elections are paused while moves are listed, a leader dies, a state is edited, and a topic is to be deleted.
    All of that is done once they are resumed."""
    rng, cluster = asker.rng, asker.cluster
    replicas = rng.sample(asker.ids, min(2, len(asker.ids)))
    name, other = asker.name("a"), asker.name("b")
    await asker.made(name, replicas)
    await asker.made(other, replicas[::-1])
    await asker.ask(_pause(paused=True))
    cluster.operator.begin("reassign", (name, 0, tuple(replicas[::-1]), True))
    await asker.pass_s(0.3)
    with asker.gone(replicas[0]):
        await asker.pass_s(2 * asker.session_s + 0.2)
        cluster.operator.begin("reassign", (name, 0, tuple(replicas), True))
        cluster.faults.edit_state(other, 0, rng.random() < 0.5)
        await asker.pass_s(rng.choice((0.3, 3.0)))
        await asker.delete(other)
        if rng.random() < 0.5:
            cluster.operator.begin("reassign", (other, 0, tuple(replicas[:1]), True))
        await asker.pass_s(0.3)
    await asker.ask(_pause(paused=False))
    await asker.pass_s(1.0)
    await asker.delete(name)


def _pause(*, paused: bool) -> Case:
    request = maintenance.SetPauseRequest(paused=paused, author="operator", reason="simulated")
    return Case("SetPause", request, whole=(*DONE, *UNWRITTEN))
