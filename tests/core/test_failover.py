"""onControllerFailover: the exact order of reads and pushes (reference 3.1), and whatever can be wrong at that time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from controller.core import failover
from controller.core.context import CoreSettings, Pause
from controller.core.effects import (
    AnyQuery,
    DeleteNode,
    FeatureAnswer,
    PutFeature,
    Read,
    ReadStates,
    SetState,
)
from controller.core.events import WATCHED, Event, EventKind
from controller.core.model import PartitionState, ReplicaState
from controller.core.partitions import leader_election, lost_data
from controller.core.records import BrokerChange, FailoverPhase, PartitionTransition
from controller.core.znode_paths import CLUSTER_ID, PREFERRED_ELECTION, topic_path
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World, state, state_path


def led(world: World, topic: str, partitions: dict[int, list[int]], leader_epoch: int = 5) -> None:
    """A topic whose partitions are led by their first replica, all in sync, leader epoch 5."""
    world.create_topic(topic, partitions)
    for number, replicas in partitions.items():
        world.put_state(topic, number, state(replicas[0], replicas, leader_epoch, 7))


def test_reads_come_in_the_order_of_the_reference() -> None:
    world = World(1, 2)
    led(world, "t", {0: [1, 2]})
    rig = MachineHarness.active(world, epoch=2)
    assert rig.reads() == [
        "ReadFeature",
        "ReadConfigChanges",
        "ReadNodes",
        "ReadSettings",
        "ReadNodes",
        "ReadNodes",
        "ReadNodes",
        "ReadNotifications",
        "ReadBrokers",
        "ReadNodes",
        "ReadTopicNames",
        "ReadPrepared",
        "ReadTopics",
        "ReadStates",
        "ReadPendingDeletions",
        "ReadReassignment",
        "ReadPreferredElection",
    ]
    assert rig.commits() == []
    rig.check_converged()


def test_pushes_brokers_first_then_leadership_then_metadata() -> None:
    world = World(1, 2)
    led(world, "t", {0: [1, 2]})
    rig = MachineHarness(world, epoch=2)
    rig.slow = {1, 2}
    rig.failover()
    rig.slow = set()
    rig.drain()
    state_line = "leader 1 epoch 5 isr [1, 2]"
    assert rig.lines() == [
        "1 UMR brokers [1, 2]",
        f"1 LISR t-0 {state_line}",
        f"1 UMR t-0 {state_line}",
        "2 UMR brokers [1, 2]",
        f"2 LISR t-0 {state_line}",
        f"2 UMR t-0 {state_line}",
    ]


def test_nothing_is_told_before_the_states_are_read() -> None:
    """The channel manager starts at the end of the context's initialisation (step 5)."""
    world = World(1)
    led(world, "t", {0: [1]})
    rig = MachineHarness(world)
    sent_before: list[int] = []
    answer = world.answer

    def spy(query: object) -> object:
        if isinstance(query, ReadStates):
            sent_before.append(len(rig.sent))
        return answer(query)  # type: ignore[arg-type]

    world.answer = spy  # type: ignore[method-assign]
    rig.failover()
    assert sent_before == [0]


def test_ready_only_when_everything_is_done() -> None:
    world = World(1)
    led(world, "t", {0: [1]})
    world.ask_preferred(("t", 0))
    rig = MachineHarness(world)
    rig.world.events.append(Event(EventKind.FAILOVER))
    while not rig.finished:
        assert rig.machine.ready is False
        assert rig.advance()
    assert rig.machine.ready
    assert world.preferred is None


def test_everything_watched_is_read_at_failover_and_after_a_reconnect() -> None:
    """Reads arm the watches: what is not read here is not heard of until the next reconnect."""
    world = World(1)
    led(world, "t", {0: [1]})
    rig = MachineHarness(world).failover()
    assert WATCHED.keys() <= world.watches
    world.lose_watches()
    rig.run()
    assert WATCHED.keys() <= world.watches


@pytest.mark.parametrize(
    ("before", "after", "writes"),
    [
        (None, FeatureAnswer(True, 0), [PutFeature(None)]),
        (FeatureAnswer(False, 4), FeatureAnswer(True, 5), [PutFeature(4)]),
        (FeatureAnswer(True, 4), FeatureAnswer(True, 4), []),
    ],
)
def test_feature_is_reconciled(before: FeatureAnswer, after: FeatureAnswer, writes: list[PutFeature]) -> None:
    world = World(1)
    world.feature = before
    rig = MachineHarness.active(world)
    assert world.feature == after
    assert [w for c in rig.commits() for w in c.writes] == writes


