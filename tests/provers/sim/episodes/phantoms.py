"""Controllers' ids that Kafka's brokers take for brokers', where topics name them and nobody, or few, could take their
place; and an id of a controller that is a broker's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack

from controller.core.znode_paths import KAFKA_IDS
from tests.provers.sim.actors.kafka_controller import BROKER_ID
from tests.provers.sim.episodes.calm import HARMLESS, Calm
from tests.provers.sim.odd.znodes import Lists, state_of, topic_of
from tests.provers.sim.plans.plan import WRITE
from tests.provers.sim.zookeeper.messages import Create, Multi

#: What is written when topics are repaired, and who always writes before.
_REPAIRS = (
    ("topic", "touched"),
    ("topic", "littered"),
    ("state", "touched"),
    ("kafka_id", "created_alike"),
    ("kafka_id", "unanswered"),
)


async def topics_on_controllers(asker: Calm) -> None:
    """Brokers die, or all of them; topics are made on a controller's id alone, or move from a broker to it or back; the
    next controller repairs them, while somebody else writes, too."""
    rng, cluster = asker.rng, asker.cluster
    led = cluster.nodes_below(KAFKA_IDS)
    if not led:
        return
    phantom, first = int(rng.choice(led)), asker.ids[0]
    made: Sequence[tuple[Lists, dict[str, Lists]]] = (
        ({"0": [phantom]}, {}),
        ({"0": [first, phantom]}, {"adding_replicas": {"0": [phantom]}, "removing_replicas": {"0": [first]}}),
        ({"0": [phantom, first]}, {"adding_replicas": {"0": [first]}, "removing_replicas": {"0": [phantom]}}),
        ({"0": [first]}, {"queued_replicas": {"0": [phantom]}}),
        ({"0": [first]}, {"stray_replicas": {"0": [phantom, *asker.ids[1:]]}}),
    )
    with ExitStack() as gone:
        for id_ in rng.choice((asker.ids, asker.ids[1:], [])):
            gone.enter_context(asker.gone(id_))
        await asker.pass_s(rng.choice((0.0, 2 * asker.session_s)))
        for number, (partitions, fields) in enumerate(rng.sample(made, 3)):
            name = asker.name(str(number))
            cluster.ask_zookeeper(topic_of(name, partitions, fields))
            if first in partitions["0"] and rng.random() < 0.5:
                path = f"/brokers/topics/{name}/partitions"
                led_by = (Create(path), Create(f"{path}/0"), Create(f"{path}/0/state", state_of(first)))
                cluster.ask_zookeeper(Multi(led_by))
        await asker.pass_s(rng.choice((0.0, 1.0)))
        kind, rival = rng.choice(_REPAIRS)
        cluster.tampered |= kind == "state"
        cluster.conflicts.wait_for(WRITE, kind, 1, 12, rival)
        await _led_anew(asker)
    if cluster.conflicts.made:
        # What could not be written stays as it is until somebody else leads.
        cluster.conflicts.forget()
        await _led_anew(asker)


async def broker_taken_for_a_controller(asker: Calm) -> None:
    """A controller has led with the id of a broker: that id is not replaced, and not taken for a controller's again."""
    cluster, rng = asker.cluster, asker.rng
    id_ = rng.choice(asker.ids)
    path = f"{KAFKA_IDS}/{id_}"
    cluster.ask_zookeeper(Create(path))
    asker.thwart(("kafka_id",), (*HARMLESS, "removed"))
    await _led_anew(asker)
    # What could not be deleted is, with the next change of brokers.
    with asker.gone(rng.choice(asker.ids)):
        await asker.pass_s(0.1)
    await asker.until(f"{path} is deleted", 20.0, lambda: cluster.node(path) is None)


async def _led_anew(asker: Calm) -> None:
    """Who claims again and again over brokers of Kafka's waits for longer each time, unless an operator asks him to."""
    cluster = asker.cluster
    former = cluster.node("/controller")
    for controller in cluster.controllers.values():
        if controller.daemon is not None:
            controller.daemon.claimant.forget_claims()
    cluster.faults.depose()

    def led() -> bool:
        node, active = cluster.node("/controller"), cluster.active().daemon
        if node is None or former is None or node.czxid == former.czxid or active is None:
            return False
        return json.loads(node.data or b"{}").get("brokerid") != BROKER_ID and active.active

    await asker.until("somebody of ours leads again", 60.0, led)
    await asker.pass_s(1.0)
