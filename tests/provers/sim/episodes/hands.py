"""Hands at what controllers and brokers rely on, and what comes back to where it was."""

from __future__ import annotations

import json
from typing import Any

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2 as codes
from proto.gen import features_pb2 as features
from proto.gen import maintenance_pb2 as maintenance
from tests.provers.sim.episodes.calm import HARMLESS, UNWRITTEN, Calm
from tests.provers.sim.odd.asking import DONE, Case
from tests.provers.sim.odd.configs import DEFAULT, alter, alteration, resource_of
from tests.provers.sim.odd.topics import creation, topic
from tests.provers.sim.plans.aims import Aims
from tests.provers.sim.zookeeper.messages import Create, Delete, Multi

_UNCLEAN = "unclean.leader.election.enable"


async def shutdown_taken_back(asker: Calm) -> None:
    """At the moment at which a broker asks to be let go, or soon after, an operator has it stay."""
    id_ = asker.rng.choice(asker.ids)
    cluster = asker.cluster
    cluster.shutdown_undone = True
    cluster.aims = Aims(cluster.loop, lambda *_: cluster.operator.begin("cancel_shutdown", (id_,)))
    cluster.aims.take("takes ControlledShutdown", 1, asker.rng.choice((0.0, 0.002, 0.02, 0.2)), "", "", ())
    cluster.brokers[id_].terminate()
    await asker.pass_s(asker.session_s)


async def isr_written_over(asker: Calm) -> None:
    """A follower falls behind, and what its leader's ISR is to be is written over, or gone, just before."""
    if len(asker.ids) < 2:
        return
    led, follower = asker.rng.sample(asker.ids, 2)
    name = asker.name()
    await asker.made(name, [led, follower], [led, follower])
    await asker.pass_s(1.0)
    rivals = ("bereft", "newer", "led_by_another", "scribbled", "removed", "renewed", *HARMLESS)
    asker.thwart(("state",), rivals)
    with asker.held_back(follower):
        await asker.pass_s(3.5)
    await asker.pass_s(1.0)
    await asker.delete(name)


async def states_made_anew(asker: Calm) -> None:
    """A state is deleted and made again by hand, as it was: its version begins anew. The audit takes it over."""
    name, rng = asker.name(), asker.rng
    replicas = rng.sample(asker.ids, min(2, len(asker.ids)))
    await asker.made(name, replicas, replicas)
    for leader in (replicas[-1], replicas[0]):
        await asker.ask(_elected(name, leader))
        await asker.pass_s(0.5)
    path = f"/brokers/topics/{name}/partitions/0/state"
    data = asker.cluster.stored(path)
    if data is None:
        return
    asker.cluster.by_hand = asker.cluster.tampered = True
    asker.cluster.ask_zookeeper(Multi((Delete(path), Create(path, data))))
    asker.thwart(("state",), (*HARMLESS, "bereft", "newer"))
    await asker.pass_s(rng.choice((1.0, 6.0)))
    if rng.random() < 0.5:
        asker.cluster.faults.depose()
    await asker.pass_s(5.0)
    await asker.delete(name)


def _elected(name: str, leader: int) -> Case:
    request = pb.ElectLeadersRequest(
        election_type=pb.CHOSEN,
        topic_partitions=[codes.PartitionName(topic=name, partition=0)],
        leader=leader,
        reason="simulated",
    )
    return Case("ElectLeaders", request, None)


async def features_gone(asker: Calm) -> None:
    """Features are disabled, not there, or beyond what brokers support, when the next controller looks."""
    rng, cluster, path = asker.rng, asker.cluster, "/feature"
    stored = cluster.stored(path)
    how = rng.choice(("deleted", "disabled", "beyond"))
    if how == "deleted":
        cluster.ask_zookeeper(Delete(path))
    elif how == "disabled":
        asker.edit(path, lambda found: found.update(status=0))
    else:
        asker.edit(path, lambda found: found.update(status=1, features=_levels(9)))
    asker.thwart(("feature",), ("busy", "touched", "unanswered"))
    cluster.faults.depose()
    await asker.pass_s(1.0)
    if how != "beyond":
        return
    # A broker that registers now is left out, until its level is one that it supports.
    id_ = rng.choice(asker.ids)
    with asker.gone(id_):
        await asker.pass_s(0.1)
    await asker.pass_s(1.0)
    if stored and rng.random() < 0.5:
        asker.edit(path, lambda found: found.update(features={}))
        cluster.faults.depose()
    else:
        update = features.FeatureUpdate(
            name="sim", max_version_level=2, upgrade_type=features.UNSAFE_DOWNGRADE
        )
        request = features.UpdateFeaturesRequest(updates=[update])
        granted = await asker.granted(Case("UpdateFeatures", request, None, whole=(*DONE, *UNWRITTEN)))
        if not granted:
            asker.edit(path, lambda found: found.update(features={}))
            cluster.faults.depose()


