"""Replicas on a controller's id: what brokers of Kafka assign to us, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct

from controller.core.context import CoreSettings
from controller.core.effects import DeleteNode, ReadTopics, SetState, SetTopic
from controller.core.model import RECOVERING, Broker, BrokerIds, Endpoint
from controller.core.reassignment.topic_znode import Entry
from controller.core.records import TopicChange
from controller.core.requests.brokers import ControlledShutdown
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import SetDrain
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.requests.topics import CreatePartitions, CreateTopics, Expansion, NewTopic
from controller.core.topics.phantom import Load, without_phantoms
from controller.core.znode_paths import topic_path
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World, a_broker, state

#: The harness' controller, and one that led before it.
US, FORMER = 100, 101
SETTINGS = CoreSettings(leads_kafka=True)


def active(*brokers: int, racks: Mapping[int, str] = {}) -> tuple[World, MachineHarness]:
    world = World()
    for broker_id in brokers:
        world.broker_up(broker_id, rack=racks.get(broker_id))
    world.kafka_ids = {US, FORMER}
    rig = MachineHarness.active(world, settings=SETTINGS)
    rig.forget()
    return world, rig


def taken_over(world: World) -> MachineHarness:
    world.kafka_ids = {US, FORMER}
    return MachineHarness.active(world, settings=SETTINGS)


def replicas(world: World, topic: str) -> dict[int, BrokerIds]:
    return dict(world.topics[topic].partitions)


# --- a new topic -----------------------------------------------------------------------------------------------


def test_a_topic_that_a_broker_created_is_repaired_before_its_partitions_have_states() -> None:
    world, rig = active(1, 2, 3)
    world.create_topic("__consumer_offsets", {0: [US, 2, 3], 1: [2, US, 3], 2: [3, 1, 2], 3: [1, 3, FORMER]})
    rig.run()
    assert replicas(world, "__consumer_offsets") == {0: (1, 2, 3), 1: (2, 1, 3), 2: (3, 1, 2), 3: (1, 3, 2)}
    for number, assigned in replicas(world, "__consumer_offsets").items():
        # The first state there ever was.
        assert rig.stored("__consumer_offsets", number) == (assigned[0], 0, list(assigned))
    assert not {US, FORMER} & set(rig.received[1].replicas[("__consumer_offsets", 0)].replicas)
    rig.check_converged()


def test_leaders_are_spread() -> None:
    world, rig = active(1, 2, 3)
    world.create_topic("t", {n: [US, 1 + n % 3] for n in range(12)})
    rig.run()
    leaders = [ids[0] for ids in replicas(world, "t").values()]
    assert {leaders.count(b) for b in (1, 2, 3)} == {4}


def test_leaders_are_spread_among_all_whoever_follows() -> None:
    world, rig = active(1, 2, 3)
    world.create_topic("t", {n: [US, 1 + n // 3] for n in range(6)})
    rig.run()
    leaders = [ids[0] for ids in replicas(world, "t").values()]
    assert sorted(leaders.count(b) for b in (1, 2, 3)) == [1, 2, 3]


@pytest.mark.parametrize("why", ["drained", "shutting down"])
def test_who_is_to_be_free_of_replicas_takes_a_phantom_s_place_last(why: str) -> None:
    world, rig = active(1, 2, 3)
    if why == "drained":
        rig.ask(SetDrain(2, True, "a repair", "ann"))
    else:
        rig.ask(ControlledShutdown(2, world.brokers[2].epoch))
    world.create_topic("t", {0: [1, US], 1: [1, 3, US]})
    rig.run()
    assert replicas(world, "t") == {0: (1, 3), 1: (1, 3, 2)}


def test_followers_are_spread() -> None:
    world, rig = active(1, 2, 3)
    world.create_topic("t", {n: [1, US] for n in range(6)})
    rig.run()
    followers = [ids[1] for ids in replicas(world, "t").values()]
    assert {followers.count(b) for b in (2, 3)} == {3}


def test_another_rack_comes_first() -> None:
    world, rig = active(1, 2, 3, racks={1: "a", 2: "a", 3: "b"})
    world.create_topic("t", {0: [1, US], 1: [3, US]})
    rig.run()
    assert replicas(world, "t") == {0: (1, 3), 1: (3, 2)}


def test_with_too_few_brokers_it_is_deleted_and_said_why() -> None:
    world, rig = active(1, 2)
    world.configure("t", {"cleanup.policy": "compact"})
    world.create_topic("t", {0: [1, 2, US]})
    world.create_topic("other", {0: [1, US]})
    rig.run()
    assert set(world.topics) == {"other"}
    assert "t" not in world.configs
    assert rig.rejects() == [], "no state of it is tried"
    (record,) = [r for batch in rig.batches for r in batch.of(TopicChange) if r.after == "deleted"]
    assert (record.topic, "only 2 brokers" in record.reason) == ("t", True)
    rig.check_converged()
    world.broker_up(3)
    rig.run()
    world.create_topic("t", {0: [1, 2, US]})
    rig.run()
    assert replicas(world, "t") == {0: (1, 2, 3)}
    rig.check_converged()


def test_a_topic_that_could_not_be_deleted_is_known_and_led() -> None:
    world, rig = active(1, 2)
    rig.fate = lambda commit: Fate.LOST if isinstance(commit.writes[0], DeleteNode) else Fate.ANSWERED
    world.create_topic("t", {0: [1, 2, US]})
    rig.run()
    assert "/brokers/topics/t could not be deleted" in str(rig.batches)
    assert rig.partition().replicas == replicas(world, "t")[0] == (1, 2)
    rig.check_memory()


def test_added_partitions_are_repaired_too() -> None:
    world, rig = active(1, 2, 3)
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    world.expand_topic("t", {1: [US, 2], 2: [3, US]})
    rig.run()
    assert replicas(world, "t") == {0: (1, 2), 1: (1, 2), 2: (3, 1)}
    rig.check_converged()


def test_added_partitions_never_take_a_topic_away() -> None:
    world, rig = active(1)
    world.create_topic("t", {0: [1]})
    rig.run()
    world.expand_topic("t", {1: [1, US]})
    rig.run()
    assert replicas(world, "t") == {0: (1,), 1: (1,)}
    assert rig.rejects() == [], "it is not even tried"
    rig.check_converged()


def test_a_conflict_with_the_broker_that_still_writes_is_retried() -> None:
    world, rig = active(1, 2, 3)
    world.create_topic("t", {0: [US, 2]})
    fates = [Fate.LOST, Fate.LANDED]
    rig.fate = lambda _: fates.pop(0) if fates else Fate.ANSWERED
    rig.run()
    assert replicas(world, "t") == {0: (1, 2)}
    rig.check_converged()


def test_ids_of_ours_that_are_brokers_are_no_phantoms() -> None:
    world, rig = active(1, FORMER)
    world.create_topic("t", {0: [1, FORMER]})
    rig.run()
    assert replicas(world, "t") == {0: (1, FORMER)}
    rig.check_converged()


def test_nothing_is_repaired_unless_brokers_are_kafkas() -> None:
    world = World(1, 2)
    world.kafka_ids = {US}
    rig = MachineHarness.active(world)
    world.create_topic("t", {0: [US, 2]})
    rig.run()
    assert replicas(world, "t") == {0: (US, 2)}


# --- failover --------------------------------------------------------------------------------------------------


def test_partitions_with_states_get_a_new_leader_epoch_and_their_brokers_hear_of_it() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [US, 2], 1: [1, 2], 2: [3, FORMER]})
    world.put_state("t", 0, state(2, [2], leader_epoch=4, partition_epoch=7))
    world.put_state("t", 1, state(1, [1, 2], leader_epoch=4, partition_epoch=7))
    world.put_state("t", 2, state(3, [3], leader_epoch=4, partition_epoch=7))
    rig = taken_over(world)
    assert replicas(world, "t") == {0: (1, 2), 1: (1, 2), 2: (3, 1)}
    assert rig.stored("t", 0) == (2, 5, [2])
    assert rig.stored("t", 1) == (1, 4, [1, 2])
    assert rig.stored("t", 2) == (3, 5, [3])
    for broker_id in (1, 2):
        told = rig.received[broker_id].replicas[("t", 0)]
        assert (told.leader_epoch, list(told.replicas)) == (5, [1, 2])
    rig.check_converged()


@pytest.mark.parametrize(("leader", "isr"), [(US, [US, 2]), (-1, [US]), (2, [2, US]), (US, [2])])
def test_an_id_that_is_in_sync_is_a_broker_s_and_keeps_what_it_has(leader: int, isr: list[int]) -> None:
    """Somebody gave a controller the id of a broker, which is down now: its records must not be lost."""
    world = World(1, 2, 3)
    world.create_topic("t", {0: [US, 2, 3], 1: [US, 2], 2: [FORMER, 2]})
    for number in (0, 2):
        world.put_state("t", number, state(2, [2]))
    world.put_state("t", 1, state(leader, isr))
    rig = taken_over(world)
    assert replicas(world, "t") == {0: (US, 2, 3), 1: (US, 2), 2: (1, 2)}
    assert "ids of brokers: [100]" in str(rig.batches)
    rig.check_memory()


def test_an_id_that_a_broker_takes_is_forgotten_and_its_replicas_stay_when_it_is_down() -> None:
    world, rig = active(1, 2)
    world.broker_up(FORMER)
    rig.run()
    assert world.kafka_ids == rig.cluster.kafka_ids == {US}
    world.broker_down(FORMER)
    rig.run()
    world.create_topic("t", {0: [1, FORMER]})
    rig.run()
    assert replicas(world, "t") == {0: (1, FORMER)}
    again = MachineHarness.active(world, settings=SETTINGS)
    assert replicas(world, "t") == {0: (1, FORMER)}
    again.check_memory()


def test_an_id_of_a_broker_that_is_registered_at_failover_is_forgotten() -> None:
    world = World(1, FORMER)
    rig = taken_over(world)
    assert world.kafka_ids == rig.cluster.kafka_ids == {US}


def test_an_id_that_could_not_be_forgotten_is_forgotten_at_the_next_change_of_brokers() -> None:
    world, rig = active(1, 2)
    rig.fate = lambda commit: Fate.LOST if isinstance(commit.writes[0], DeleteNode) else Fate.ANSWERED
    world.broker_up(FORMER)
    rig.run()
    assert world.kafka_ids == {US, FORMER}
    world.create_topic("t", {0: [1, FORMER]})
    rig.run()
    assert replicas(world, "t") == {0: (1, FORMER)}, "it is a broker's all the same"
    rig.fate = lambda _: Fate.ANSWERED
    world.broker_down(FORMER)
    rig.run()
    assert world.kafka_ids == {US}


def test_an_id_that_is_new_and_assigned_already_is_that_of_a_broker_that_is_down() -> None:
    world = World(2, 3)
    world.create_topic("t", {0: [US, 2]})
    world.put_state("t", 0, state(2, [2]))
    rig = MachineHarness.active(world, settings=SETTINGS)
    assert (replicas(world, "t"), world.kafka_ids) == ({0: (US, 2)}, set())
    assert "ids of brokers: [100]" in str(rig.batches)


def test_a_new_id_is_remembered() -> None:
    world = World(1, 2)
    rig = MachineHarness(world, settings=SETTINGS)
    rig.failover()
    assert world.kafka_ids == {US}
    world.create_topic("t", {0: [US, 2]})
    rig.run()
    assert replicas(world, "t") == {0: (1, 2)}


def test_where_there_is_no_replacement_the_phantom_is_left_out() -> None:
    world = World(1, 2)
    world.create_topic("t", {0: [US, 2, 1]})
    world.put_state("t", 0, state(2, [1, 2]))
    rig = taken_over(world)
    assert replicas(world, "t") == {0: (2, 1)}
    assert rig.stored("t", 0) == (2, 1, [1, 2])
    rig.check_converged()


def test_a_topic_without_states_is_repaired_or_deleted_at_failover() -> None:
    world = World(1, 2)
    world.create_topic("t", {0: [US, 2]})
    world.create_topic("u", {0: [US, 2, 1]})
    rig = taken_over(world)
    assert replicas(world, "t") == {0: (1, 2)}
    assert set(world.topics) == {"t"}
    rig.check_converged()


def test_a_topic_with_a_state_lives_on_and_costs_no_other_its_end() -> None:
    world = World(1, 2)
    for name in ("has", "none"):
        world.create_topic(name, {0: [US, 2, 1], 1: [2, 1]})
    world.put_state("has", 0, state(2, [2]))
    taken_over(world)
    assert set(world.topics) == {"has"}


def test_what_no_broker_was_there_for_is_repaired_once_one_is() -> None:
    """Found by seed 90009 of the simulator: the partition had no state until the next failover."""
    world, rig = active(1, 2)
    world.create_topic("t", {0: [1], 1: [1, 2]})
    rig.run()
    world.broker_down(1, 2)
    rig.run()
    world.expand_topic("t", {2: [US], 3: [US, 2]})
    rig.run()
    assert replicas(world, "t") == {0: (1,), 1: (1, 2), 2: (US,), 3: (2,)}
    world.broker_up(2)
    rig.run()
    assert replicas(world, "t")[2] == (2,)
    assert rig.stored("t", 2) == (2, 0, [2])
    assert rig.received[2].replicas[("t", 2)].leader == 2
    rig.check_converged()


@pytest.mark.parametrize("kept", range(6))
def test_interrupted_anywhere_the_next_failover_finishes(kept: int) -> None:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [US, 2]})
    world.put_state("t", 0, state(2, [2], leader_epoch=4, partition_epoch=7))
    world.kafka_ids = {US, FORMER}
    first = MachineHarness(world, settings=SETTINGS)
    fates = [Fate.ANSWERED] * kept
    first.fate = lambda _: fates.pop(0) if fates else Fate.LOST
    first.failover()
    rig = taken_over(world)
    assert replicas(world, "t") == {0: (1, 2)}
    assert rig.received[1].replicas[("t", 0)].leader_epoch > 4
    rig.check_converged()


def test_a_reassignment_to_a_phantom_goes_on_with_another_broker() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [US, 2, 1]})
    world.edit_topic("t", adding={0: (US,)}, removing={0: (1,)}, original={0: (2, 1)})
    world.put_state("t", 0, state(2, [2, 1], leader_epoch=4, partition_epoch=7))
    rig = taken_over(world)
    info = world.topics["t"]
    assert (info.partitions[0], info.adding[0], info.removing[0]) == ((3, 2, 1), (3,), (1,))
    assert rig.partition() in rig.cluster.reassignments.ongoing
    rig.check_memory()


def test_a_topic_without_states_that_moves_needs_no_broker_for_what_it_removes() -> None:
    world = World(1, 2)
    world.create_topic("t", {0: [US, 2, 1]})
    world.edit_topic("t", removing={0: (US,)}, original={0: (US, 2, 1)})
    taken_over(world)
    assert replicas(world, "t") == {0: (2, 1)}


def test_a_leader_that_still_recovers_goes_on_recovering() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [US, 2]})
    world.put_state("t", 0, state(2, [2], leader_epoch=4, partition_epoch=7, recovery=RECOVERING))
    taken_over(world)
    assert (world.states["t", 0].leader_epoch, world.states["t", 0].recovery) == (5, RECOVERING)


def test_a_stray_replica_of_a_phantom_is_waited_for_by_nobody() -> None:
    world = World(1, 2)
    world.create_topic("t", {0: [1, 2]})
    world.edit_topic("t", stray={0: (US,)})
    world.put_state("t", 0, state(1, [1, 2], leader_epoch=4, partition_epoch=7))
    rig = taken_over(world)
    partition = rig.partition()
    assert (world.topics["t"].stray, rig.cluster.reassignments.strays, partition.departing) == ({}, {}, {})
    rig.check_memory()


def test_a_move_that_waits_for_a_phantom_waits_for_another_broker() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [1, 2]})
    world.edit_topic("t", queued={0: (2, US)})
    world.put_state("t", 0, state(1, [1, 2]))
    rig = taken_over(world)
    info = world.topics["t"]
    assert US not in {b for ids in (info.partitions[0], info.adding.get(0, ())) for b in ids}
    rig.check_memory()


def test_a_move_that_goes_on_waiting_waits_for_another_broker() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [1, 2], 1: [1, 2]})
    world.edit_topic("t", partitions={0: (3, 1, 2), 1: (1, 2)}, adding={0: (3,)}, queued={1: (2, US)})
    for number in range(2):
        world.put_state("t", number, state(1, [1, 2]))
    world.kafka_ids = {US, FORMER}
    settings = replace(SETTINGS, reassignment_concurrent_moves_max=1)
    rig = MachineHarness.active(world, settings=settings)
    assert world.topics["t"].queued == {1: (2, 3)}
    rig.check_memory()


def test_preferred_leaders_are_the_first_replicas() -> None:
    load = Load.of([(1, 2), (2, 1), (1, 3), ()])
    assert (load.replicas, load.preferred) == ({1: 3, 2: 2, 3: 1}, {1: 2, 2: 1})


def test_a_state_of_a_newer_controller_is_not_written_over() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [US, 2]})
    world.put_state("t", 0, state(2, [2], leader_epoch=4, partition_epoch=7, controller_epoch=9))
    world.kafka_ids = {US, FORMER}
    rig = MachineHarness(world, settings=SETTINGS)
    rig.failover()
    assert [w for c in rig.commits() for w in c.writes if isinstance(w, SetState)] == []
    assert world.states[("t", 0)].controller_epoch == 9


def test_a_phantom_that_is_leaving_is_gone() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [1, 2, US]})
    world.edit_topic("t", adding={0: (1,)}, removing={0: (US,)}, original={0: (2, US)})
    world.put_state("t", 0, state(2, [2], leader_epoch=4, partition_epoch=7))
    rig = taken_over(world)
    info = world.topics["t"]
    assert info.partitions[0] == (1, 2)
    assert US not in {b for ids in (info.removing.get(0, ()), info.original.get(0, ())) for b in ids}
    rig.check_memory()


def test_a_move_that_only_takes_the_phantom_away_is_over() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [2, US]})
    world.edit_topic("t", removing={0: (US,)}, original={0: (2, US)})
    world.put_state("t", 0, state(2, [2], leader_epoch=4, partition_epoch=7))
    rig = MachineHarness(world, settings=SETTINGS)
    world.kafka_ids = {US, FORMER}
    rig.failover()
    assert rig.cluster.reassignments.ongoing == {}
    assert (rig.partition().replicas, rig.partition().removing) == ((2,), ())


def test_a_repair_that_cannot_be_written_is_not_believed() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [US, 2]})
    world.put_state("t", 0, state(2, [2], leader_epoch=4, partition_epoch=7))
    world.kafka_ids = {US, FORMER}
    rig = MachineHarness(world, settings=SETTINGS)
    rig.fate = lambda commit: Fate.LOST if isinstance(commit.writes[0], SetTopic) else Fate.ANSWERED
    rig.failover()
    assert replicas(world, "t") == {0: (US, 2)}
    assert rig.partition().replicas == (US, 2)


@pytest.mark.parametrize("known", ["all", "some", "none"])
def test_a_topic_that_does_not_decode_just_before_its_repair_is_repaired_once_it_does(
    known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At failover, as partitions are added, and as a topic is created."""
    world, rig = active(1, 2, 3)
    path, read = topic_path("t"), world.answer

    def damaged(query: Any) -> Any:
        if isinstance(query, ReadTopics) and "t" in query.names and not world.unreadable:
            answer = read(query)
            world.damage(path)
            return answer
        return read(query)

    if known == "some":
        world.create_topic("t", {1: [1, 2]})
        rig.run()
    monkeypatch.setattr(world, "answer", damaged)
    if known == "all":
        world.create_topic("t", {0: [US, 1], 1: [1, 2]})
        world.edit_topic("t", adding={0: (US,)}, removing={0: (1,)}, original={0: (1,)}, queued={1: (US,)})
        for number in range(2):
            world.put_state("t", number, state(1, [1], leader_epoch=4, partition_epoch=7))
        rig = taken_over(world)
    elif known == "some":
        world.expand_topic("t", {0: [US, 1]})
    else:
        world.create_topic("t", {0: [US, 1], 1: [1, 2]})
    rig.run()
    assert world.topics["t"].partitions[0] == (US, 1)
    assert (rig.cluster.partition("t", 1) is not None) == (known == "some")
    monkeypatch.undo()
    world.mend(path)
    rig.run()
    assert not {US} & {b for ids in replicas(world, "t").values() for b in ids}
    assert rig.cluster.problems == {}
    rig.check_memory()


