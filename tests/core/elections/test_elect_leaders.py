"""Elections on request: who is refused, in which order, who is elected, and what is answered (section 8.3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.context import Pause
from controller.core.effects import DeleteNode, SetState
from controller.core.elections import elect_leaders
from controller.core.handlers import not_controller
from controller.core.model import PartitionState
from controller.core.partitions.leader_election import Strategy
from controller.core.records import Rejection
from controller.core.requests.elections import ElectionType, ElectLeaders, ElectLeadersReply, PartitionElected
from controller.core.requests.errors import ErrorCode
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World, state

PREFERRED, UNCLEAN, CHOSEN = ElectionType.PREFERRED, ElectionType.UNCLEAN, ElectionType.CHOSEN


def cluster(
    *partitions: tuple[list[int], int, list[int]], brokers: tuple[int, ...] = (1, 2, 3)
) -> MachineHarness:
    """Topic t on the brokers: (replicas, leader, ISR) of each partition, at leader epoch 5."""
    world = World(*brokers)
    world.create_topic("t", {n: replicas for n, (replicas, _, _) in enumerate(partitions)})
    for n, (_, leader, isr) in enumerate(partitions):
        world.put_state("t", n, state(leader, isr, 5, 7))
    rig = MachineHarness.active(world)
    rig.forget()
    return rig


def elect(
    rig: MachineHarness, election: ElectionType, *numbers: int, leader: int | None = None
) -> dict[int, PartitionElected]:
    (reply,) = rig.ask(ElectLeaders(election, [("t", n) for n in numbers], leader))
    assert reply.error is ErrorCode.NONE
    return {answer.partition: answer for answer in reply.partitions}


@pytest.mark.parametrize(
    ("election", "asked", "led_by", "isr", "error", "leads"),
    [
        (PREFERRED, None, 2, [1, 2, 3], ErrorCode.NONE, 1),
        (PREFERRED, None, 1, [1, 2, 3], ErrorCode.ELECTION_NOT_NEEDED, 1),
        (PREFERRED, None, 2, [2, 3], ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 2),
        (UNCLEAN, None, 2, [2], ErrorCode.ELECTION_NOT_NEEDED, 2),
        (CHOSEN, 3, 2, [1, 2, 3], ErrorCode.NONE, 3),
        (CHOSEN, 2, 2, [1, 2, 3], ErrorCode.ELECTION_NOT_NEEDED, 2),
        (CHOSEN, 3, 2, [1, 2], ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, 2),
        (CHOSEN, 4, 2, [1, 2], ErrorCode.INVALID_REQUEST, 2),
    ],
)
def test_one_partition(
    election: ElectionType, asked: int | None, led_by: int, isr: list[int], error: ErrorCode, leads: int
) -> None:
    rig = cluster(([1, 2, 3], led_by, isr), brokers=(1, 2, 3, 4))
    answer = elect(rig, election, 0, leader=asked)[0]
    assert answer.error is error
    assert rig.stored()[0] == leads
    assert rig.stored()[1] == (6 if error is ErrorCode.NONE else 5)
    if error is ErrorCode.NONE:
        assert (answer.leader, answer.message) == (leads, "")
        assert rig.stored()[2] == isr
    else:
        assert answer.message
    rig.check_converged()


def test_a_leader_that_shuts_down_does_not_satisfy_an_unclean_election() -> None:
    rig = cluster(([1, 2], 1, [1]))
    rig.cluster.shutting_down.add(1)
    assert elect(rig, UNCLEAN, 0)[0].error is ErrorCode.NONE
    assert rig.stored()[::2] == (2, [2])


def test_the_reason_names_the_replica_and_the_rule() -> None:
    rig = cluster(([1, 2, 3], 2, [2, 3]))
    assert "1 is not in the ISR [2, 3]" in elect(rig, PREFERRED, 0)[0].message
    rig.world.broker_down(1)
    rig.run()
    assert "1 is not online" in elect(rig, CHOSEN, 0, leader=1)[0].message


def test_an_unclean_election_needs_no_setting_and_takes_a_clean_leader_where_there_is_one() -> None:
    rig = cluster(([1, 2], 1, [1]))
    rig.world.broker_down(1)
    rig.run()
    assert rig.stored() == (-1, 6, [1])
    assert elect(rig, UNCLEAN, 0)[0].error is ErrorCode.NONE
    assert rig.stored() == (2, 7, [2])
    assert rig.cluster.unclean_elections == 1
    rig.check_converged()


def test_an_unclean_election_while_a_member_of_the_isr_is_online() -> None:
    """Broker 3 is in the ISR but not assigned: it has every acknowledged record, so nobody else may lead (as Kafka)."""
    rig = cluster(([1, 2], -1, [3]))
    assert elect(rig, UNCLEAN, 0)[0].error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert rig.stored()[0] == -1
    assert rig.cluster.unclean_elections == 0


def test_an_unclean_election_without_any_live_replica() -> None:
    rig = cluster(([1], 1, [1]))
    rig.world.broker_down(1)
    rig.run()
    assert elect(rig, UNCLEAN, 0)[0].error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert rig.partition().state is PartitionState.OFFLINE


@pytest.mark.parametrize(
    ("election", "error"),
    [
        (PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (CHOSEN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_a_partition_without_leadership_is_answered(election: ElectionType, error: ErrorCode) -> None:
    """The original's handler throws here, and never calls back."""
    world = World(1)
    world.create_topic("t", {0: [2, 3], 1: [1]})
    rig = MachineHarness.active(world)
    assert rig.partition().leadership is None
    answer = elect(rig, election, 0, leader=2 if election is CHOSEN else None)[0]
    assert answer.error is error
    assert "no leadership" in answer.message


