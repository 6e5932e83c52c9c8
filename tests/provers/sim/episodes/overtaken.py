"""Whoever writes is overtaken, as often as he tries: who asked for it is told, nothing is left half done, and when he
asks again it is done."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from proto.gen import admin_service_pb2 as pb
from proto.gen import controller_service_pb2 as service
from proto.gen import features_pb2 as features
from proto.gen import maintenance_pb2 as maintenance
from tests.provers.sim.episodes.calm import UNWRITTEN, Calm
from tests.provers.sim.odd.asking import DONE, Case
from tests.provers.sim.odd.configs import alter, alteration
from tests.provers.sim.odd.topics import EXISTS, creation, lists, topic
from tests.provers.sim.plans.plan import WRITE
from tests.provers.sim.zookeeper.messages import Exists, Stat

#: More often than anything is tried.
_ALWAYS = 12
_TRIED_S = 1.0


def _overtake(asker: Calm, kind: str, rival: str, times: int = _ALWAYS) -> None:
    asker.cluster.conflicts.wait_for(WRITE, kind, 1, times, rival)


async def always_second(asker: Calm) -> None:
    name = asker.name()
    if not await asker.made(name, asker.ids[:1]):
        return
    # Answers count, although somebody else writes, too.
    with asker.editing():
        for work in asker.rng.sample(_WORK, 4):
            await work(asker, name)
            asker.cluster.conflicts.forget()
    await asker.delete(name)


async def _ids_given(asker: Calm, _: str) -> None:
    id_ = asker.ids[0]
    registered = asker.cluster.ask_zookeeper(Exists(f"/brokers/ids/{id_}"))
    epoch = registered.czxid if isinstance(registered, Stat) else 0
    request = service.AllocateProducerIdsRequest(broker_id=id_, broker_epoch=epoch)
    _overtake(asker, "producer_ids", "touched")
    answer = await asker.ask(
        Case("AllocateProducerIds", request, whole=(*DONE, *UNWRITTEN), certificate=f"broker-{id_}")
    )
    if answer is not None and not answer.error_code:
        asker.cluster.operator.given(
            answer.producer_id_start, answer.producer_id_start + answer.producer_id_len - 1
        )


async def _features_set(asker: Calm, _: str) -> None:
    stored = json.loads(asker.cluster.stored("/feature") or b"{}").get("features", {})
    level = 2 if stored.get("sim", {}).get("max_version_level") != 2 else 3
    update = features.FeatureUpdate(
        name="sim", max_version_level=level, upgrade_type=features.UNSAFE_DOWNGRADE
    )
    _overtake(asker, "feature", "touched")
    request = features.UpdateFeaturesRequest(updates=[update])
    answer = await asker.ask(Case("UpdateFeatures", request, None, whole=(*DONE, *UNWRITTEN)))
    found = json.loads(asker.cluster.stored("/feature") or b"{}").get("features", {})
    granted = answer is not None and not answer.error_code and not answer.results[0].error_code
    if granted and found.get("sim", {}).get("max_version_level") != level:
        asker.cluster.violated(f"feature sim was granted level {level}, and stored is {found}")


async def _features_enabled(asker: Calm, _: str) -> None:
    """By the next controller, or the one after it."""
    asker.edit("/feature", lambda found: found.update(status=0))
    _overtake(asker, "feature", "touched")
    asker.cluster.faults.depose()
    await asker.pass_s(_TRIED_S)
    asker.cluster.conflicts.forget()
    asker.cluster.faults.depose()

    def enabled() -> bool:
        return bool(json.loads(asker.cluster.stored("/feature") or b"{}").get("status"))

    await asker.until("features are enabled", 20.0, enabled)


async def _topic_made(asker: Calm, name: str) -> None:
    """The configuration of a topic that does not exist yet is edited all the time."""
    other = f"{name}-new"
    _overtake(asker, "config", "busy")
    wanted = topic(other, assignments=lists(asker.ids[:1]))
    answer = await asker.ask(creation(wanted, parts=[(*DONE, *UNWRITTEN)]))
    refused = answer is not None and answer.topics[0].error_code
    if refused and other in asker.cluster.ledger.topics:
        asker.cluster.violated(f"{other} was not created, as it was said, and is there")
    asker.cluster.conflicts.forget()
    again = await asker.ask(creation(wanted, parts=[(*DONE, *EXISTS)]))
    if again is not None and other not in asker.cluster.ledger.topics:
        asker.cluster.violated(f"{other} was asked for again, and is not there")
    await asker.delete(other)


async def _topic_configured(asker: Calm, name: str) -> None:
    _overtake(asker, "config", "busy")
    configured = alteration(pb.TOPIC, name, ("retention.ms", "3600000"))
    answer = await asker.ask(alter(configured, parts=[(*DONE, *UNWRITTEN)]))
    found = json.loads(asker.cluster.stored(f"/config/topics/{name}") or b"{}").get("config", {})
    if answer is not None and (found.get("retention.ms") == "3600000") != (
        not answer.responses[0].error_code
    ):
        asker.cluster.violated(f"a setting of {name} was answered by {answer}, and stored is {found}")


async def _listed_move_done(asker: Calm, name: str) -> None:
    """The list of moves that are asked for is written all the time."""
    _overtake(asker, "reassignment", "touched")
    asker.cluster.operator.begin("reassign", (name, 0, (asker.ids[-1],), True))
    await asker.pass_s(_TRIED_S)
    asker.cluster.conflicts.forget()
    # Whoever asks for the same again is heard.
    asker.cluster.operator.begin("reassign", (name, 0, (asker.ids[-1],), True))
    await asker.until(
        f"{name} is on {asker.ids[-1]}", 20.0, lambda: asker.partitions(name).get(0) == (asker.ids[-1],)
    )


async def _topic_deleted(asker: Calm, name: str) -> None:
    """Somebody puts something below its znode each time it is to be deleted, or always writes what is kept of the
    forgotten broker that has it."""
    other, gone = f"{name}-old", asker.ids[-1]
    # With as few as one broker gone the controller goes into maintenance, and deletes nothing.
    if asker.cluster.plan.options.maintenance_min == 1 or not await asker.made(other, [gone]):
        return
    request = maintenance.ForgetBrokerRequest(broker_id=gone, author="operator", reason="simulated")
    with asker.gone(gone):
        await asker.pass_s(2 * asker.session_s + 0.2)
        await asker.ask(Case("ForgetBroker", request, None, whole=(*DONE, *UNWRITTEN)))
        _overtake(asker, *asker.rng.choice((("topic", "littered"), ("ours", "busy"))))
        await asker.delete(other)
        await asker.pass_s(_TRIED_S)
        asker.cluster.conflicts.forget()
        await asker.until(f"{other} is deleted", 20.0, lambda: other not in asker.cluster.ledger.topics)
        _overtake(asker, "ours", "busy")
    # It is back, and has its replica to delete.
    await asker.pass_s(_TRIED_S)


_WORK: tuple[Callable[[Calm, str], Awaitable[None]], ...] = (
    _ids_given,
    _features_set,
    _features_enabled,
    _topic_made,
    _topic_configured,
    _listed_move_done,
    _topic_deleted,
)
