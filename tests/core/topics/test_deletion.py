"""Topic deletion step by step: what is pushed and written in which order, what holds it up, and what frees it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.backoff import RETRY_FIRST_US, RETRY_MAX_US
from controller.core.context import CoreSettings
from controller.core.effects import Commit, DeleteNode, Read, ReadTopicTrees
from controller.core.events import Event, EventKind, StopReport
from controller.core.model import Partition, PartitionState, ReplicaState, Topic
from controller.core.records import PartitionTransition, ReplicaTransition, TopicChange
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import SetPause
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.topics import deletion, znode_deletion
from controller.core.topics.reasons import BeingReassigned, CreatedAnew, Unreachable, ZnodeUnreadable
from controller.core.znode_paths import DELETE_TOPICS, topic_path
from tests.support.core.deletions import active, check_gone, states
from tests.support.core.harness import Fate, MachineHarness, imbalance_count, offline_count
from tests.support.core.reassignments import ask
from tests.support.core.world import World, state_path

RETRY = Event(EventKind.TOPIC_DELETION_RETRY)


def deletes(rig: MachineHarness) -> list[str]:
    """Paths deleted, in order."""
    return [w.path for c in rig.commits() for w in c.writes if isinstance(w, DeleteNode)]


def topic_records(rig: MachineHarness) -> list[tuple[str, str, str]]:
    return [(change.topic, change.after, change.reason) for change in rig.recorded(TopicChange)]


def test_the_whole_way() -> None:
    world, rig = active(1, 2, t=[[1, 2]], other=[[2, 1]])
    world.configure("t", {"x": "y"})
    world.mark_for_deletion("t")
    topic = rig.cluster.topics["t"]
    rig.run()
    check_gone(world, rig, "t")
    assert topic.partitions == {}, "partitions refer to their topic, and nobody collects the leader's garbage"
    assert "t" not in world.configs
    assert deletes(rig) == [
        state_path("t"),
        "/brokers/topics/t/partitions/0",
        "/brokers/topics/t/partitions",
        topic_path("t"),
        "/config/topics/t",
        f"{DELETE_TOPICS}/t",
    ]
    assert rig.lines() == [
        "1 UMR t-0 leader -2 epoch 0 isr [1, 2]",
        "2 UMR t-0 leader -2 epoch 0 isr [1, 2]",
        "1 SR t-0 epoch -2 delete",
        "2 SR t-0 epoch -2 delete",
    ]
    assert topic_records(rig) == [("t", "deleting", ""), ("t", "deleted", "")]
    assert [(r.before, r.after) for r in rig.recorded(ReplicaTransition) if r.broker_id == 1] == [
        (ReplicaState.ONLINE, ReplicaState.OFFLINE),
        (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED),
        (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL),
        (ReplicaState.DELETION_SUCCESSFUL, ReplicaState.NON_EXISTENT),
    ]
    assert rig.rejects() == []
    rig.check_converged()


def test_partitions_being_deleted_never_count_as_offline() -> None:
    world, rig = active(1, t=[[1], [1]])
    rig.hold_stops = True
    world.mark_for_deletion("t")
    rig.run()
    assert {p.state for p in rig.cluster.partitions()} == {PartitionState.NON_EXISTENT}
    assert offline_count(rig.cluster) == 0
    assert imbalance_count(rig.cluster) == 0


def test_unknown_markers_are_erased_with_a_word() -> None:
    world, rig = active(1, t=[[1]])
    world.mark_for_deletion("nobody")
    rig.run()
    assert world.deletions == []
    assert rig.rejects() == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert deletes(rig) == [f"{DELETE_TOPICS}/nobody"]
    assert set(world.topics) == {"t"}


def test_disabled_markers_are_erased_with_a_word() -> None:
    world = World(1)
    world.create_topic("t", {0: [1]})
    rig = MachineHarness.active(world, settings=CoreSettings(delete_topic_enable=False))
    world.mark_for_deletion("t", "nobody")
    rig.run()
    assert world.deletions == []
    assert rig.rejects() == ["TOPIC_DELETION_DISABLED"] * 2
    assert rig.stored() == (1, 0, [1])


def test_created_and_marked_before_anybody_looked() -> None:
    """The marker is not taken for one of a topic that does not exist."""
    world, rig = active(1, known=[[1]])
    rig.world.watches.discard("/brokers/topics")
    world.create_topic("t", {0: [1]})
    world.mark_for_deletion("t", "known")
    rig.run()
    check_gone(world, rig, "t")
    check_gone(world, rig, "known")
    assert rig.rejects() == []
    assert [line for line in rig.lines("LISR") if " new" in line]


def test_an_unreadable_topic_waits_until_it_is_mended() -> None:
    world, rig = active(1)
    world.damage(topic_path("t"), "partitions: expected object")
    world.create_topic("t", {0: [1]})
    world.mark_for_deletion("t")
    rig.run()
    assert world.deletions == ["t"]
    assert rig.cluster.deletions_waiting == {"t": ZnodeUnreadable("partitions: expected object")}
    world.mend(topic_path("t"))
    rig.run()
    check_gone(world, rig, "t")


def test_a_topic_under_reassignment_lives_on_until_it_is_done() -> None:
    """Also when a leader dies meanwhile: a queued topic would get no other, and the move could never end."""
    world = World(1, 2, 3)
    world.create_topic("t", {0: [1, 2]})
    MachineHarness.active(world)
    world.topics["t"] = replace(
        world.topics["t"], partitions={0: (2, 3, 1)}, adding={0: (3,)}, removing={0: (1,)}
    )
    world.watches.clear()
    rig = MachineHarness.active(world, epoch=2)
    assert rig.partition().adding == (3,)
    world.mark_for_deletion("t")
    rig.run()
    assert rig.cluster.deletions_waiting == {"t": BeingReassigned("t-0")}
    assert rig.cluster.deletion_requested("t")
    rig.forget()
    world.broker_down(1)
    rig.run()
    assert rig.stored()[0] == 2
    assert not [line for line in rig.lines("UMR") if "leader -2" in line]
    rig.ask(rig.alter(2, rig.proposal([2, 3])))
    # The move is done; what it left on the dead broker is waited for like every other replica.
    assert (
        str(rig.cluster.deletions_ineligible["t"].reason)
        == "replica 1 of t-0: its broker or disk is not online"
    )
    world.broker_up(1)
    rig.run()
    check_gone(world, rig, "t")


def test_a_deletion_that_waits_for_a_move_goes_on_when_the_move_is_taken_back() -> None:
    """What would join is dead: without the way back both would wait for ever."""
    _, rig = active(1, 2, 3, t=[[1, 2]])
    assert ask(rig, {("t", 0): (3, 2)}) == {"t-0": "NONE"}
    rig.world.mark_for_deletion("t")
    rig.world.broker_down(3)
    rig.run()
    assert rig.cluster.deletions_waiting == {"t": BeingReassigned("t-0")}
    assert ask(rig, {("t", 0): (2, 1)}) == {"t-0": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert ask(rig, {("t", 0): None}) == {"t-0": "NONE"}
    rig.world.broker_up(3)
    rig.run()
    check_gone(rig.world, rig, "t")


def test_a_marker_taken_back_while_it_waits() -> None:
    world, rig = active(1)
    world.damage(topic_path("t"))
    world.create_topic("t", {0: [1]})
    world.mark_for_deletion("t")
    rig.run()
    world.commit([DeleteNode(f"{DELETE_TOPICS}/t")])
    rig.run()
    world.mend(topic_path("t"))
    rig.run()
    assert rig.stored() == (1, 0, [1])
    rig.check_converged()


def test_a_refused_delete_is_tried_again_after_growing_pauses() -> None:
    world, rig = active(1, 2, t=[[1, 2]])
    rig.stop_error = lambda broker, _: "KAFKA_STORAGE_ERROR" if broker == 2 else ""
    world.mark_for_deletion("t")
    rig.run()
    pauses = []
    for _ in range(9):
        held = rig.cluster.deletions_ineligible["t"]
        assert str(held.reason) == "replica 2 of t-0: its broker answered KAFKA_STORAGE_ERROR"
        assert states(rig, "t") == {1: {ReplicaState.DELETION_SUCCESSFUL}, 2: {ReplicaState.OFFLINE}}
        assert held.retry_at_us is not None
        pauses.append(held.retry_at_us - rig.now_us)
        assert not deletion.retry_due(rig.cluster, held.retry_at_us - 1)
        assert deletion.retry_due(rig.cluster, held.retry_at_us)
        rig.now_us = held.retry_at_us
        rig.forget()
        world.events.append(RETRY)
        rig.run()
        # Refused again, it is Offline again (reference, section 7.1: the retry set).
        assert rig.lines("SR") == ["2 SR t-0 epoch -2 delete", "2 SR t-0 epoch -2"]
    assert pauses[0] > RETRY_FIRST_US * 0.99
    assert pauses == sorted(pauses)
    assert RETRY_MAX_US * 0.99 < pauses[-1] <= RETRY_MAX_US
    rig.stop_error = lambda *_: ""
    rig.now_us += RETRY_MAX_US
    world.events.append(RETRY)
    rig.run()
    check_gone(world, rig, "t")
    assert rig.cluster.deletions_ineligible_count == {}


def test_nothing_is_tried_again_before_its_time() -> None:
    world, rig = active(1, t=[[1]])
    rig.stop_error = lambda *_: "UNKNOWN_SERVER_ERROR"
    world.mark_for_deletion("t")
    rig.run()
    rig.forget()
    world.events.append(RETRY)
    rig.run()
    assert rig.lines("SR") == []


def test_a_dead_broker_is_waited_for_without_trying() -> None:
    world, rig = active(1, 2, t=[[1, 2]])
    world.broker_down(2)
    rig.run()
    world.mark_for_deletion("t")
    rig.run()
    held = rig.cluster.deletions_ineligible["t"]
    assert (str(held.reason), held.retry_at_us) == (
        "replica 2 of t-0: its broker or disk is not online",
        None,
    )
    assert world.folders == {1: set(), 2: {("t", 0)}}
    world.broker_up(2)
    rig.run()
    check_gone(world, rig, "t")


def test_a_broker_that_is_leaving_still_deletes_its_own() -> None:
    world, rig = active(1, 2, t=[[1, 2]])
    rig.cluster.shutting_down.add(2)
    world.mark_for_deletion("t")
    rig.run()
    check_gone(world, rig, "t")


@pytest.mark.parametrize("back", ["returns", "bounces"])
def test_a_broker_that_dies_with_the_order_in_hand(back: str) -> None:
    world, rig = active(1, 2, t=[[1, 2]])
    rig.hold_stops = True
    world.mark_for_deletion("t")
    rig.run()
    rig.stops, late = [r for r in rig.stops if r.broker_id == 1], [r for r in rig.stops if r.broker_id == 2]
    rig.answer_stops()
    rig.run()
    world.folders[2].add(("t", 0))  # it died before its disk did it
    if back == "returns":
        world.broker_down(2)
        rig.run()
        assert str(rig.cluster.deletions_ineligible["t"].reason) == "replica 2 of t-0: its broker is gone"
        assert states(rig, "t")[2] == {ReplicaState.OFFLINE}
        world.broker_up(2)
    else:
        world.bounce(2)
    rig.run()
    assert states(rig, "t")[2] == {ReplicaState.DELETION_STARTED}
    # What the dead incarnation had answered says nothing of this one.
    (again,), rig.stops = rig.stops, late
    rig.answer_stops()
    rig.run()
    assert states(rig, "t")[2] == {ReplicaState.DELETION_STARTED}
    rig.stops = [again]
    rig.answer_stops()
    rig.run()
    check_gone(world, rig, "t")


def test_an_answer_of_a_former_incarnation_counts_for_nothing() -> None:
    world, rig = active(1, t=[[1]])
    rig.hold_stops = True
    world.mark_for_deletion("t")
    rig.run()
    (report,) = rig.stops
    rig.stops[:] = [StopReport(1, report.broker_epoch - 1, report.deleted)]
    rig.answer_stops()
    rig.run()
    assert states(rig, "t") == {1: {ReplicaState.DELETION_STARTED}}


def test_two_answers_of_one_replica_count_once() -> None:
    """It was told as a stray replica, and again with its topic; it may have refused the first time."""
    world, rig = active(1, 2, t=[[1, 2]])
    rig.hold_stops = True
    world.mark_for_deletion("t")
    rig.run()
    first, second = rig.stops
    again = StopReport(2, second.broker_epoch, [], [(p, "KAFKA_STORAGE_ERROR") for p in second.deleted])
    rig.do(lambda context: deletion.answered(context, [first, again, first, second]))
    assert states(rig, "t") == {b: {ReplicaState.DELETION_SUCCESSFUL} for b in (1, 2)}
    assert rig.rejects() == []
    assert rig.cluster.deletions_ineligible == {}


def test_a_topic_waits_for_all_its_brokers_and_each_refusal_counts() -> None:
    """Of several brokers that refuse in one request none is left waiting for an answer that it has given."""
    world, rig = active(1, 2, 3, t=[[1, 2, 3]])
    rig.hold_stops = True
    world.mark_for_deletion("t")
    rig.run()
    first, *others = rig.stops
    rig.do(lambda context: deletion.answered(context, [first]))
    assert rig.cluster.deletions_to_resume == set()
    failed = [
        StopReport(r.broker_id, r.broker_epoch, [], [(p, "KAFKA_STORAGE_ERROR") for p in r.deleted])
        for r in others
    ]
    rig.do(lambda context: deletion.answered(context, failed))
    ineligible = {b: {ReplicaState.DELETION_INELIGIBLE} for b in (2, 3)}
    assert states(rig, "t") == {1: {ReplicaState.DELETION_SUCCESSFUL}, **ineligible}
    assert rig.cluster.deletions_to_resume == {"t"}


def test_a_disk_fails_during_deletion_and_comes_back() -> None:
    world, rig = active(1, 2, t=[[1, 2]], other=[[2]])
    rig.hold_stops = True
    world.mark_for_deletion("t")
    rig.run()
    rig.stops = [r for r in rig.stops if r.broker_id == 1]
    partition = rig.partition("t")
    rig.drive(lambda context: deletion.replicas_failed(context, [(partition, 2)], Unreachable.DISK_FAILED))
    assert str(rig.cluster.deletions_ineligible["t"].reason) == "replica 2 of t-0: its disk failed"
    # Healthy before the other broker has answered: it waits for that.
    rig.drive(lambda context: deletion.replicas_back(context, [(partition, 2)]))
    assert states(rig, "t") == {1: {ReplicaState.DELETION_STARTED}, 2: {ReplicaState.DELETION_INELIGIBLE}}
    rig.hold_stops = False
    rig.answer_stops()
    rig.run()
    check_gone(world, rig, "t")


def test_only_what_was_asked_for_counts() -> None:
    """Answers about topics whose deletion has not begun change nothing."""
    world, rig = active(1, t=[[1]])
    epoch = world.brokers[1].epoch
    report = StopReport(1, epoch, [rig.partition()], [(rig.partition(), "KAFKA_STORAGE_ERROR")])
    world.events.append(Event(EventKind.STOP_REPLICA_RESPONSE, body=report, serial=1))
    rig.run()
    assert rig.partition().replica_state(1) is ReplicaState.ONLINE
    assert rig.rejects() == []


def test_a_refusal_that_comes_after_the_answer_changes_nothing() -> None:
    world, rig = active(1, 2, t=[[1, 2]])
    rig.slow.add(2)
    world.mark_for_deletion("t")
    rig.run()
    late = StopReport(1, world.brokers[1].epoch, [], [(rig.partition(), "KAFKA_STORAGE_ERROR")])
    assert rig.partition().replica_state(1) is ReplicaState.DELETION_SUCCESSFUL
    world.events.append(Event(EventKind.STOP_REPLICA_RESPONSE, body=late, serial=1))
    rig.run()
    assert rig.partition().replica_state(1) is ReplicaState.DELETION_SUCCESSFUL


def test_a_slow_broker_hears_of_the_deletion_before_it_hears_of_the_new_topic() -> None:
    world, rig = active(1, 2, t=[[1], [1]])
    rig.slow.add(2)
    world.mark_for_deletion("t")
    rig.run()
    world.create_topic("t", {0: [1]})
    rig.run()
    assert sorted(rig.received[2].metadata) == [("t", 0), ("t", 1)]
    rig.slow.clear()
    rig.forget()
    rig.drain()
    assert rig.lines("UMR") == [
        "2 UMR t-0 leader -2 epoch 0 isr [1]",
        "2 UMR t-1 leader -2 epoch 0 isr [1]",
        "2 UMR t-0 leader 1 epoch 0 isr [1]",
    ]
    # The broker forgets the id with the last partition: that must not be the new topic's.
    assert len(rig.sent) == 2
    rig.check_converged()


def test_in_small_batches_the_marker_still_goes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(znode_deletion, "BATCH_WRITES", 2)
    world, rig = active(1, t=[[1]] * 5)
    world.configure("t", {})
    world.mark_for_deletion("t")
    rig.run()
    check_gone(world, rig, "t")
    batches = [
        [w.path for w in c.writes if isinstance(w, DeleteNode)]
        for c in rig.commits()
        if isinstance(c.writes[0], DeleteNode)
    ]
    assert [len(b) for b in batches] == [2, 2, 2, 2, 2, 1, 3]
    assert batches[-1] == [topic_path("t"), "/config/topics/t", f"{DELETE_TOPICS}/t"]


def test_what_is_not_there_is_not_in_a_batch() -> None:
    """One such delete would fail its batch, and those that are under way behind it with it."""
    world, rig = active(1, t=[[1]])
    world.mark_for_deletion("t")
    rig.run()
    check_gone(world, rig, "t")
    assert DeleteNode("/config/topics/t") not in [w for c in rig.commits() for w in c.writes]


def test_znodes_that_cannot_be_deleted_are_tried_again_later_and_explained() -> None:
    world, rig = active(1, t=[[1]])
    rig.fate = lambda c: Fate.LOST if isinstance(c.writes[0], DeleteNode) else Fate.ANSWERED
    world.mark_for_deletion("t")
    rig.run()
    held = rig.cluster.deletions_ineligible["t"]
    assert str(held.reason).startswith("its znodes could not be deleted: the connection was lost")
    assert held.retry_at_us is not None
    rig.fate = lambda _: Fate.ANSWERED
    rig.now_us = held.retry_at_us
    rig.forget()
    world.events.append(RETRY)
    rig.run()
    check_gone(world, rig, "t")
    assert rig.rejects() == []


def test_what_was_wrong_with_a_state_is_forgotten_with_its_topic() -> None:
    world, rig = active(1, t=[[1]])
    world.damage("/brokers/topics/t/partitions/0/state")
    rig = MachineHarness(world, epoch=2).failover()
    assert rig.cluster.problems
    rig.forget()
    world.mark_for_deletion("t")
    rig.run()
    check_gone(world, rig, "t")
    assert rig.cluster.problems == {}
    queries = [e.query for e in rig.effects if isinstance(e, Read) and isinstance(e.query, ReadTopicTrees)]
    assert [dict(query.expected) for query in queries] == [{}], "a state that was never read may not be there"


def test_a_topic_that_waits_for_its_deletion_loses_its_leader_with_the_replica() -> None:
    """Nobody is elected for it: it goes offline as the ISR of its last replica is written."""
    world, _ = active(1, 2, 3, t=[[1, 2]])
    world.broker_down(2)
    world.deletions = ["t"]
    rig = MachineHarness.active(world, epoch=2)
    assert rig.partition().state is PartitionState.ONLINE
    rig.forget()
    world.broker_down(1)
    rig.run()
    moved = [(t.after, t.leadership and t.leadership.leader) for t in rig.recorded(PartitionTransition)]
    assert moved == [(PartitionState.OFFLINE, -1)]


def test_a_topic_that_waits_for_its_deletion_is_led_while_its_leader_lives() -> None:
    world, _ = active(1, 2, 3, t=[[1, 2, 3]])
    world.broker_down(3)
    world.deletions = ["t"]
    rig = MachineHarness.active(world, epoch=2)
    rig.forget()
    world.broker_down(2)
    rig.run()
    assert rig.recorded(PartitionTransition) == []
    assert rig.partition().state is PartitionState.ONLINE


def test_a_topic_whose_znodes_are_to_be_tried_later_is_not_tried_with_another() -> None:
    world, rig = active(1, 2, t=[[1]], u=[[2]])
    rig.hold_stops = True
    world.mark_for_deletion("t")
    rig.run()
    world.broker_down(1)
    rig.run()
    rig.hold_stops = False
    rig.fate = lambda c: Fate.LOST if isinstance(c.writes[0], DeleteNode) else Fate.ANSWERED
    world.mark_for_deletion("u")
    rig.run()
    rig.fate, rig.hold_stops = lambda _: Fate.ANSWERED, True
    rig.forget()
    world.broker_up(1)
    rig.run()
    assert states(rig, "t") == {1: {ReplicaState.DELETION_STARTED}}
    assert deletes(rig) == []
    assert "u" in rig.cluster.deletions_ineligible


def test_a_state_that_is_gone_holds_nothing_up() -> None:
    world, rig = active(1, 2, t=[[1, 2]])
    del world.states[("t", 0)]
    world.mark_for_deletion("t")
    rig.run()
    check_gone(world, rig, "t")


def test_a_topic_without_partitions() -> None:
    world, rig = active(1, t=[])
    world.mark_for_deletion("t")
    rig.run()
    check_gone(world, rig, "t")


def test_elections_and_requests_skip_it() -> None:
    world, rig = active(1, 2, t=[[1, 2]])
    rig.hold_stops = True
    world.mark_for_deletion("t")
    rig.run()
    before = rig.stored()
    rig.forget()
    world.ask_preferred(("t", 0))
    rig.run()
    assert rig.rejects() == ["INVALID_TOPIC_EXCEPTION"]
    assert rig.stored() == before
    assert rig.lines("LISR") == []


def test_refused_markers_are_erased_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "BATCH_WRITES", 2)
    world, rig = active(1, t=[[1]])
    rig.forget()
    for number in range(5):
        world.mark_for_deletion(f"unknown{number}")
    rig.run()
    assert world.deletions == []
    assert max(len(commit.writes) for commit in rig.commits()) == 2
    assert len(deletes(rig)) == 5


def test_many_deletions_begin_in_several_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers delete the replicas of the first topics while the next ones begin, and nothing else waits for all."""
    monkeypatch.setattr(deletion, "BEGUN_MAX", 3)
    world, rig = active(1, 2, **{name: [[1, 2], [2, 1]] for name in ("a", "b", "c")})
    world.mark_for_deletion("a", "b", "c")
    while not rig.finished:
        rig.advance()
    assert rig.cluster.topics_to_delete == {"a", "b", "c"}
    assert "a" in rig.cluster.topics_deletion_started
    assert "c" not in rig.cluster.topics_deletion_started
    assert rig.cluster.deletions_to_resume.isdisjoint(rig.cluster.topics_deletion_started)
    rig.hold_stops = True
    while rig.cluster.topics_deletion_started != {"a", "b", "c"}:
        assert rig.advance(), "no answer of a broker is needed for the next ones"
    rig.hold_stops = False
    rig.run()
    rig.answer_stops()
    rig.run()
    for name in ("a", "b", "c"):
        check_gone(world, rig, name)