def test_an_unreadable_feature_is_left_alone_and_shown() -> None:
    world = World(1)
    world.unreadable["/feature"] = "not JSON"
    rig = MachineHarness.active(world)
    assert rig.commits() == []
    assert rig.cluster.problems == {"/feature": "not JSON"}
    assert rig.rejects() == ["MALFORMED"]


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.LANDED])
def test_a_feature_write_without_an_answer_does_not_stop_the_failover(fate: Fate) -> None:
    world = World(1)
    led(world, "t", {0: [1]})
    world.feature = None
    rig = MachineHarness(world)
    fates = iter([fate])
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    rig.failover()
    rig.check_converged()


def test_notifications_are_deleted_in_one_batch_before_brokers_are_read() -> None:
    world = World(1)
    paths = ["/log_dir_event_notification/log_dir_event_1", "/isr_change_notification/isr_change_2"]
    world.watched.update(dict.fromkeys(paths))
    rig = MachineHarness.active(world)
    assert world.notifications == []
    assert [list(c.writes) for c in rig.commits()] == [[DeleteNode(path) for path in paths]]
    names = [type(r.query).__name__ if isinstance(r, Read) else "Commit" for r in rig.effects]
    start = names.index("ReadNotifications")
    assert names[start : start + 3] == ["ReadNotifications", "Commit", "ReadBrokers"]


def test_topics_without_ids_get_one_and_those_with_keep_theirs() -> None:
    world = World(1)
    world.create_topic("old", {0: [1]}, topic_id="")
    world.create_topic("new", {0: [1]}, topic_id="given")
    rig = MachineHarness.active(world)
    assert world.topics["old"].topic_id == "generated-1"
    assert world.topics["new"].topic_id == "given"
    assert {t.name: t.id for t in rig.cluster.topics.values()} == {"old": "generated-1", "new": "given"}
    assert {t.name: t.version for t in rig.cluster.topics.values()} == {"old": 1, "new": 0}
    ids = {k: v for s in rig.sent if s.kind.value == "LeaderAndIsr" for k, v in s.message.topic_ids.items()}
    assert ids == {"old": "generated-1", "new": "given"}


def test_an_id_whose_answer_was_lost_is_the_one_that_landed() -> None:
    world = World(1)
    world.create_topic("t", {0: [1]}, topic_id="")
    rig = MachineHarness(world)
    fates = iter([Fate.LANDED])
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    rig.failover()
    assert rig.cluster.topics["t"].id == world.topics["t"].topic_id == "generated-1"


def test_one_conflicting_topic_does_not_keep_the_others_from_their_ids() -> None:
    """Section 14, point 3: only what conflicts is decided anew, the rest is resubmitted."""
    world = World(1)
    for name in ("a", "b", "c"):
        world.create_topic(name, {0: [1]}, topic_id="")
    rig = MachineHarness(world)
    edits = iter([lambda: world.expand_topic("b", {1: [1]})])

    def fate(_: object) -> Fate:
        next(edits, lambda: None)()
        return Fate.ANSWERED

    rig.fate = fate
    rig.failover()
    assert all(info.topic_id for info in world.topics.values())
    rig.check_converged()


def test_an_id_that_never_arrived_is_written_after_the_reconnection() -> None:
    world = World(1)
    world.create_topic("t", {0: [1]}, topic_id="")
    rig = MachineHarness(world)
    rig.reconnects = True
    fates = iter([Fate.LOST])
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    rig.failover()
    rig.check_converged()


def test_an_id_written_by_somebody_else_meanwhile_is_learned() -> None:
    world = World(1)
    world.create_topic("t", {0: [1]}, topic_id="")
    rig = MachineHarness(world)
    edits = iter([lambda: world.edit_topic("t", topic_id="theirs")])

    def fate(_: object) -> Fate:
        next(edits, lambda: None)()
        return Fate.ANSWERED

    rig.fate = fate
    rig.failover()
    assert rig.cluster.topics["t"].id == "theirs"
    rig.check_converged()


