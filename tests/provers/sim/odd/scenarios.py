"""Who asks for what is odd: the scenarios, by the names that plans use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

from tests.provers.sim.actors.operators import Operator
from tests.provers.sim.odd import (
    configs,
    leaders,
    members,
    nonsense,
    placements,
    records,
    restrictions,
    topics,
    znodes,
)
from tests.provers.sim.odd.asking import Asker, Edits, OddCluster, OverError

SCENARIOS: dict[str, Callable[[Asker], Awaitable[None]]] = {
    scenario.__name__: scenario
    for scenario in (
        topics.refused_topics,
        topics.refused_deletions,
        topics.refused_expansions,
        topics.life_of_a_topic,
        placements.refused_moves,
        placements.to_and_fro,
        placements.refused_elections,
        placements.elections_twice,
        configs.refused_configs,
        configs.configs_to_and_fro,
        configs.settings_of_controllers,
        configs.refused_features,
        restrictions.refused_restrictions,
        restrictions.set_and_lifted,
        restrictions.all_drained,
        restrictions.forgotten,
        leaders.spoilt_proposals,
        leaders.brokers_of_former_lives,
        members.refused_members,
        members.life_of_a_group,
        records.refused_reads_and_writes,
        nonsense.edited_into_nonsense,
        znodes.topics_on_the_move,
        znodes.topics_on_controllers,
    )
}


class Oddities:
    """Each scenario is a task of its own; all of them are one operator's. ``begun``: how many there were."""

    def __init__(self, cluster: OddCluster) -> None:
        self._cluster = cluster
        self.operator = Operator(cluster)
        self.begun = 0
        self.edits = Edits()

    def begin(self, scenario: str, seed: int) -> None:
        self.begun += 1
        asker = Asker(self._cluster, self.operator, self.edits, self.begun, Random(seed))
        self._cluster.loop.spawn(self.operator.process, self._run(scenario, asker))

    async def _run(self, scenario: str, asker: Asker) -> None:
        try:
            await SCENARIOS[scenario](asker)
        except OverError:
            return