def test_each_reason_why_it_waits_is_recorded() -> None:
    world, rig = active(1, 2, t=[[1, 2]])
    rig.stop_error = lambda broker, _: "KAFKA_STORAGE_ERROR" if broker == 1 else ""
    world.mark_for_deletion("t")
    rig.run()
    rig.stop_error = lambda broker, _: "UNKNOWN_SERVER_ERROR" if broker == 1 else ""
    rig.now_us += RETRY_MAX_US
    world.events.append(RETRY)
    rig.run()
    assert rig.cluster.deletions_ineligible_count == {"t": 2}
    reasons = [record.reason for record in rig.recorded(TopicChange) if record.after.startswith("ineligible")]
    assert [reason.split()[-1] for reason in reasons] == ["KAFKA_STORAGE_ERROR", "UNKNOWN_SERVER_ERROR"]


def test_a_reason_that_changes_while_it_waits_is_recorded() -> None:
    world, rig = active(1, 2, 3, t=[[1, 2, 3]])
    rig.stop_error = lambda broker, _: "KAFKA_STORAGE_ERROR" if broker != 3 else ""
    world.mark_for_deletion("t")
    rig.run()
    world.broker_down(2)
    rig.run()
    reasons = [record.reason for record in rig.recorded(TopicChange) if record.after.startswith("ineligible")]
    assert "KAFKA_STORAGE_ERROR" in reasons[0]
    assert "KAFKA_STORAGE_ERROR" not in reasons[-1]