def test_a_topic_that_waits_for_deletion_gets_no_election_and_is_dropped_from_metadata() -> None:
    world = World(2)
    led(world, "gone", {0: [1, 2]})
    led(world, "t", {0: [1, 2]})
    world.deletions = ["gone", "unknown"]
    rig = MachineHarness.active(world)
    assert rig.cluster.topics_to_delete == {"gone"}
    assert rig.stored("t") == (2, 6, [2])
    assert rig.stored("gone")[0] == -1
    assert "2 UMR gone-0 leader -2 epoch 0 isr [1, 2]" in rig.lines("UMR")
    assert not [line for line in rig.lines("LISR") if "gone" in line]
    assert ("gone", 0) not in rig.received[2].metadata
    assert world.deletions == ["gone"]


def test_with_deletion_disabled_the_requests_are_erased() -> None:
    """KAFKA-3175."""
    world = World(1)
    led(world, "t", {0: [1]})
    world.deletions = ["t", "unknown"]
    rig = MachineHarness.active(world, settings=CoreSettings(delete_topic_enable=False))
    assert world.deletions == []
    assert rig.cluster.topics_to_delete == set()
    rig.check_converged()


def test_a_partition_without_a_state_is_initialised() -> None:
    world = World(1, 2)
    led(world, "t", {0: [1, 2]})
    world.expand_topic("t", {1: [2, 1]})
    rig = MachineHarness.active(world)
    assert rig.stored("t", 1) == (2, 0, [2, 1])
    assert "1 LISR t-1 leader 2 epoch 0 isr [2, 1] new" in rig.lines()
    rig.check_converged()


def test_who_lost_a_leader_is_elected_before_any_isr_is_shrunk() -> None:
    """The original shrinks first, and has leader -1 at an epoch of its own meanwhile."""
    world = World(2, 3)
    led(world, "a", {0: [2, 1, 3]})
    led(world, "t", {0: [1, 2, 3]})
    rig = MachineHarness.active(world)
    written = [
        (w.partition.name, w.new.leader, w.new.leader_epoch, w.new.isr)
        for c in rig.commits()
        for w in _sets(c.writes)
    ]
    assert written == [("t-0", 2, 6, (2, 3)), ("a-0", 2, 6, (2, 3))]
    assert rig.partition().replica_state(1) is ReplicaState.OFFLINE
    assert rig.partition("a").replica_state(1) is ReplicaState.OFFLINE
    rig.check_converged()


def _sets(writes: object) -> list[SetState]:
    return [w for w in writes if isinstance(w, SetState)]  # type: ignore[attr-defined]


def test_dead_follower_leaves_the_isr() -> None:
    """KAFKA-3143: replicas that were dead at failover stayed in the ISR."""
    world = World(1, 2)
    led(world, "t", {0: [1, 2, 3]})
    rig = MachineHarness.active(world)
    assert rig.stored() == (1, 6, [1, 2])
    rig.check_converged()


def test_a_whole_dead_isr_is_kept_and_any_member_leads_when_it_returns() -> None:
    world = World(3)
    led(world, "t", {0: [1, 2]})
    rig = MachineHarness.active(world)
    assert rig.stored() == (-1, 6, [1, 2])
    assert rig.partition().state is PartitionState.OFFLINE
    world.broker_up(2)
    rig.run()
    assert rig.stored() == (2, 7, [2])
    rig.check_converged()


def test_a_leaderless_partition_whose_isr_is_back_is_elected() -> None:
    world = World(1, 2)
    world.create_topic("t", {0: [1, 2]})
    world.put_state("t", 0, state(-1, [2], 5, 7))
    rig = MachineHarness.active(world)
    assert rig.stored() == (2, 6, [2])


def test_no_broker_at_all() -> None:
    world = World()
    led(world, "t", {0: [1]})
    rig = MachineHarness.active(world)
    assert rig.stored() == (-1, 6, [1])
    world.broker_up(1)
    rig.run()
    rig.check_converged()


def test_an_unreadable_state_is_shown_never_overwritten_and_hides_nobody() -> None:
    """Section 14, point 10."""
    world = World(1, 2)
    led(world, "t", {0: [1, 2], 1: [2, 1]})
    path = state_path("t", 0)
    world.unreadable[path] = "isr: expected array"
    before = world.states[("t", 0)]
    rig = MachineHarness.active(world)
    assert rig.cluster.problems == {path: "isr: expected array"}
    assert world.states[("t", 0)] == before
    assert rig.partition("t", 0).state is PartitionState.NEW
    assert rig.partition("t", 1).state is PartitionState.ONLINE
    world.broker_down(2)
    rig.run()
    assert rig.stored("t", 1) == (1, 6, [1])
    assert world.states[("t", 0)] == before


