"""Hand-overs to a controller that stood by, each while a broker is gone, with all else in order.

Among other faults a broker comes back sooner or later, and its return mends what a hand-over left undone. Here it stays
away until the new controller has done all that can be done without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

from controller.runtime.zookeeper.state_mirror import Warmth
from tests.provers.sim.actors.brokers import SimBroker
from tests.provers.sim.checks.settling import differences, unsettled
from tests.provers.sim.cluster import LOOK_S, SimulatedCluster, Violated
from tests.provers.sim.plans.aims import Aims
from tests.provers.sim.zookeeper.messages import Data, Get, Multi, Set

#: How long a controller may take for everything without that broker, virtual seconds; and a standby, to read all.
DONE_S, WARM_S = 30.0, 10.0
#: No topic grows beyond this.
PARTITIONS_MAX = 5


async def hand_over(cluster: SimulatedCluster) -> None:
    """As often as the plan says. Raises Violated."""
    rng = Random(f"{cluster.plan.seed}:handovers:course")
    for _ in range(cluster.plan.options.handovers):
        await _until_warm(cluster)
        missing = cluster.brokers[rng.choice(sorted(cluster.brokers))]
        cluster.trace_line(f"--- hand-over: {missing.name} is gone")
        missing.kill()
        if rng.random() < 0.5:
            _change_something(cluster, rng)
        await _replace_controller(cluster, rng)
        if rng.random() < 0.3:
            # It is back when the next controller is elected, and nobody has seen to what it left behind.
            cluster.trace_line(f"--- hand-over: {missing.name} is back")
            missing.start()
        else:
            await _until_done(cluster, missing)
            if cluster.ledger.topics:
                _expand_behind_its_back(cluster, rng.choice(sorted(cluster.ledger.topics)))
        await cluster.wait_until_settled(lambda: unsettled(cluster))


def _change_something(cluster: SimulatedCluster, rng: Random) -> None:
    """What a standby reads again when it is elected."""
    topic = rng.choice(cluster.topics() or ["t0"])
    ids = sorted(cluster.brokers)
    kind, arguments = rng.choice(
        (
            ("expand", (topic, tuple(rng.sample(ids, min(2, len(ids)))))),
            ("elect_preferred", (topic, 0, False)),
            ("create", ("t3", (tuple(rng.sample(ids, min(2, len(ids)))),), False)),
        )
    )
    cluster.operator.begin(kind, arguments)


def _expand_behind_its_back(cluster: SimulatedCluster, topic: str) -> None:
    """As old tools do: only the watch on its znode tells the new controller."""
    path = f"/brokers/topics/{topic}"
    data = cluster.ask_zookeeper(Get(path))
    if topic in cluster.nodes_below("/admin/delete_topics") or not isinstance(data, Data) or not data.data:
        return
    value = json.loads(data.data)
    count = len(value["partitions"])
    if topic.startswith("__") or count >= PARTITIONS_MAX or cluster.ledger.topics[topic].moving:
        return
    value["partitions"][str(count)] = value["partitions"]["0"]
    cluster.ask_zookeeper(Multi((Set(path, json.dumps(value).encode(), data.stat.version),)))


async def _replace_controller(cluster: SimulatedCluster, rng: Random) -> None:
    """Before, while, or after the controller sees to the missing broker; or in the midst of that."""
    session_s = cluster.plan.options.session_timeout_ms / 1000
    how = rng.choice(("killed", "stopped", "deposed", "killed in its next write", "killed in its next write"))
    cluster.trace_line(f"--- hand-over: the controller is {how}")
    if how == "killed in its next write":
        delay_s = rng.choice((0.0, 0.0, 0.0005, 0.002))
        cluster.aims = Aims(cluster.loop, lambda _, arguments: _kill(cluster, int(arguments[0])))
        cluster.aims.take("changes state", rng.choice((1, 1, 2)), delay_s, "doer", "kill_controller", (0,))
        await cluster.pass_s(2 * session_s + LOOK_S)
        cluster.aims.forget()
        return
    await cluster.pass_s(
        rng.choice((0.0, session_s * rng.uniform(0.5, 1.2), 2 * session_s + rng.uniform(0.0, 1.0)))
    )
    leading = cluster.active()
    if how == "killed":
        _kill(cluster, leading.id)
    elif how == "stopped":
        leading.terminate()
    else:
        cluster.faults.depose()
    await cluster.pass_s(rng.choice((0.0, LOOK_S)))


def _kill(cluster: SimulatedCluster, controller_id: int) -> None:
    process = cluster.controllers[controller_id].process
    if process is not None:
        cluster.loop.kill(process)


async def _until_warm(cluster: SimulatedCluster) -> None:
    """Every controller is up, and one stands by with everything in memory; where none can, it is as good without."""
    for controller in cluster.controllers.values():
        if not controller.alive:
            controller.start()
    end_s = cluster.loop.time() + WARM_S
    while cluster.loop.time() < end_s:
        standbys = [c.daemon.standby for c in cluster.controllers.values() if c.daemon is not None]
        if any(s is not None and s.mirror.warmth is Warmth.WARM for s in standbys):
            return
        await cluster.pass_s(LOOK_S)


async def _until_done(cluster: SimulatedCluster, missing: SimBroker) -> None:
    end_s = cluster.loop.time() + DONE_S
    while left := list(_undone(cluster, missing)):
        if cluster.loop.time() > end_s:
            cluster.violated(f"{DONE_S:g} s after a hand-over without {missing.name}: {'; '.join(left[:20])}")
            raise Violated
        await cluster.pass_s(LOOK_S)


def _undone(cluster: SimulatedCluster, missing: SimBroker) -> Iterator[str]:
    leading = [
        c for c in cluster.controllers.values() if c.daemon is not None and c.alive and c.daemon.active
    ]
    if len(leading) != 1:
        yield f"{len(leading)} controllers are active"
        return
    deleted = cluster.nodes_below("/admin/delete_topics")
    unjudged = {*deleted, *(name for name, topic in cluster.ledger.topics.items() if topic.moving)}
    for (name, number), state in sorted(cluster.ledger.states.items()):
        if name in unjudged:
            continue
        others = set(state.isr) - {missing.id}
        if state.leader == missing.id:
            yield f"{name}-{number} is led by {missing.name}, which is gone: {state}"
        elif state.leader < 0 and others:
            yield f"{name}-{number} has no leader: {state}"
        elif missing.id in state.isr and others:
            yield f"{name}-{number}: {missing.name}, which is gone, is in sync: {state}"
    for node in cluster.brokers.values():
        if node is not missing:
            yield from differences(cluster, node, missing.id, unjudged)