def test_a_deletion_that_has_begun_goes_on_while_the_controller_is_paused() -> None:
    world, rig = active(1, 2, t=[[1, 2]])
    rig.stop_error = lambda *_: "UNKNOWN_SERVER_ERROR"
    world.mark_for_deletion("t")
    rig.run()
    (reply,) = rig.ask(SetPause(True, "r", "ann"))
    assert reply.error is ErrorCode.NONE
    rig.stop_error = lambda *_: ""
    rig.now_us += RETRY_MAX_US
    world.events.append(RETRY)
    rig.run()
    check_gone(world, rig, "t")


def test_what_waits_is_looked_at_from_time_to_time() -> None:
    world, rig = active(1, t=[[1]])
    world.deletions.append("t")
    rig.cluster.deletions_waiting["t"] = CreatedAnew()
    rig.chronicle.forget()
    assert deletion.retry_due(rig.cluster, rig.now_us)
    world.events.append(RETRY)
    rig.run()
    check_gone(world, rig, "t")


def test_an_answer_about_a_former_topic_of_the_name_counts_for_nothing() -> None:
    world, rig = active(1, t=[[1]])
    rig.hold_stops = True
    world.mark_for_deletion("t")
    rig.run()
    former = Partition(Topic("t"), 0, (1,))
    former.set_states([1], ReplicaState.DELETION_STARTED)
    epoch = world.brokers[1].epoch
    rig.stops = [StopReport(1, epoch, [former]), StopReport(1, epoch, [], [(former, "KAFKA_STORAGE_ERROR")])]
    rig.answer_stops()
    rig.run()
    assert rig.cluster.deletions_ineligible == {}
    assert former.replica_state(1) is ReplicaState.DELETION_STARTED
    assert states(rig, "t") == {1: {ReplicaState.DELETION_STARTED}}


