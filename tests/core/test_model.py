"""What the model of the cluster takes up, and what it forgets."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.core.model import Cluster, Partition, ReplicaState, Topic
from controller.core.model.reassignments import Ineligible, Reassignments
from controller.core.topics.reasons import CreatedAnew

GONE, KEPT = (Partition(Topic(name), 0, (1, 2)) for name in ("gone", "kept"))


def test_of_a_topic_that_vanished_no_reassignment_is_known_any_more() -> None:
    known = Reassignments()
    for partition in (GONE, KEPT):
        known.ongoing[partition] = (1,)
        known.queued[partition] = (3,)
        known.problems[partition] = CreatedAnew()
        known.strays[partition] = {4: Ineligible(CreatedAnew())}
        known.in_sync[partition] = None
        known.confirmed[partition] = 5
        known.refusals[partition, 4] = 1
    known.forget([GONE])
    kept: list[Mapping[Partition, object]] = [
        known.ongoing,
        known.queued,
        known.problems,
        known.strays,
        known.in_sync,
        known.confirmed,
    ]
    assert [list(by_partition) for by_partition in kept] == [[KEPT]] * len(kept)
    assert list(known.refusals) == [(KEPT, 4)]
    assert known.abandoned == {("gone", 0)}


@pytest.mark.parametrize("count", [2, 40])
def test_who_is_assigned_again_is_not_departing(count: int) -> None:
    """Of few replicas and of many."""
    everyone = tuple(range(count))
    partition = Partition(Topic("t"), 0, everyone)
    for broker_id in everyone:
        partition.set_replica_state(broker_id, ReplicaState.ONLINE)
    partition.reassign(everyone[:-2] or everyone[:1])
    leaving = set(everyone) - set(partition.replicas)
    assert set(partition.departing) == leaving
    partition.assign((*partition.replicas, everyone[-1]))
    assert set(partition.departing) == leaving - {everyone[-1]}


def test_topics_that_were_prepared_come_beside_those_that_are_known() -> None:
    cluster = Cluster(100, 7)
    known, prepared = Topic("known", "id of known"), Topic("prepared", "id of prepared")
    cluster.add_topic(known)
    cluster.adopt({"prepared": prepared}, {"id of prepared": prepared})
    assert cluster.topics == {"known": known, "prepared": prepared}
    assert cluster.topic_by_id("id of known") is known
    assert cluster.topic_by_id("id of prepared") is prepared