def test_a_topic_under_deletion_is_not_held_up_by_a_phantom() -> None:
    world = World(1, 2)
    world.create_topic("t", {0: [US, 2]})
    world.put_state("t", 0, state(2, [2]))
    world.mark_for_deletion("t")
    taken_over(world).run()
    assert "t" not in world.topics


# --- requests --------------------------------------------------------------------------------------------------


def test_requests_that_name_our_id_are_refused() -> None:
    world, rig = active(1, 2)
    world.create_topic("t", {0: [1]})
    rig.run()
    asked: list[tuple[Any, Any]] = [
        (CreateTopics([NewTopic("new", assignment={0: (1, US)})]), lambda r: r.topics[0]),
        (CreatePartitions([Expansion("t", 2, ((US,),))]), lambda r: r.topics[0]),
        (
            AlterPartitionReassignments([PartitionReassignment("t", 0, (US,))]),
            lambda r: r.partitions[0],
        ),
    ]
    for request, answer in asked:
        (reply,) = rig.ask(request)
        assert answer(reply).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT, request
    assert set(world.topics) == {"t"}


# --- the rule --------------------------------------------------------------------------------------------------

REAL = st.integers(1, 6)
ANY = REAL | st.sampled_from([US, FORMER])
PHANTOMS = frozenset({US, FORMER})


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    assigned = draw(st.lists(ANY, min_size=1, max_size=5, unique=True))
    some = st.lists(st.sampled_from(assigned), unique=True)
    adding = draw(some)
    removing = [b for b in draw(some) if b not in adding]
    others = st.lists(ANY, unique=True, max_size=4).map(tuple)
    return Entry(tuple(assigned), tuple(adding), tuple(removing), draw(others), draw(others), draw(others))