def test_after_a_failure_no_further_part_is_deleted_and_nothing_is_guessed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(znode_deletion, "BATCH_WRITES", 1)
    monkeypatch.setattr(znode_deletion, "WINDOW_BATCHES", 2)
    world, rig = active(1, t=[[1]])
    fates = iter([Fate.LOST])
    deleted: list[int] = []

    def fate(commit: Commit) -> Fate:
        if not isinstance(commit.writes[0], DeleteNode):
            return Fate.ANSWERED
        deleted.append(len(commit.writes))
        return next(fates, Fate.ANSWERED)

    rig.fate = fate
    rig.forget()
    world.mark_for_deletion("t")
    rig.run()
    check_gone(world, rig, "t")
    # Two were on their way when the first one failed; what is left is read, and all of it is deleted.
    assert deleted == [1, 1, *(1, 1, 1, 2)]
    queries = [e.query for e in rig.effects if isinstance(e, Read) and isinstance(e.query, ReadTopicTrees)]
    assert [dict(query.expected) for query in queries] == [{"t": [0]}, {}]


@pytest.mark.parametrize("known", [True, False])
def test_a_topic_made_again_just_before_its_znodes_are_deleted_is_read_first(known: bool) -> None:
    """Another controller, or a tool: the news of it is on its way."""
    world, rig = active(1, t=[[1]])
    rig.hold_stops = True
    world.mark_for_deletion("t")
    rig.run()
    if not known:
        rig.fate = lambda _: Fate.LOST
    world.delete_topic("t")
    world.create_topic("t", {0: [1], 1: [1]})
    news = list(world.events)
    world.events.clear()
    rig.hold_stops = False
    rig.answer_stops()
    while not rig.finished or rig.finished[-1].kind is not EventKind.DELETION_PROGRESS:
        rig.advance()
    assert sorted(world.topics["t"].partitions) == [0, 1], "it is another topic"
    assert rig.cluster.deletions_waiting == {"t": CreatedAnew()}
    rig.fate = lambda _: Fate.ANSWERED
    world.events.extend(news)
    rig.run()
    check_gone(world, rig, "t")