def test_the_first_error_that_holds_is_the_answer() -> None:
    """Unknown, then deleting, then without leadership, then satisfied: the first that holds is the answer."""
    rig = cluster(([1, 2], 2, [1, 2]), ([1, 2], 1, [1, 2]), ([1, 2], 2, [1, 2]))
    rig.cluster.topics_to_delete.add("t")
    rig.partition("t", 2).leadership = None
    rig.partition("t", 2).state = PartitionState.NEW
    rig.chronicle.forget()
    found = elect(rig, PREFERRED, 0, 1, 2, 9)
    assert {n: a.error for n, a in found.items()} == {
        0: ErrorCode.INVALID_TOPIC_EXCEPTION,
        1: ErrorCode.INVALID_TOPIC_EXCEPTION,
        2: ErrorCode.INVALID_TOPIC_EXCEPTION,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert rig.commits() == []


def test_all_partitions_leave_out_what_needs_nothing() -> None:
    rig = cluster(([1, 2], 2, [1, 2]), ([1, 2], 1, [1, 2]), ([3, 2], 2, [2]))
    (reply,) = rig.ask(ElectLeaders(PREFERRED, None))
    assert [(a.partition, a.error) for a in reply.partitions] == [
        (0, ErrorCode.NONE),
        (2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ]
    assert len(rig.commits()) == 1
    # So are those under deletion.
    rig.cluster.topics_to_delete.add("t")
    rig.chronicle.forget()
    assert rig.ask(ElectLeaders(PREFERRED, None))[0].partitions == []
    rig.cluster.topics_to_delete.clear()
    rig.chronicle.forget()
    # Named ones are all answered, each once.
    (reply,) = rig.ask(ElectLeaders(PREFERRED, [("t", 1), ("t", 0), ("t", 1)]))
    assert [(a.partition, a.error) for a in reply.partitions] == [
        (1, ErrorCode.ELECTION_NOT_NEEDED),
        (0, ErrorCode.ELECTION_NOT_NEEDED),
    ]


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (ElectLeaders(CHOSEN, [("t", 0)]), "leader"),
        (ElectLeaders(CHOSEN, None, 1), "partitions"),
        (ElectLeaders(PREFERRED, [("t", 0)], 1), "leader"),
        (ElectLeaders(UNCLEAN, None, 1), "leader"),
    ],
)
def test_a_request_that_contradicts_itself(request_: ElectLeaders, field: str) -> None:
    rig = cluster(([1, 2], 2, [1, 2]))
    (reply,) = rig.ask(request_)
    assert (reply.error, reply.partitions) == (ErrorCode.INVALID_REQUEST, ())
    assert reply.message.startswith(field)
    assert rig.commits() == []


