"""One seed from its plan to its outcome."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest import mock

import structlog

from tests.provers.sim.checks.settling import check_clients, unsettled
from tests.provers.sim.cluster import SimulatedCluster, Violated
from tests.provers.sim.environment.loop import StalledError, VirtualTimeLoop, clock_of, run
from tests.provers.sim.episodes.backups import restore
from tests.provers.sim.episodes.course import go_through
from tests.provers.sim.handovers import hand_over
from tests.provers.sim.interruptions import interrupt
from tests.provers.sim.plans.plan import Plan

#: How long clients get to finish what they are at, virtual seconds.
CLIENTS_END_S = 30.0
#: How long the audit may find differences that are just being mended, virtual seconds.
AUDIT_S = 20.0


@dataclass
class Outcome:
    """``violations``: what did not hold, in words. ``trace``: a digest of all that happened; ``story``: all of it."""

    plan: Plan
    violations: list[str] = field(default_factory=list)
    trace: str = ""
    settled_s: float = 0.0
    figures: dict[str, int] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)


def simulate(plan: Plan, *, telling: bool = False) -> Outcome:
    """Run a plan. The same plan has the same outcome, in every process."""
    outcome = Outcome(plan)
    with _quiet(), _chance(plan.seed):
        run(_main(outcome, telling=telling))
    return outcome


async def _main(outcome: Outcome, *, telling: bool) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    with ExitStack() as stack:
        stack.enter_context(clock_of(loop))
        cluster = SimulatedCluster(outcome.plan, loop, stack, telling=telling)
        loop.set_exception_handler(lambda _, context: cluster.violated(f"unhandled: {context}"))
        try:
            await _course(cluster, outcome)
        except (Violated, StalledError) as error:
            if not cluster.violations:
                cluster.violated(str(error))
        finally:
            loop.set_exception_handler(lambda *_: None)
            loop.bury()
        outcome.violations, outcome.story, outcome.trace = cluster.violations, cluster.story, cluster.trace()
        outcome.figures = {
            "transactions": cluster.ledger.transactions,
            "controller epochs": cluster.ledger.controller_epoch,
            "acknowledged records": cluster.history.acknowledged,
            "reads": cluster.history.reads,
            "states from memory": sum(c.states_loaded[0] for c in cluster.controllers.values()),
            "states read": sum(c.states_loaded[1] for c in cluster.controllers.values()),
            "let in": sum(c.let_in for c in cluster.controllers.values()),
            "operations": cluster.operator.asked,
            "odd requests": cluster.oddities.operator.asked,
            "granted": cluster.operator.done,
        }


async def _course(cluster: SimulatedCluster, outcome: Outcome) -> None:
    await cluster.run_plan()
    outcome.settled_s = await cluster.wait_until_settled(lambda: unsettled(cluster))
    await hand_over(cluster)
    await interrupt(cluster)
    await go_through(cluster)
    await restore(cluster)
    for client in cluster.clients:
        client.stop()
    await cluster.until_ended([c.process for c in cluster.clients if c.process is not None], CLIENTS_END_S)
    outcome.settled_s += await cluster.wait_until_settled(lambda: unsettled(cluster))
    await cluster.probe(CLIENTS_END_S)
    await cluster.audited(AUDIT_S)
    await cluster.wait_until_settled(lambda: unsettled(cluster))
    check_clients(cluster)
    if cluster.violations:
        raise Violated


@contextmanager
def _quiet() -> Iterator[None]:
    known = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        structlog.configure(**known)


@contextmanager
def _chance(seed: int) -> Iterator[None]:
    """All that libraries and we ourselves leave to chance comes from the seed."""
    before, rng = random.getstate(), random.Random(f"{seed}:uuid")
    random.seed(f"{seed}:global")

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=rng.getrandbits(128), version=4)

    with mock.patch.object(uuid, "uuid4", uuid4):
        try:
            yield
        finally:
            random.setstate(before)