def test_an_unreadable_state_that_was_mended_is_taken_up_at_the_next_election() -> None:
    world = World(1, 2)
    led(world, "t", {0: [1, 2]})
    world.unreadable[state_path("t")] = "broken"
    rig = MachineHarness.active(world)
    world.mend(state_path("t"))
    world.broker_up(3)
    rig.run()
    assert rig.partition().state is PartitionState.ONLINE
    assert rig.stored() == (1, 6, [1, 2])
    assert rig.cluster.problems == {}
    rig.check_converged()


def test_an_unreadable_topic_hides_no_other_and_is_taken_up_once_mended() -> None:
    world = World(1, 2)
    led(world, "bad", {0: [1, 2]})
    led(world, "good", {0: [1, 2]})
    world.unreadable[topic_path("bad")] = "partitions: expected object"
    rig = MachineHarness.active(world)
    assert set(rig.cluster.topics) == {"good"}
    assert rig.cluster.problems == {topic_path("bad"): "partitions: expected object"}
    world.mend(topic_path("bad"))
    rig.run()
    assert rig.cluster.problems == {}
    rig.check_converged()


def test_an_unreadable_broker_hides_no_other() -> None:
    world = World(1, 2)
    led(world, "t", {0: [1, 2]})
    world.unreadable["/brokers/ids/2"] = "endpoints: missing"
    rig = MachineHarness.active(world)
    assert set(rig.cluster.brokers) == {1}
    assert rig.stored() == (1, 6, [1])
    assert rig.cluster.problems == {"/brokers/ids/2": "endpoints: missing"}
    world.mend("/brokers/ids/2")
    rig.run()
    assert rig.cluster.problems == {}
    rig.check_converged()


def test_a_state_of_a_newer_controller_is_not_touched() -> None:
    """Reference 2.4 and 5.2: a newer controller_epoch in the state fails that partition (it is not ours to decide)."""
    world = World(2)
    led(world, "t", {0: [1, 2]})
    world.put_state("newer", 0, state(1, [1, 2], 5, 7, controller_epoch=9))
    world.create_topic("newer", {0: [1, 2]})
    rig = MachineHarness(world, epoch=3)
    rig.failover()
    assert rig.stored("t")[0] == 2
    assert rig.stored("newer") == (1, 5, [1, 2])


# --- the preferred election znode (step 13) ---------------------------------------------------------------


def two_partitions() -> World:
    world = World(1, 2)
    world.create_topic("t", {0: [1, 2], 1: [1, 2]})
    for number in (0, 1):
        world.put_state("t", number, state(2, [1, 2], 5, 7))
    return world


def test_preferred_election_at_failover() -> None:
    world = two_partitions()
    world.ask_preferred(("t", 0))
    rig = MachineHarness.active(world)
    assert rig.stored("t", 0) == (1, 6, [1, 2])
    assert rig.stored("t", 1) == (2, 5, [1, 2])
    assert world.preferred is None
    rig.check_converged()


def test_of_preferred_elections_at_failover_those_that_were_held_are_counted() -> None:
    world = two_partitions()
    led(world, "other", {0: [3, 1]})
    world.put_state("other", 0, state(1, [1], 5, 7))
    world.ask_preferred(("t", 0), ("t", 1), ("other", 0))
    rig = MachineHarness.active(world)
    counts = {record.phase: record.count for record in rig.recorded(FailoverPhase)}
    assert counts["preferred_election"] == 2
    assert "PREFERRED_LEADER_NOT_AVAILABLE" not in rig.rejects()


def test_preferred_election_drops_what_cannot_be_elected_and_says_why() -> None:
    world = two_partitions()
    led(world, "led", {0: [1, 2]})
    led(world, "gone", {0: [1, 2]})
    world.create_topic("stateless", {0: [3]})
    world.deletions = ["gone"]
    world.ask_preferred(
        ("t", 0), ("t", 0), ("led", 0), ("gone", 0), ("t", 9), ("unknown", 0), ("stateless", 0)
    )
    rig = MachineHarness.active(world)
    assert rig.stored("t") == (1, 6, [1, 2])
    assert rig.stored("led") == (1, 5, [1, 2])
    assert not [line for line in rig.lines("LISR") if "gone" in line]
    assert world.preferred is None
    assert rig.rejects() == [
        "ELECTION_FAILED",  # stateless: no broker for it
        "INVALID_TOPIC_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "PREFERRED_LEADER_NOT_AVAILABLE",
    ]


