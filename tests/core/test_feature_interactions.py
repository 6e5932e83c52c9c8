"""Two things at once that touch each other: each of these once went wrong in a mixed walk (``test_mixed_walks``)."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.backoff import RETRY_FIRST_US, RETRY_MAX_US
from controller.core.commits import ATTEMPTS_MAX
from controller.core.config_keys import UNCLEAN
from controller.core.context import CoreSettings
from controller.core.effects import Commit, SetState, SetTopic
from controller.core.events import Event, EventKind
from controller.core.model import PartitionState, ReplicaState
from controller.core.reassignment import stray_replicas
from controller.core.requests.brokers import ControlledShutdown
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.operator import CancelShutdown, SetPause
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.requests.topics import CreatePartitions, DeleteTopics, Expansion, TopicRef
from controller.core.znode_paths import topic_path
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.reassignments import active, ask, assigned, check_moved, copy_all, join
from tests.support.core.world import World, state, state_path


def pause(rig: MachineHarness, on: bool) -> None:
    (reply,) = rig.ask(SetPause(on, "why", "who"))
    assert reply.error.name == "NONE"


# --- pauses ------------------------------------------------------------------------------------------------


def test_paused_a_topic_that_is_readable_again_is_taken_as_it_is() -> None:
    """Its partitions are new to this controller, but their states are there: nobody is elected, leaders go on."""
    world = World(1, 2)
    world.create_topic("t", {0: [1, 2], 1: [2, 1]})
    world.put_state("t", 0, state(1, [1, 2], 5))
    world.put_state("t", 1, state(-1, [2], 5))
    world.damage(topic_path("t"))
    rig = MachineHarness.active(world)
    pause(rig, True)
    world.mend(topic_path("t"))
    rig.run()
    assert (rig.stored("t", 0), rig.stored("t", 1)) == ((1, 5, [1, 2]), (-1, 5, [2]))
    assert [rig.partition("t", n).state for n in (0, 1)] == [PartitionState.ONLINE, PartitionState.OFFLINE]
    pause(rig, False)
    assert (rig.stored("t", 0), rig.stored("t", 1)) == ((1, 5, [1, 2]), (2, 6, [2]))
    rig.check_converged()


def test_paused_a_topic_that_permits_it_gets_no_unclean_leader_before_the_end() -> None:
    world = World(2)
    world.create_topic("t", {0: [1, 2]})
    world.put_state("t", 0, state(-1, [1], 5))
    rig = MachineHarness.active(world)
    pause(rig, True)
    world.put_node("/config/topics/t", {UNCLEAN: "true"})
    world.notify_config("topics/t")
    rig.run()
    assert rig.stored() == (-1, 5, [1])
    pause(rig, False)
    assert rig.stored() == (2, 6, [2])


def listed(rig: MachineHarness) -> list[str] | None:
    """What the legacy znode says; None: it is gone."""
    found = rig.world.reassignment
    return None if found is None else [f"{t}-{n} {list(ids)}" for t, n, ids in found.entries]


# --- moves that end with their topic -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["wiped", "wiped and created anew", "deleted while it waits"])
def test_the_legacy_znode_goes_with_the_topics_it_lists(how: str) -> None:
    """Tools wait for it to go, and no other can be written before."""
    rig = active(1, 2, 3, settings=CoreSettings(reassignment_concurrent_moves_max=1), t=[[1, 2]], u=[[1, 2]])
    if how == "deleted while it waits":
        assert ask(rig, {("u", 0): [1, 3]}) == {"u-0": "NONE"}
    rig.world.ask_reassignment({("t", 0): [3, 2]})
    rig.run()
    assert listed(rig) == ["t-0 [3, 2]"]
    if how == "deleted while it waits":
        rig.ask(DeleteTopics([TopicRef("t")]))
    else:
        rig.world.delete_topic("t")
        if how == "wiped and created anew":
            rig.world.create_topic("t", {0: [1, 2]})
        rig.run()
    assert listed(rig) is None
    assert ("t" in rig.world.topics) == (how == "wiped and created anew")
    copy_all(rig)
    rig.check_converged()


def test_a_topic_created_again_during_a_disconnect_gets_no_old_reassignment() -> None:
    rig = active(1, 2, 3, t=[[1, 2]])
    rig.world.ask_reassignment({("t", 0): [3, 2]})
    rig.run()
    rig.world.events.clear()
    rig.world.watches.clear()
    rig.world.delete_topic("t")
    rig.world.create_topic("t", {0: [1, 2]})
    rig.world.lose_watches()
    rig.run()
    assert listed(rig) is None
    assert assigned(rig) == ([1, 2], [], [])
    assert rig.cluster.reassignments.ongoing == {}


def test_what_else_the_legacy_znode_lists_stays_in_it() -> None:
    rig = active(1, 2, 3, t=[[1, 2]], u=[[1, 2]])
    rig.world.ask_reassignment({("t", 0): [3, 2], ("u", 0): [3, 2]})
    rig.run()
    rig.world.delete_topic("t")
    rig.run()
    assert listed(rig) == ["u-0 [3, 2]"]
    join(rig, [1, 2, 3], "u")
    assert listed(rig) is None


# --- problems that are over --------------------------------------------------------------------------------


def test_a_problem_of_a_state_ends_when_it_is_written() -> None:
    """Nobody watches states, so nobody says that one is mended; that ours landed says it."""
    rig = active(1, 2, 3, t=[[1, 2]])
    path = state_path("t")
    rig.world.damage(path)
    rig.world.notify_isr(("t", 0))
    rig.run()
    assert list(rig.cluster.problems) == [path]
    rig.world.mend(path)
    join(rig, [1])
    assert rig.cluster.problems == {}


def test_a_state_that_was_unreadable_at_failover_and_is_mended_is_found() -> None:
    """No broker has to come or go before somebody looks again."""
    world = World(1, 2)
    world.create_topic("t", {0: [1, 2]})
    world.put_state("t", 0, state(-1, [2], 5))
    world.damage(state_path("t"))
    rig = MachineHarness.active(world)
    assert rig.partition().leadership is None
    world.mend(state_path("t"))
    world.events.append(Event(EventKind.LEADER_REBALANCE))
    rig.run()
    assert rig.stored() == (2, 6, [2])
    assert rig.cluster.problems == {}
    rig.check_converged()


@pytest.mark.parametrize("value", ["true", "false", None])
def test_a_problem_of_a_configuration_ends_with_the_next_change_of_it(value: str | None) -> None:
    rig = active(1, 2, t=[[1, 2]])
    path = "/config/topics/t"
    rig.world.put_node(path, {UNCLEAN: "maybe"})
    rig.world.notify_config("topics/t")
    rig.run()
    assert rig.cluster.problems == {path: f"{UNCLEAN} = 'maybe': must be true or false"}
    rig.world.put_node(path, {} if value is None else {UNCLEAN: value})
    rig.world.notify_config("topics/t")
    rig.run()
    assert rig.cluster.problems == {}


def test_a_problem_of_a_configuration_goes_with_its_topic() -> None:
    rig = active(1, 2, t=[[1, 2]])
    rig.world.put_node("/config/topics/t", {UNCLEAN: "maybe"})
    rig.world.notify_config("topics/t")
    rig.run()
    rig.ask(DeleteTopics([TopicRef("t")]))
    assert "t" not in rig.cluster.topics
    assert rig.cluster.problems == {}


def test_a_replica_moved_off_a_failed_disk_is_forgotten_once_it_is_deleted() -> None:
    """Else its broker would be said to have lost it until it restarts."""
    rig = active(1, 2, 3, t=[[1, 2]])
    rig.world.lost[2] = {("t", 0)}
    rig.world.notify_log_dir(2)
    rig.run()
    assert rig.cluster.offline_dirs == {2: {rig.partition()}}
    assert ask(rig, {("t", 0): [1, 3]}) == {"t-0": "NONE"}
    rig.world.lost.clear()
    join(rig, [1, 3])
    assert rig.cluster.reassignments.strays == {}
    assert not any(rig.cluster.offline_dirs.values())


# --- moves -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("override", [None, [2, 3]], ids=["cancelled", "overridden"])
def test_a_move_taken_back_whose_new_replica_leads_is_led_on(
    override: list[int] | None, paused: bool
) -> None:
    """Somebody was there to lead, and nobody was asked to: the partition stayed without a leader until a failover."""
    rig = active(1, 2, 3, 4, t=[[1, 2]])
    rig.world.broker_down(2)
    rig.run()
    assert ask(rig, {("t", 0): [4, 2]}) == {"t-0": "NONE"}
    join(rig, [1, 4])
    rig.world.bounce(1)
    rig.run()
    assert rig.stored()[0] == 4
    join(rig, [1, 4])
    if paused:
        pause(rig, True)
    rig.forget()
    assert ask(rig, {("t", 0): override}) == {"t-0": "NONE"}
    leader, _, isr = rig.stored()
    assert (leader, isr) == (1, [1])
    # Handed over before the replica goes: at no time was there no leader.
    assert [s.leader for s in rig.world.history[("t", 0)]].count(-1) == 0
    assert rig.partition().state is PartitionState.ONLINE
    pause(rig, False)
    rig.world.broker_up(2)
    rig.run()
    copy_all(rig)
    rig.check_converged()


def test_the_isr_never_comes_down_to_a_replica_that_is_not_assigned() -> None:
    """Broker 3, leaving, leads; 2, in sync, is not to be added after all and deletes its replica; then 3 dies."""
    rig = active(1, 2, 3, 4, t=[[3]])
    assert ask(rig, {("t", 0): [4, 2]}) == {"t-0": "NONE"}
    rig.ask(ControlledShutdown(3, None))
    join(rig, [3, 2])
    assert ask(rig, {("t", 0): [3, 1]}) == {"t-0": "NONE"}
    assert ("t", 0) not in rig.world.folders[2]
    rig.world.broker_down(3)
    rig.run()
    assert rig.stored()[0] == -1
    assert 3 in rig.stored()[2]
    rig.world.broker_up(3)
    rig.run()
    assert (rig.stored()[0], rig.stored()[2]) == (3, [3])
    copy_all(rig)
    check_moved(rig, ("t", 0), [3, 1])
    rig.check_converged()


@pytest.mark.parametrize("znode", [False, True])
def test_a_request_that_would_leave_a_led_partition_without_a_leader_is_refused(znode: bool) -> None:
    """The replica that stays has all that was acknowledged, but its broker is leaving."""
    rig = active(1, 2, 3, t=[[1, 2]])
    rig.world.broker_down(2)
    rig.run()
    assert ask(rig, {("t", 0): [3, 2]}) == {"t-0": "NONE"}
    rig.ask(ControlledShutdown(1, None))
    join(rig, [1, 3])
    rig.ask(ElectLeaders(ElectionType.CHOSEN, [("t", 0)], 3))
    before = rig.stored()
    assert (before[0], before[2]) == (3, [1, 3])
    rig.forget()
    if znode:
        rig.world.ask_reassignment({("t", 0): [1, 2]})
        rig.run()
        assert listed(rig) is None
        assert rig.rejects() == ["INVALID_REPLICA_ASSIGNMENT"]
    else:
        assert ask(rig, {("t", 0): None}) == {"t-0": "INVALID_REPLICA_ASSIGNMENT"}
    assert rig.stored() == before
    rig.ask(CancelShutdown(1, -1))
    assert ask(rig, {("t", 0): None}) == {"t-0": "NONE"}
    assert (rig.stored()[0], rig.stored()[2]) == (1, [1])


def test_where_the_hand_over_is_lost_somebody_is_elected_all_the_same() -> None:
    rig = active(1, 2, 4, t=[[1, 2]])
    ask(rig, {("t", 0): [4, 2]})
    join(rig, [1, 4])
    rig.world.bounce(1)
    rig.run()
    join(rig, [4, 1])
    elections = 0

    def fate(commit: Commit) -> Fate:
        nonlocal elections
        (write,) = commit.writes[:1]
        if isinstance(write, SetState) and write.new.leader == 1 and elections < ATTEMPTS_MAX:
            elections += 1
            return Fate.LOST
        return Fate.ANSWERED

    rig.fate = fate
    assert ask(rig, {("t", 0): None}) == {"t-0": "NONE"}
    assert elections == ATTEMPTS_MAX
    assert rig.stored()[0] == 1
    rig.check_converged()


def test_a_replica_that_was_to_be_deleted_and_is_added_again_is_online_in_the_end() -> None:
    """The next controller took it for one that is Offline, and nothing ever made it Online."""
    rig = active(1, 2, 3, t=[[1, 2]])
    rig.stop_error = lambda broker, _: "UNKNOWN_SERVER_ERROR" if broker == 2 else ""
    ask(rig, {("t", 0): [1]})
    rig.world.watches.clear()
    rig = MachineHarness(rig.world, epoch=2)
    rig.stop_error = lambda *_: "UNKNOWN_SERVER_ERROR"
    rig.world.ask_reassignment({("t", 0): [1, 2]})
    rig.failover()
    join(rig, [1, 2])
    assert rig.partition().replica_states == (ReplicaState.ONLINE, ReplicaState.ONLINE)
    rig.check_converged()


def test_a_topic_that_was_unreadable_at_failover_goes_on_with_its_moves() -> None:
    """Its move is told to begin, and what brokers were to delete they are told to delete."""
    rig = active(1, 2, 3, 4, t=[[1, 2], [1, 2]])
    rig.stop_error = lambda *_: "UNKNOWN_SERVER_ERROR"
    assert ask(rig, {("t", 0): [3, 2], ("t", 1): [1]}) == {"t-0": "NONE", "t-1": "NONE"}
    assert rig.world.folders[2] == {("t", 0), ("t", 1)}
    rig.world.damage(topic_path("t"))
    rig = MachineHarness(rig.world, epoch=2).failover()
    assert rig.cluster.topics == {}
    rig.forget()
    rig.world.mend(topic_path("t"))
    rig.run()
    assert [line for line in rig.lines("LISR") if line.startswith("3 ") and line.endswith(" new")]
    assert rig.world.folders[2] == {("t", 0)}
    copy_all(rig)
    check_moved(rig, ("t", 0), [3, 2])
    check_moved(rig, ("t", 1), [1])
    rig.check_converged()


def test_a_deletion_that_could_not_be_recorded_is_recorded_once_it_can() -> None:
    """Else the znode would name a replica as left over until the next failover."""
    rig = active(1, 2, 3, t=[[1, 2]])
    rig.hold_stops = True
    ask(rig, {("t", 0): [1]})
    rig.world.damage(topic_path("t"))
    rig.run()
    rig.hold_stops = False
    rig.answer_stops()
    rig.run()
    assert rig.world.topics["t"].stray == {0: (2,)}
    rig.world.mend(topic_path("t"))
    rig.run()
    assert not stray_replicas.due(rig.cluster, rig.now_us)
    rig.now_us += RETRY_FIRST_US + stray_replicas.RECORD_LATEST_US
    assert stray_replicas.due(rig.cluster, rig.now_us)
    rig.world.events.append(Event(EventKind.TOPIC_DELETION_RETRY))
    rig.run()
    check_moved(rig, ("t", 0), [1])
    assert not stray_replicas.due(rig.cluster, rig.now_us + RETRY_MAX_US)


# --- what old tools write -----------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["", "other"])
@pytest.mark.parametrize("conflicts", [0, 1])
def test_a_topic_keeps_the_id_that_brokers_know(written: str, conflicts: int) -> None:
    """Tools from before 2.8 drop it when they add partitions, and brokers refuse another one."""
    world = World(1)
    world.create_topic("t", {0: [1]}, topic_id="its-own")
    rig = MachineHarness.active(world)
    world.edit_topic("t", partitions={0: (1,), 1: (1,)}, topic_id=written)

    def fate(commit: Commit) -> Fate:
        nonlocal conflicts
        if conflicts and any(isinstance(w, SetTopic) for w in commit.writes):
            conflicts -= 1
            world.edit_topic("t", topic_id=written)
        return Fate.ANSWERED

    rig.fate = fate
    rig.run()
    assert (world.topics["t"].topic_id, list(world.topics["t"].partitions)) == ("its-own", [0, 1])
    assert rig.cluster.topics["t"].version == world.topics["t"].version
    assert rig.stored("t", 1) == (1, 0, [1])
    assert "INCONSISTENT_TOPIC_ID" in rig.rejects()
    assert MachineHarness(world, epoch=2).failover().cluster.topics["t"].id == "its-own"


@pytest.mark.parametrize(
    "request_of_t",
    [
        CreatePartitions([Expansion("t", 2)]),
        AlterPartitionReassignments([PartitionReassignment("t", 0, (2,))]),
    ],
)
def test_what_we_write_over_a_tool_s_edit_names_the_id_that_brokers_know(request_of_t: Any) -> None:
    world = World(1, 2)
    world.create_topic("t", {0: [1]}, topic_id="its-own")
    rig = MachineHarness.active(world)
    edits = iter([""])

    def fate(_: Commit) -> Fate:
        for written in edits:
            world.edit_topic("t", topic_id=written)
        return Fate.ANSWERED

    rig.fate = fate
    rig.ask(request_of_t)
    tried, *written = [w.info.topic_id for c in rig.commits() for w in c.writes if isinstance(w, SetTopic)]
    assert (tried, set(written)) == ("its-own", {"its-own"})
