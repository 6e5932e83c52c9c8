"""Brokers that go and come while other things happen: a controller handles these events part by part, and what is
prompt between two parts (docs/adr/0022).

Among the plan's own actions that is left to chance. Here each part is one partition, and something is asked for just
when the first, the second or the third of them is written.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.provers.sim.actors.brokers import SimBroker
from tests.provers.sim.checks.settling import unsettled
from tests.provers.sim.cluster import SimulatedCluster
from tests.provers.sim.environment.steps import parts_of
from tests.provers.sim.plans.aims import Aims
from tests.provers.sim.plans.plan import TOPICS
from tests.provers.sim.zookeeper.messages import Exists

#: How long what was asked for may take, virtual seconds.
MIDST_S = 1.0


async def interrupt(cluster: SimulatedCluster) -> None:
    """As often as the plan says. Raises Violated."""
    rng = Random(f"{cluster.plan.seed}:interruptions:course")
    session_s = cluster.plan.options.session_timeout_ms / 1000
    for _ in range(cluster.plan.options.interruptions):
        broker = cluster.brokers[rng.choice(sorted(cluster.brokers))]
        others = [b for b in cluster.brokers.values() if b is not broker]
        with parts_of(1):
            goes = rng.choice((broker.kill, broker.terminate))
            cluster.trace_line(f"--- interruption: {broker.name} goes")
            _aim(cluster, rng, others)
            goes()
            await cluster.pass_s(2 * session_s + MIDST_S)
            cluster.trace_line(f"--- interruption: {broker.name} comes")
            _aim(cluster, rng, others)
            _start(cluster)
            await cluster.pass_s(session_s + MIDST_S)
            cluster.aims.forget()
            # Who was struck last is down.
            await cluster.pass_s(MIDST_S)
            _start(cluster)
            await cluster.wait_until_settled(lambda: unsettled(cluster))


def _start(cluster: SimulatedCluster) -> None:
    for broker in cluster.brokers.values():
        if not broker.alive:
            broker.start()


def _aim(cluster: SimulatedCluster, rng: Random, others: list[SimBroker]) -> None:
    """At the controller's next writes: a topic, partitions, an election; another broker's going or return."""
    strikes: dict[str, Callable[[], None]] = {}
    for number, count in enumerate(sorted(rng.choice((1, 1, 2, 3, 4)) for _ in range(2))):
        name = f"strike {number}"
        strikes[name] = _something(cluster, rng, others)
        if not number:
            cluster.aims = Aims(cluster.loop, lambda name, _: strikes[name]())
        moment = rng.choice(("changes state", "changes state", "registers", "takes LeaderAndIsr"))
        delay_s = rng.choice((0.0, 0.0, 0.0005, 0.002))
        cluster.aims.take(moment, count, delay_s, "", name, ())


def _something(cluster: SimulatedCluster, rng: Random, others: list[SimBroker]) -> Callable[[], None]:
    ids = sorted(cluster.brokers)
    some = tuple(rng.sample(ids, min(2, len(ids))))
    topic = rng.choice(cluster.topics() or ["t0"])
    new = next((n for n in TOPICS if not cluster.ask_zookeeper(Exists(f"/brokers/topics/{n}"))), topic)
    asked: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("create", (new, (some, some[::-1]), rng.random() < 0.7)),
        ("expand", (topic, some)),
        ("elect_preferred", (topic, 0, False)),
    )
    if others and rng.random() < 0.5:
        other = rng.choice(others)
        return rng.choice((other.kill, lambda: _bounce(other)))
    kind, arguments = rng.choice(asked)
    return lambda: cluster.operator.begin(kind, arguments)


def _bounce(broker: SimBroker) -> None:
    broker.kill()
    if not broker.alive:
        broker.start()