def test_an_empty_request_is_deleted_too() -> None:
    world = World(1)
    world.ask_preferred()
    MachineHarness.active(world)
    assert world.preferred is None


def test_a_malformed_request_is_recorded_and_removed_and_the_next_one_heard() -> None:
    world = two_partitions()
    world.watched[PREFERRED_ELECTION] = []
    world.unreadable[PREFERRED_ELECTION] = "partitions: missing"
    rig = MachineHarness.active(world)
    assert rig.rejects() == ["MALFORMED"]
    assert rig.cluster.problems == {}
    world.ask_preferred(("t", 0))
    rig.run()
    assert rig.stored() == (1, 6, [1, 2])


def test_requests_one_after_the_other_are_all_heard() -> None:
    world = two_partitions()
    rig = MachineHarness.active(world)
    for number in (0, 1):
        world.ask_preferred(("t", number))
        rig.run()
        assert rig.stored("t", number) == (1, 6, [1, 2])
    assert world.preferred is None


def test_a_request_written_again_while_the_first_is_processed_is_heard() -> None:
    """KAFKA-6146: the node is looked at again after it was deleted."""
    world = two_partitions()
    rig = MachineHarness.active(world)
    again = iter([[("t", 1)]])

    def fate(commit: object) -> Fate:
        # Somebody creates the next request right after ours was deleted.
        if commit.writes == [DeleteNode(PREFERRED_ELECTION)] and (more := next(again, None)):  # type: ignore[attr-defined]
            world.commit([DeleteNode(PREFERRED_ELECTION)])
            world.watched[PREFERRED_ELECTION] = more
            return Fate.LOST
        return Fate.ANSWERED

    rig.fate = fate
    rig.reconnects = True
    world.ask_preferred(("t", 0))
    rig.run()
    assert rig.stored("t", 0)[0] == 1
    assert rig.stored("t", 1)[0] == 1
    assert world.preferred is None


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.LANDED])
def test_a_lost_answer_to_the_deletion_leaves_nobody_deaf(fate: Fate) -> None:
    """Section 14, point 10: a request node gone by another hand must not leave the controller deaf to the next one."""
    world = two_partitions()
    rig = MachineHarness.active(world)
    fates = iter([Fate.ANSWERED, fate])
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    rig.reconnects = True
    world.ask_preferred(("t", 0))
    rig.run()
    world.ask_preferred(("t", 1))
    rig.run()
    assert world.preferred is None
    assert rig.stored("t", 1) == (1, 6, [1, 2])


def test_states_are_read_in_parts_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "READ_STATES_CHUNK", 2)
    world = World(1)
    led(world, "t", {n: [1] for n in range(5)})
    rig = MachineHarness.active(world)
    reads = [e.query for e in rig.effects if isinstance(e, Read) and isinstance(e.query, ReadStates)]
    assert [[p.number for p in query.partitions] for query in reads] == [[0, 1], [2, 3], [4]]


def test_what_has_no_leader_at_a_failover_is_recorded() -> None:
    world = World(1)
    led(world, "t", {0: [1], 1: [2]})
    rig = MachineHarness.active(world)
    found = [(t.partition.number, t.after) for t in rig.recorded(PartitionTransition)]
    assert found == [(1, PartitionState.OFFLINE)]


def test_brokers_that_are_registered_at_a_failover_are_recorded() -> None:
    rig = MachineHarness.active(World(1, 2))
    assert [(change.broker_id, change.to) for change in rig.recorded(BrokerChange)] == [
        (1, "found"),
        (2, "found"),
    ]


def test_each_phase_is_recorded_with_what_it_handled() -> None:
    world = World(1, 2)
    led(world, "t", {0: [1, 2], 1: [2, 1]})
    rig = MachineHarness.active(world)
    counts = {record.phase: record.count for record in rig.recorded(FailoverPhase)}
    assert {name: counts[name] for name in ("brokers", "topics", "partitions", "replica_startup")} == {
        "brokers": 2, "topics": 1, "partitions": 2, "replica_startup": 4,
    }  # fmt: skip
    assert list(counts)[-4:] == ["reassignments", "deletions_resumed", "preferred_election", "ready"]
    assert counts["partition_startup"] == counts["ready"] == 2