def test_who_has_lost_the_disk_is_not_told_to_delete() -> None:
    world, rig = active(1, 2, t=[[1, 2]])
    world.lost[2] = {("t", 0)}
    world.notify_log_dir(2)
    rig.run()
    rig.forget()
    world.mark_for_deletion("t")
    rig.run()
    assert [line for line in rig.lines("SR") if line.endswith("delete")] == ["1 SR t-0 epoch -2 delete"]


def test_a_move_that_only_removes_is_waited_for() -> None:
    world, rig = active(1, 2, 3, t=[[1, 2, 3]])
    world.shrink_or_grow("t", 0, [1, 2])
    world.notify_isr(("t", 0))
    rig.run()
    rig.ask(AlterPartitionReassignments([PartitionReassignment("t", 0, (2, 3))]))
    assert rig.partition().removing == (1,)
    assert rig.partition().adding == ()
    world.mark_for_deletion("t")
    rig.run()
    assert list(rig.cluster.deletions_waiting) == ["t"]


def test_so_many_partitions_begin_together_and_at_least_one_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "BEGUN_MAX", 3)
    _, rig = active(1, a=[[1]] * 4, b=[[1]] * 2, c=[[1]], d=[[1]])
    assert deletion._first(rig.cluster, ["a", "b"]) == ["a"]
    assert deletion._first(rig.cluster, ["b", "c", "d"]) == ["b", "c"]
    assert deletion._first(rig.cluster, ["c", "d"]) == ["c", "d"]