def _levels(level: int) -> dict[str, dict[str, int]]:
    return {"sim": {"max_version_level": level, "min_version_level": 1}}


async def cluster_id_gone(asker: Calm) -> None:
    """The cluster's id is not there, or does not decode, when the next controller looks, or a broker that starts."""
    path, cluster = "/cluster/id", asker.cluster
    if asker.rng.random() < 0.5:
        cluster.ask_zookeeper(Delete(path))
        if asker.rng.random() < 0.5:
            cluster.ask_zookeeper(Delete("/cluster"))
    else:
        cluster.faults.scribble_over(path)
    if asker.rng.random() < 0.5:
        cluster.faults.depose()
        await asker.until("the cluster has an id", 20.0, lambda: bool(cluster.stored(path)))
    # It finds what it knows, or what proves nothing, or puts it back.
    with asker.gone(asker.rng.choice(asker.ids)):
        await asker.pass_s(0.1)
    await asker.until("the cluster has an id again", 20.0, lambda: bool(cluster.stored(path)))


async def data_of_another_cluster(asker: Calm) -> None:
    """A broker is started with data that belongs to another cluster; then with its own."""
    broker = asker.cluster.brokers[asker.rng.choice(asker.ids)]
    broker.kill()
    own, broker.disk.cluster_id = broker.disk.cluster_id, "another"
    broker.start()
    await asker.until("it ends", 20.0, lambda: not broker.alive)
    broker.disk.cluster_id = own
    asker.start(broker.id)


async def unclean_by_default(asker: Calm) -> None:
    """The brokers' default permits unclean elections for a while. Where all have leaders, nothing follows."""
    written = (*DONE, *UNWRITTEN)
    for value in ("true", None):
        await asker.ask(alter(alteration(pb.BROKER, "", (_UNCLEAN, value)), parts=[written]))
        asker.cluster.operator.begin("announce", (3,))
        await asker.pass_s(0.3)


async def maintenance_taken_over(asker: Calm) -> None:
    """The controller has gone into maintenance by itself. When it is about to leave, an operator has made it his own;
    or somebody else writes it all the time."""
    if asker.cluster.plan.options.maintenance_min > 1 or len(asker.ids) < 2:
        return
    path = "/controllers/maintenance"
    with asker.gone(asker.rng.choice(asker.ids)):
        await asker.pass_s(2 * asker.session_s + 1.0)
    asker.thwart(("ours",), ("taken_over", "touched", "busy"))
    await asker.pass_s(3.0)
    said: dict[str, Any] = {"author": "operator", "reason": "simulated"}
    if asker.cluster.stored(path):
        lifted = maintenance.SetMaintenanceRequest(entered=False, **said)
        await asker.ask(Case("SetMaintenance", lifted, whole=(*DONE, *UNWRITTEN)))


async def configs_by_hand(asker: Calm) -> None:
    """Configurations are edited into nonsense and announced; so is what nobody here has. Announcements are deleted."""
    name, cluster = asker.name(), asker.cluster
    await asker.made(name, asker.ids[:1])
    written = (*DONE, *UNWRITTEN)
    await asker.ask(alter(alteration(pb.BROKER, "", (_UNCLEAN, "false")), parts=[written]))
    default = f"/config/brokers/{DEFAULT}"
    path = asker.rng.choice((f"/config/topics/{name}", default))
    if asker.rng.random() < 0.5:
        cluster.faults.scribble_over(path)
    elif cluster.stored(path):
        asker.edit(
            path, lambda found: found.update(config={_UNCLEAN: "perhaps", "min.insync.replicas": "no"})
        )
    for entity in (f"topics/{name}", "clients/x", f"topics/{name}", "brokers/<default>"):
        data = json.dumps({"version": 2, "entity_path": entity}).encode()
        cluster.ask_zookeeper(Create("/config/changes/config_change_", data, sequential=True))
        await asker.pass_s(asker.rng.choice((0.0, 0.3)))
        for child in cluster.nodes_below("/config/changes"):
            cluster.ask_zookeeper(Delete(f"/config/changes/{child}"))
    described = pb.DescribeConfigsRequest(resources=[resource_of(pb.TOPIC, name), resource_of(pb.BROKER, "")])
    await asker.ask(Case("DescribeConfigs", described, None))
    cluster.faults.put_back(path)
    taken_back = alteration(pb.BROKER, "", (_UNCLEAN, None), ("min.insync.replicas", None))
    await asker.ask(alter(taken_back, parts=[written]))
    await asker.delete(name)