def test_a_lost_answer_is_settled_and_a_lost_write_repeated() -> None:
    for fate in (Fate.LANDED, Fate.LOST):
        rig = cluster(([1, 2], 2, [1, 2]))
        fates = iter([fate])
        rig.fate = lambda _, fates=fates: next(fates, Fate.ANSWERED)  # type: ignore[misc]
        assert elect(rig, PREFERRED, 0)[0].error is ErrorCode.NONE
        assert rig.stored() == (1, 6, [1, 2])


def test_a_write_that_never_lands_is_no_success() -> None:
    rig = cluster(([1, 2], 2, [1, 2]))
    rig.fate = lambda _: Fate.LOST
    answer = elect(rig, PREFERRED, 0)[0]
    assert answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "attempts" in answer.message


def test_a_stale_cache_is_not_believed() -> None:
    """The preferred replica joined the ISR, and nobody told the controller."""
    rig = cluster(([1, 2], 2, [2]))
    rig.world.shrink_or_grow("t", 0, [2, 1])
    assert elect(rig, PREFERRED, 0)[0].error is ErrorCode.NONE
    assert rig.stored()[0] == 1


def test_nobody_is_left_without_an_answer() -> None:
    assert not_controller(ElectLeaders(PREFERRED, None)) == ElectLeadersReply(ErrorCode.NOT_CONTROLLER)


@given(st.data())
def test_what_is_answered_is_what_is_stored(data: Any) -> None:
    """Whatever is asked of whatever state: no error means that the leader is the one asked for."""
    replicas = data.draw(st.permutations([1, 2, 3]))
    isr = data.draw(st.sets(st.sampled_from(replicas), min_size=1).map(sorted))
    rig = cluster((replicas, data.draw(st.sampled_from(isr)), isr))
    for broker_id in data.draw(st.sets(st.sampled_from([1, 2, 3]), max_size=2)):
        rig.world.broker_down(broker_id)
    rig.run()
    election = data.draw(st.sampled_from(ElectionType))
    leader = data.draw(st.sampled_from([1, 2, 3])) if election is CHOSEN else None
    before = rig.stored()
    answer = elect(rig, election, 0, leader=leader)[0]
    stored = rig.stored()
    if answer.error is ErrorCode.NONE:
        assert answer.leader == stored[0] in rig.world.brokers
        assert stored[0] == {PREFERRED: replicas[0], CHOSEN: leader}.get(election, stored[0])
        assert stored[1] == before[1] + 1
    else:
        assert stored == before
    rig.check_converged()


def test_kinds_of_elections_are_named_as_strategies() -> None:
    assert {kind.value for kind in ElectionType} - {s.value for s in Strategy} == {UNCLEAN.value}


def test_long_requests_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elect_leaders, "EXAMINED_MAX", 3)
    rig = cluster(([1, 2], 1, [1]))
    request = ElectLeaders(PREFERRED, [("nowhere", n) for n in range(9)])
    assert rig.pauses(lambda context: elect_leaders.elect_leaders(context, 1, request)) == [Pause.YIELD] * 3


def test_a_request_that_cannot_be_deleted_is_carried_out_once_for_each_event() -> None:
    rig = cluster(([1, 2], 2, [1, 2]))
    rig.forget()
    fates = [Fate.ANSWERED, Fate.LOST]
    rig.fate = lambda _: fates.pop(0) if fates else Fate.ANSWERED
    rig.world.ask_preferred(("t", 0))
    rig.run()
    assert [type(commit.writes[0]) for commit in rig.commits()] == [SetState, DeleteNode]
    assert rig.world.preferred is not None
    assert rig.stored() == (1, 6, [1, 2])


def test_a_refusal_of_the_znode_s_request_names_its_partition() -> None:
    world = World(1)
    world.create_topic("t", {0: [2]})
    rig = MachineHarness.active(world)
    rig.forget()
    world.ask_preferred(("t", 0))
    rig.run()
    assert [(r.error, r.partition) for r in rig.recorded(Rejection)] == [
        ("PREFERRED_LEADER_NOT_AVAILABLE", rig.partition())
    ]
