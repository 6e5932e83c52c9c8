"""Topics as others write them: in the midst of a reassignment, with replicas to be deleted, or on a controller's id.

Nothing is judged here: in the end every partition must be led, in sync on all that it is assigned to, and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from controller.core.znode_paths import KAFKA_IDS
from tests.provers.sim.odd.asking import Asker
from tests.provers.sim.zookeeper.messages import Create, Multi

Lists = Mapping[str, Sequence[int]]


def topic_of(name: str, partitions: Lists, fields: Mapping[str, Lists]) -> Create:
    value = {"version": 3, "partitions": partitions, **fields}
    return Create(f"/brokers/topics/{name}", json.dumps(value).encode())


def state_of(leader: int) -> bytes:
    state = {"controller_epoch": 1, "leader": leader, "version": 1, "leader_epoch": 0, "isr": [leader]}
    return json.dumps(state).encode()


async def topics_on_the_move(asker: Asker) -> None:
    """A topic as a controller leaves it that dies while it moves replicas, and as one that has been edited."""
    rng, ids = asker.rng, asker.ids
    here = rng.sample(ids, rng.randint(1, len(ids)))
    said: tuple[tuple[str, Lists], ...] = (
        ("adding_replicas", {"0": here[1:]}),
        ("removing_replicas", {"0": here[:1]} if len(here) > 1 else {}),
        ("original_replicas", {"0": here[:1]}),
        ("queued_replicas", {"0": rng.sample(ids, rng.randint(1, len(ids)))}),
        ("stray_replicas", {"0": [b for b in ids if b not in here]}),
        ("adding_replicas", {"7": ids[:1]}),
        ("removing_replicas", {"0": [b for b in ids if b not in here]}),
    )
    fields = {field: lists for field, lists in said if any(lists.values()) and rng.random() < 0.5}
    name = f"odd_{asker.serial}"
    asker.cluster.ask_zookeeper(Multi((topic_of(name, {"0": here, "1": here[:1]}, fields),)))


async def topics_on_controllers(asker: Asker) -> None:
    """A topic as Kafka's brokers create one that take a controller for a broker: without states, or with those that a
    broker gave it as controller. They know only controllers that have led: any other id may be a broker's."""
    rng, ids, led = asker.rng, asker.ids, asker.cluster.nodes_below(KAFKA_IDS)
    if not led:
        return
    phantom = int(rng.choice(led))
    others = rng.sample(ids, rng.randint(0, len(ids)))
    replicas = rng.sample([phantom, *others], len(others) + 1)
    name = f"odd_{asker.serial}"
    said: tuple[tuple[str, Lists], ...] = (
        ("adding_replicas", {"0": [phantom]}),
        ("removing_replicas", {"0": others[:1]}),
        ("queued_replicas", {"0": [phantom, *ids[:1]]}),
        ("stray_replicas", {"0": [phantom]}),
        ("original_replicas", {"0": [phantom]}),
    )
    fields = {field: lists for field, lists in said if others and lists["0"] and rng.random() < 0.3}
    made = [topic_of(name, {"0": replicas, "1": replicas[:1] if others else [phantom]}, fields)]
    if others and rng.random() < 0.5:
        path = f"/brokers/topics/{name}/partitions"
        made += [Create(path), Create(f"{path}/0"), Create(f"{path}/0/state", state_of(others[0]))]
    asker.cluster.ask_zookeeper(Multi(tuple(made)))