def test_a_refused_marker_that_cannot_be_deleted_is_told_of() -> None:
    world, rig = active(1)
    rig.fate = lambda _: Fate.LOST
    world.mark_for_deletion("nobody")
    rig.run()
    assert rig.rejects() == ["UNKNOWN_TOPIC_OR_PARTITION", "CONFLICT"]
    assert world.deletions == ["nobody"]


def test_what_is_recorded_of_a_deletion_that_waits_and_is_held_up() -> None:
    world, rig = active(1, 2, t=[[1, 2]])
    rig.ask(SetPause(True, "disks", "ann"))
    world.mark_for_deletion("t")
    rig.run()
    world.broker_down(2)
    rig.run()
    rig.ask(SetPause(False, "disks", "ann"))
    world.broker_up(2)
    rig.run()
    check_gone(world, rig, "t")
    steps = [(change.before, change.after) for change in rig.recorded(TopicChange)]
    assert steps == [
        ("known", "waiting for deletion"),
        ("waiting for deletion", "deleting"),
        ("deleting", "ineligible for deletion"),
        ("ineligible for deletion", "deleting"),
        ("deleting", "deleted"),
    ]


def test_a_deletion_withdrawn_while_it_waits_is_recorded() -> None:
    world, rig = active(1, 2, t=[[1]])
    ask(rig, {("t", 0): [2]})
    world.mark_for_deletion("t")
    rig.run()
    world.deletions.clear()
    rig.forget()
    world.events.append(RETRY)
    rig.run()
    assert topic_records(rig) == [("t", "known", "its marker was removed")]
    assert not rig.cluster.deletion_requested("t")