@given(
    entry=entries(),
    registered=st.dictionaries(REAL, st.sampled_from(["a", "b", None]), min_size=1),
    avoided=st.sets(REAL),
)
def test_whatever_is_assigned(entry: Entry, registered: dict[int, str | None], avoided: set[int]) -> None:
    brokers: dict[int, Broker] = {b: a_broker(b, b, rack=rack) for b, rack in registered.items()}
    after = without_phantoms(entry, PHANTOMS, brokers, avoided, Load.of([]))
    if not any(b in PHANTOMS for ids in entry for b in ids):
        assert after == entry._replace(
            original=entry.original if entry.adding or entry.removing else (),
            stray=tuple(b for b in entry.stray if b not in entry.replicas),
        )
    staying = [b for b in entry.replicas if b not in PHANTOMS or b not in entry.removing]
    if staying:
        assert not PHANTOMS & {b for ids in after for b in ids}
    for ids in after:
        assert len(set(ids)) == len(ids)
    real = [b for b in staying if b not in PHANTOMS]
    # As many as before, if there are brokers.
    assert len(after.replicas) == min(len(staying), len(brokers.keys() | set(real))) or not staying
    assert set(real) <= set(after.replicas)
    assert [b for b in after.replicas if b in real] == real
    if staying and staying[0] not in PHANTOMS:
        assert after.replicas[0] == staying[0]
    if staying:
        assert {*after.adding, *after.removing} <= set(after.replicas)
    assert not set(after.adding) & set(after.removing)


