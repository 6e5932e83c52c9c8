"""What counts towards the limits of concurrent reassignments, and why one is not complete."""

from __future__ import annotations

import pytest

from controller.core.context import CoreSettings
from controller.core.model import Attribution, Cluster, Freeze, Maintenance, Partition, Topic
from controller.core.reasons import Reason
from controller.core.reassignment.assignment import Assignment
from controller.core.reassignment.concurrency import (
    ConcurrencyLimit,
    by_urgency,
    lost_replicas,
    needs_leader,
    pending_reasons,
)
from controller.core.reassignment.reasons import BrokerLimit
from tests.support.core.harness import MachineHarness
from tests.support.core.reassignments import active, ask
from tests.support.core.world import state


def why(rig: MachineHarness, partition: Partition) -> list[Reason]:
    """The same, whether somebody asks about one or about many."""
    found = pending_reasons(rig.cluster, rig.settings, partition)
    running = ConcurrencyLimit(rig.cluster, rig.settings)
    assert pending_reasons(rig.cluster, rig.settings, partition, running) == found
    return found


def test_whoever_gets_or_loses_a_replica_takes_part() -> None:
    settings = CoreSettings(reassignment_concurrent_moves_per_broker_max=1)
    limit = ConcurrencyLimit(Cluster(100, 7), settings)
    one, other, third = (Partition(Topic("t"), number, (1, 2)) for number in range(3))
    running = Assignment((1, 2, 3), (3,), (2,))
    limit.take(one, running)
    assert limit.why_wait(one, running) is None, "it runs already"
    # 2 loses a replica already.
    why = limit.why_wait(other, Assignment((1, 4, 2), (4,), (2,)))
    assert why == BrokerLimit(2, 1, 1)
    limits = "reassignment_concurrent_moves_per_broker_max is 4"
    assert str(BrokerLimit(2, 5, 4)) == f"broker 2 takes part in 5 moves, and {limits}"
    assert limit.why_wait(third, Assignment((1, 4, 5), (4,), (5,))) is None


def test_a_replica_that_is_being_added_is_not_lost() -> None:
    cluster = Cluster(100, 7)
    partition = Partition(Topic("t"), 0, ())
    partition.reassign((1, 2, 3), (3,), (2,))
    assert lost_replicas(cluster, partition) == [1, 2], "no broker is registered"


def test_what_copies_nothing_does_not_count() -> None:
    limit = ConcurrencyLimit(Cluster(100, 7), CoreSettings(reassignment_concurrent_moves_max=1))
    one, other = (Partition(Topic("t"), number, (1, 2)) for number in range(2))
    limit.take(one, Assignment((1, 2), (), (2,)))
    assert limit.why_wait(other, Assignment((1, 2, 3), (3,), (2,))) is None


def test_a_freeze_holds_back_what_has_not_begun() -> None:
    rig = active(1, 2, 3, t=[[1], [1]])
    ask(rig, {("t", 0): [2]})
    frozen = rig.cluster.maintenance = Maintenance(freeze=Freeze("disks", "ann", 5))
    limit = ConcurrencyLimit(rig.cluster, CoreSettings())
    plan = Assignment((1,)).reassign_to((2,))
    assert limit.why_wait(rig.partition("t", 0), plan) is None
    assert limit.why_wait(rig.partition("t", 1), plan) == frozen.frozen


def test_what_has_lost_a_replica_comes_first_also_by_its_disk() -> None:
    rig = active(1, 2, 3, t=[[1, 2], [2, 1], [3, 1]])
    partitions = [rig.partition("t", number) for number in range(3)]
    assert by_urgency(rig.cluster, partitions) == partitions
    rig.cluster.offline_dirs[2] = {partitions[1]}
    assert by_urgency(rig.cluster, partitions) == [partitions[1], partitions[0], partitions[2]]
    rig.world.broker_down(3)
    rig.run()
    assert by_urgency(rig.cluster, partitions) == [partitions[1], partitions[2], partitions[0]]


# --- why one is not complete ---------------------------------------------------------------------------------


def test_one_that_waits_while_all_is_suspended_says_so_and_not_which_limit_there_is() -> None:
    settings = CoreSettings(reassignment_concurrent_moves_max=1)
    rig = active(1, 2, 3, settings=settings, t=[[1], [1]])
    ask(rig, {("t", 0): [2], ("t", 1): [3]})
    waiting = rig.partition("t", 1)
    assert ["reassignment_concurrent_moves_max is 1" in str(r) for r in why(rig, waiting)] == [True]
    rig.cluster.maintenance = Maintenance(entered=Attribution("outage", "ann"))
    assert ["outage" in str(r) for r in why(rig, waiting)] == [True]


def test_one_whose_targets_are_in_sync_and_away_names_them() -> None:
    rig = active(1, 2, 3, t=[[1, 2]])
    ask(rig, {("t", 0): [2, 3]})
    partition = rig.partition()
    partition.leadership = state(1, [1, 2, 3], 5, 9)
    assert why(rig, partition) == []
    for gone, reasons in (([2], []), ([2, 3], ["no target of [2, 3] is online to lead"])):
        for broker_id in gone:
            rig.cluster.brokers.pop(broker_id, None)
        assert [str(r) for r in why(rig, partition)] == reasons


@pytest.mark.parametrize(("leader", "suspended"), [(1, True), (2, False), (3, True), (-1, True)])
def test_while_elections_are_paused_one_that_needs_another_leader_says_so(
    leader: int, suspended: bool
) -> None:
    """From [1] to [2, 3], all in sync; broker 3 is away."""
    rig = active(1, 2, 3, t=[[1]])
    ask(rig, {("t", 0): [2, 3]})
    partition = rig.partition()
    partition.leadership = state(leader, [1, 2, 3], 5, 9)
    del rig.cluster.brokers[3]
    assert needs_leader(rig.cluster, partition) is suspended
    assert why(rig, partition) == []
    for given in (
        Maintenance(paused=Attribution("test", "ann")),
        Maintenance(entered=Attribution("outage", "ann")),
    ):
        rig.cluster.maintenance = given
        said = ["it needs another leader" in str(r) for r in why(rig, partition)]
        assert said == ([True] if suspended and given.paused else [])
