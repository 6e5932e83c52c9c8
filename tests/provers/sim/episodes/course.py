"""Episodes: one thing after the other in a cluster in which nothing else goes wrong.

What needs three conditions at once, chance alone does not bring about among other faults. Here the conditions are made,
and what is said to requests is judged more strictly: nobody else asks for anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

from tests.provers.sim.checks.settling import unsettled
from tests.provers.sim.cluster import LOOK_S, SimulatedCluster
from tests.provers.sim.episodes import groups, hands, moves, overtaken, phantoms, topics
from tests.provers.sim.episodes.calm import Calm

#: No scenario of `tests.provers.sim.odd` has such a number.
_FIRST = 1000
EPISODES: tuple[Callable[[Calm], Awaitable[None]], ...] = (
    topics.never_first,
    topics.never_first,
    topics.moves_held_up,
    topics.moves_held_up,
    topics.given_up,
    overtaken.always_second,
    overtaken.always_second,
    moves.last_in_sync_was_added,
    moves.never_led,
    moves.asked_to_leave_twice,
    moves.while_paused,
    groups.two_members,
    groups.moved_in_the_midst,
    groups.moved_in_the_midst,
    hands.shutdown_taken_back,
    hands.isr_written_over,
    hands.states_made_anew,
    hands.features_gone,
    hands.cluster_id_gone,
    hands.data_of_another_cluster,
    hands.unclean_by_default,
    hands.maintenance_taken_over,
    hands.configs_by_hand,
    hands.illegible_topics,
    hands.removed_while_deleted,
    hands.nobody_leads,
    hands.placed_beside_a_drained_one,
)
#: Where brokers of Kafka's would be led: the others need `/controller` left alone while nobody leads.
OF_KAFKA: tuple[Callable[[Calm], Awaitable[None]], ...] = (
    phantoms.topics_on_controllers,
    phantoms.topics_on_controllers,
    phantoms.broker_taken_for_a_controller,
)


async def go_through(cluster: SimulatedCluster) -> None:
    """As many as the plan says. Raises Violated."""
    rng = Random(f"{cluster.plan.seed}:episodes:course")
    for number in range(cluster.plan.options.episodes):
        episode = rng.choice(OF_KAFKA if cluster.plan.options.takeover else EPISODES)
        cluster.trace_line(f"--- episode: {episode.__name__}")
        asker = Calm(cluster, _FIRST + number, Random(rng.randrange(2**31)))
        task = cluster.loop.spawn(cluster.oddities.operator.process, _whole(episode, asker))
        while not task.done():
            await cluster.pass_s(LOOK_S)
        task.result()
        await cluster.wait_until_settled(lambda: unsettled(cluster))


async def _whole(episode: Callable[[Calm], Awaitable[None]], asker: Calm) -> None:
    await episode(asker)