def replaced(entry: Entry, *brokers: Broker) -> Entry:
    return without_phantoms(entry, PHANTOMS, {b.id: b for b in brokers}, (), Load.of([]))


def test_a_move_that_is_over_leaves_no_original_replicas() -> None:
    assert replaced(Entry((1, US), (), (US,), (1, US)), a_broker(1, 1)) == Entry((1,))


def test_who_is_to_delete_a_former_replica_is_chosen_last_and_keeps_it_then() -> None:
    entry, others = Entry((1, US), stray=(2,)), [a_broker(b, b) for b in (1, 2)]
    assert replaced(entry, *others, a_broker(3, 3)) == Entry((1, 3), stray=(2,))
    assert replaced(entry, *others) == Entry((1, 2))


def test_brokers_that_cannot_fetch_from_each_other_share_no_partition() -> None:
    kafka = replace_struct(a_broker(2, 2), endpoints=(Endpoint("PLAINTEXT", "PLAINTEXT", "host2", 9000),))
    assert replaced(Entry((1, US)), a_broker(1, 1), kafka, a_broker(3, 3)) == Entry((1, 3))
    assert replaced(Entry((1, US)), a_broker(1, 1), kafka) == Entry((1,))
    assert replaced(Entry((2, US)), a_broker(1, 1), kafka) == Entry((2,))


def test_brokers_without_a_rack_share_none() -> None:
    brokers = a_broker(1, 1), a_broker(2, 2), a_broker(3, 3, rack="a")
    assert replaced(Entry((1, US)), *brokers) == Entry((1, 2))


def test_a_reassignment_to_phantoms_alone_is_given_up_where_no_broker_is_left() -> None:
    """Its target would be empty: nothing could ever end it."""
    entry = Entry((FORMER, 1), (), (1,), (FORMER,))
    assert without_phantoms(entry, {US, FORMER}, {1: a_broker(1, 1)}, (), Load.of([])) == Entry((1,))
    with_another = without_phantoms(entry, {US, FORMER}, {b: a_broker(b, b) for b in (1, 2)}, (), Load.of([]))
    assert with_another == Entry((2, 1), (), (1,), (2,))