async def illegible_topics(asker: Calm) -> None:
    """A topic does not decode, or has another's id, when the next controller looks; it is mended or removed."""
    name, cluster, rng = asker.name(), asker.cluster, asker.rng
    await asker.made(name, asker.ids[:1])
    await asker.pass_s(0.5)
    path = f"/brokers/topics/{name}"
    if rng.random() < 0.6:
        cluster.faults.scribble_over(path)
    else:
        known = asker.stored_topic(name)
        partitions = {**known.get("partitions", {}), "1": asker.ids[:1]}
        fields = {"queued_replicas": {"7": asker.ids[:1]}, "stray_replicas": {"7": asker.ids[:1]}}
        another = json.dumps({**known, "partitions": partitions, **fields}).encode()
        cluster.ask_zookeeper(Create(f"{path}-alike", another))
    if rng.random() < 0.7:
        cluster.faults.depose()
        await asker.pass_s(1.0)
    if rng.random() < 0.5:
        cluster.ask_zookeeper(Create(f"/admin/delete_topics/{name}"))
        await asker.pass_s(0.5)
    cluster.by_hand = True
    for one in (path, f"{path}-alike"):
        if rng.random() < 0.5:
            cluster.conflicts.remove(one)
        else:
            cluster.faults.put_back(path)
        await asker.pass_s(0.3)


async def removed_while_deleted(asker: Calm) -> None:
    """A deletion waits for a broker that is gone. Meanwhile the topic is removed by hand, and may be made anew."""
    name, rng = asker.name(), asker.rng
    id_ = rng.choice(asker.ids)
    await asker.made(name, [id_])
    await asker.pass_s(0.3)
    with asker.gone(id_):
        await asker.pass_s(rng.choice((0.0, 2 * asker.session_s)))
        await asker.delete(name)
        await asker.pass_s(rng.choice((0.05, 0.5)))
        asker.cluster.by_hand = True
        asker.cluster.conflicts.remove(f"/brokers/topics/{name}")
        await asker.pass_s(rng.choice((0.0, 0.5)))
        if rng.random() < 0.7:
            asker.cluster.operator.begin("create", (name, ((id_,),), True))
            await asker.pass_s(0.5)
    await asker.pass_s(1.0)


async def nobody_leads(asker: Calm) -> None:
    """Something that does not decode is where the controller registers; until it is gone, nobody leads."""
    cluster, path = asker.cluster, "/controller"
    cluster.ask_zookeeper(Multi((Delete(path), Create(path, b'{"version":2}'))))
    await asker.pass_s(2.0)
    if any(c.daemon is not None and c.alive and c.daemon.active for c in cluster.controllers.values()):
        cluster.violated("somebody leads, and is not registered")
    cluster.ask_zookeeper(Delete(path))


async def placed_beside_a_drained_one(asker: Calm) -> None:
    """Of partitions that are placed while a broker is drained, none prefers it, if there is another."""
    drained, name = asker.rng.choice(asker.ids), asker.name()
    said: dict[str, Any] = {"author": "operator", "reason": "simulated"}
    request = maintenance.SetDrainRequest(broker_id=drained, drained=True, force=True, **said)
    granted = await asker.ask(Case("SetDrain", request, whole=(*DONE, *UNWRITTEN, codes.POLICY_VIOLATION)))
    await asker.ask(creation(topic(name, 3, len(asker.ids)), parts=[(*DONE, *UNWRITTEN)]))
    first = {replicas[0] for replicas in asker.partitions(name).values()}
    if granted is not None and not granted.error_code and drained in first and len(asker.ids) > 1:
        asker.cluster.violated(f"{name} prefers broker {drained}, which is drained: {asker.partitions(name)}")
    lifted = maintenance.SetDrainRequest(broker_id=drained, author="operator")
    await asker.ask(Case("SetDrain", lifted, whole=(*DONE, *UNWRITTEN)))
    await asker.delete(name)
