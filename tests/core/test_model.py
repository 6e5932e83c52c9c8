"""What the model of the cluster takes up, and what it forgets."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.core.model import Cluster, Partition, ReplicaState, Topic, broker_ids, states
from controller.core.model.cluster import PROBLEMS_SHOWN_MAX
from controller.core.model.reassignments import Ineligible, Reassignments
from controller.core.topics.reasons import CreatedAnew
from tests.support.core.world import state

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


def test_queued_moves_begin_in_the_order_in_which_they_were_asked_for() -> None:
    known = Reassignments()
    topic = Topic("t")
    moves = [Partition(topic, number, (1, 2)) for number in (7, 3, 10, 1)]
    known.queued = dict.fromkeys(moves, (3,))
    known.stalled = {moves[1]: Ineligible(CreatedAnew(), 9), moves[2]: Ineligible(CreatedAnew())}
    assert known.in_turn() == [moves[0], moves[2], moves[3]], "but for those that are tried later"


def test_a_stray_replica_that_is_gone_was_never_refused() -> None:
    known = Reassignments()
    for broker_id in (4, 5):
        known.keep_stray(KEPT, broker_id, Ineligible(CreatedAnew()))
        known.refusals[KEPT, broker_id] = 3
    assert [known.drop_stray(KEPT, 4), known.drop_stray(KEPT, 4), known.strays_of(KEPT)] == [
        True,
        False,
        (5,),
    ]
    assert known.refusals == {(KEPT, 5): 3}
    assert known.drop_stray(KEPT, 5)
    assert not known.strays


@pytest.mark.parametrize("count", [2, 40])
def test_who_is_assigned_again_is_not_departing(count: int) -> None:
    """Of few replicas and of many."""
    everyone = tuple(range(count))
    partition = Partition(Topic("t"), 0, everyone)
    for broker_id in everyone:
        partition.set_states([broker_id], ReplicaState.ONLINE)
    partition.reassign(everyone[:-2] or everyone[:1])
    leaving = set(everyone) - set(partition.replicas)
    assert set(partition.departing) == leaving
    partition.assign((*partition.replicas, everyone[-1]))
    assert set(partition.departing) == leaving - {everyone[-1]}


def test_topics_that_were_prepared_come_beside_those_that_are_known() -> None:
    cluster = Cluster(100, 7)
    known, prepared = Topic("known", "id of known"), Topic("prepared", "id of prepared")
    cluster.add_topic(known)
    # One that was made anew since: what has been read now counts.
    former = Topic("known", "former id")
    cluster.adopt(
        {"prepared": prepared, "known": former}, {"id of prepared": prepared, "id of known": former}
    )
    assert cluster.topics == {"known": known, "prepared": prepared}
    assert cluster.topic_by_id("id of known") is known
    assert cluster.topic_by_id("id of prepared") is prepared


def test_replicas_that_leave_one_after_the_other_are_all_known_until_they_are_deleted() -> None:
    partition = Partition(Topic("t"), 0, (1, 2, 3))
    partition.set_states((1, 2, 3), ReplicaState.ONLINE)
    partition.reassign((1, 2))
    partition.reassign((1,))
    assert partition.departing == {2: ReplicaState.ONLINE, 3: ReplicaState.ONLINE}
    partition.set_departing({3: ReplicaState.NON_EXISTENT})
    assert [partition.replica_state(b) for b in (1, 2, 3)] == [
        ReplicaState.ONLINE,
        ReplicaState.ONLINE,
        ReplicaState.NON_EXISTENT,
    ]


def test_a_topic_that_goes_leaves_its_id_to_who_has_it_now() -> None:
    cluster, former, present = Cluster(100, 7), Topic("former", "id"), Topic("present", "id")
    cluster.add_topic(former)
    cluster.add_topic(present)
    cluster.remove_topic("former")
    assert cluster.topic_by_id("id") is present
    cluster.remove_topic("present")
    assert cluster.topic_by_id("id") is None


def test_what_is_shared_is_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, limit in ((broker_ids, "_INTERNED_MAX"), (states, "_SHARED_STATES_MAX")):
        monkeypatch.setattr(module, limit, 3)
    for module, cache in ((broker_ids, "_interned"), (states, "_shared_states"), (states, "_with_state")):
        monkeypatch.setattr(module, cache, {})
    sizes = set()
    for number in range(20):
        broker_ids.interned((number,))
        states.with_state((ReplicaState.ONLINE,) * (number % 10 + 1), 0, ReplicaState.NEW)
        sizes.add((len(broker_ids._interned), len(states._shared_states), len(states._with_state)))
    assert [max(size) for size in zip(*sizes, strict=True)] == [4, 3, 3]


def test_so_many_problems_are_shown() -> None:
    cluster = Cluster(100, 1)
    cluster.problems.update({f"/brokers/topics/{n}": "odd" for n in range(PROBLEMS_SHOWN_MAX + 5)})
    assert cluster.some_problems() == dict(list(cluster.problems.items())[:PROBLEMS_SHOWN_MAX])


@pytest.mark.parametrize(
    ("isr", "min_isr", "spare"), [((1, 2, 3), 2, 1), ((1, 2), 2, 0), ((1,), 2, -1), ((1, 2, 3), 5, 0)]
)
def test_members_beyond_those_that_writes_need(isr: tuple[int, ...], min_isr: int, spare: int) -> None:
    assert state(1, isr).spare((1, 2, 3), min_isr) == spare


@pytest.mark.parametrize(
    ("adding", "isr", "imbalanced"), [((), (1, 2), True), ((2,), (1, 2), True), ((2,), (1,), False)]
)
def test_who_is_being_added_first_misses_the_lead_once_it_is_in_sync(
    adding: tuple[int, ...], isr: tuple[int, ...], imbalanced: bool
) -> None:
    partition = Partition(Topic("t"), 0, (2, 1), adding)
    partition.leadership = state(1, isr)
    assert Cluster(100, 1).is_imbalanced(partition) is imbalanced