def test_phases_follow_each_other_and_are_the_whole() -> None:
    world = World(1, 2)
    led(world, "t", {0: [1, 2]})
    rig = MachineHarness.active(world)
    *phases, whole = [record.duration_us for record in rig.recorded(FailoverPhase)]
    # Each step of the rig takes a millisecond; the last one is the whole's own.
    assert sum(phases) + 1000 == whole
    assert min(phases) > 0


def test_what_is_unreadable_and_cannot_be_led_is_shown() -> None:
    world = World(1)
    led(world, "t", {0: [2]})
    world.unreadable[state_path("t")] = "broken"
    rig = MachineHarness.active(world)
    assert rig.cluster.problems == {state_path("t"): "broken"}


def test_a_live_isr_that_shows_up_while_isrs_are_shrunk_gets_a_leader() -> None:
    """As when a broker dies: what the election did not know, the removal reads."""
    world = World(2, 3)
    led(world, "t", {0: [1, 2, 3]})
    world.put_state("t", 0, state(1, [1], 5, 7))
    changes: Iterator[Callable[[], object]] = iter(
        [lambda: None, lambda: world.shrink_or_grow("t", 0, [1, 2])]
    )
    rig = MachineHarness(world, epoch=2)
    answer = world.answer

    def changing(query: AnyQuery) -> object:
        if isinstance(query, ReadStates):
            found = answer(query)
            next(changes, lambda: None)()
            return found
        return answer(query)

    world.answer = changing  # type: ignore[method-assign]
    rig.failover()
    assert rig.stored()[0] == 2
    rig.check_converged()


def test_who_is_alive_is_told_before_who_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker takes no leader that it does not know to be alive."""
    world = World(1, 2)
    led(world, "t", {0: [1, 2]})
    rig = MachineHarness(world, epoch=2)
    refreshed: list[bool] = []

    def noting(*given: object) -> object:
        refreshed.extend(queue.refresh for queue in rig.machine.outbox.queues.values())
        return take_out(*given)  # type: ignore[arg-type]

    take_out = lost_data.take_out
    monkeypatch.setattr(lost_data, "take_out", noting)
    rig.slow = {1, 2}
    rig.failover()
    assert refreshed == [True, True]


def test_partitions_that_are_alike_are_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1, 2, 3)
    led(world, "t", {n: [1, 2, 3] for n in range(50)})
    led(world, "u", {n: [2, 1, 3] for n in range(50)})
    rig = MachineHarness.active(world)
    decided: list[str] = []
    for name in ("elect", "remove_from_isr"):
        original = getattr(leader_election, name)

        def counted(*args: object, name: str = name, original: Callable[..., object] = original) -> object:
            decided.append(name)
            return original(*args)

        monkeypatch.setattr(leader_election, name, counted)
    world.broker_down(1)
    rig.run()
    for number in range(50):
        assert rig.stored("t", number) == (2, 6, [2, 3])
        assert rig.stored("u", number) == (2, 6, [2, 3])
    assert decided == ["elect", "remove_from_isr"]


def test_others_have_their_turn_while_topics_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "ADDED_MAX", 2)
    pauses = []
    for count in (2, 8):
        world = World(1)
        for number in range(count):
            led(world, f"t{number}", {0: [1]})
        pauses.append(MachineHarness(world).pauses(failover._load_topics).count(Pause.YIELD))
    assert pauses == [1, 4]


def test_a_cluster_whose_id_cannot_be_written_has_none_and_is_led_all_the_same() -> None:
    world = World(1)
    led(world, "t", {0: [1]})
    del world.nodes[CLUSTER_ID]
    rig = MachineHarness(world)
    rig.fate = lambda effect: (
        Fate.LOST if getattr(effect.writes[0], "path", None) == CLUSTER_ID else Fate.ANSWERED
    )
    rig.failover()
    assert rig.cluster.cluster_id == ""
    assert CLUSTER_ID not in world.nodes
    assert "CONFLICT" in rig.rejects()
    assert rig.stored("t")[0] == 1