def test_how_many_moves_are_waited_for_is_said() -> None:
    _, rig = active(1, 2, t=[[1], [1], [1]])
    ask(rig, {("t", 0): [2], ("t", 2): [2]})
    rig.world.mark_for_deletion("t")
    rig.run()
    assert rig.cluster.deletions_waiting["t"] == BeingReassigned("t-0", 2)
    assert str(BeingReassigned("t-0", 2)) == "t-0 is being reassigned (and 1 more)"
    assert str(BeingReassigned("t-0")) == "t-0 is being reassigned"


def test_what_is_suspended_is_not_tried_again_by_the_clock() -> None:
    """But when the suspension ends."""
    world, rig = active(1, 2, t=[[1, 2]])
    world.broker_down(2)
    rig.run()
    rig.ask(SetPause(True, "r", "ann"))
    rig.cluster.topics_to_delete.add("t")
    rig.chronicle.forget()
    rig.drive(lambda context: deletion.resume(context))
    held = rig.cluster.deletions_ineligible["t"]
    assert held.retry_at_us is None
    assert rig.cluster.deletions_ineligible_count == {}


def test_a_replica_that_fails_before_its_partition_had_a_state_is_held() -> None:
    world, rig = active(1, 2, t=[[2]])
    world.create_topic("n", {0: [3]})
    rig.run()
    partition = rig.partition("n")
    assert partition.leadership is None
    partition.replica_states = (ReplicaState.NEW,)
    rig.cluster.topics_to_delete.add("n")
    rig.chronicle.forget()
    rig.drive(lambda context: deletion.replicas_failed(context, [(partition, 3)], Unreachable.BROKER_GONE))
    assert states(rig, "n") == {3: {ReplicaState.OFFLINE}}
    assert "n" in rig.cluster.deletions_ineligible
