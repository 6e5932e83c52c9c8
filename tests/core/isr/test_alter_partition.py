"""AlterPartition: the table of reference section 8.4 in its order, and what becomes of what passes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from controller.core import commits
from controller.core.effects import Commit
from controller.core.isr import alter_partition
from controller.core.model import RECOVERED, RECOVERING, Cluster, LeaderAndIsr, Partition, Topic
from controller.core.model.broker_ids import of_several
from controller.core.records import LeadershipChange, Rejection
from controller.core.requests.brokers import AlterPartition, Proposal
from controller.core.requests.errors import ErrorCode
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import TOPIC_CHANGE, World, a_broker, state

LEADER_EPOCH, PARTITION_EPOCH = 5, 7


def led_by_one(
    partitions: int = 1, isr: tuple[int, ...] = (1, 2, 3), recovery: int = RECOVERED
) -> MachineHarness:
    """Partitions of [1, 2, 3] led by 1 on brokers 1 to 4, leader epoch 5, partition epoch 7."""
    world = World(1, 2, 3, 4)
    world.create_topic("t", {n: [1, 2, 3] for n in range(partitions)})
    for number in range(partitions):
        world.put_state("t", number, state(1, isr, LEADER_EPOCH, PARTITION_EPOCH, recovery=recovery))
    rig = MachineHarness.active(world)
    rig.forget()
    return rig


def changed(proposal: Proposal, **fields: Any) -> Proposal:
    return msgspec.structs.replace(proposal, **fields)


def errors(answer: Any) -> list[ErrorCode]:
    assert answer.error is ErrorCode.NONE
    return [altered.error for altered in answer.partitions]


# --- the table -------------------------------------------------------------------------------------------
#
# Each row breaks one rule. A proposal that breaks several is answered with the first.

#: Name, what is wrong, the answer; in the reference's order. Broker 3 is shutting down, and not in the ISR.
TABLE: list[tuple[str, dict[str, Any], ErrorCode]] = [
    ("topic id of another topic", {"topic_id": "other"}, ErrorCode.UNKNOWN_TOPIC_ID),
    ("no such partition", {"partition": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("partition epoch of the future", {"partition_epoch": 8}, ErrorCode.NOT_CONTROLLER),
    ("leader epoch of the past", {"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
    ("partition epoch of the past", {"partition_epoch": 6}, ErrorCode.INVALID_UPDATE_VERSION),
    ("recovering again", {"recovery": RECOVERING}, ErrorCode.INVALID_REQUEST),
    ("a new member that is shutting down", {"new_isr": (1, 2, 3)}, ErrorCode.INELIGIBLE_REPLICA),
]


#: Two broken rules at once, where both can be broken.
PAIRS = [
    (one, other)
    for n, one in enumerate(TABLE)
    for other in TABLE[n + 1 :]
    if one[1].keys().isdisjoint(other[1].keys())
]


def _leaving(rig: MachineHarness) -> MachineHarness:
    rig.cluster.shutting_down.add(3)
    return rig


@pytest.mark.parametrize(("wrong", "error"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_each_rule_alone(wrong: dict[str, Any], error: ErrorCode) -> None:
    rig = _leaving(led_by_one(isr=(1, 2)))
    (answer,) = rig.ask(rig.alter(1, changed(rig.proposal([1]), **wrong)))
    assert errors(answer) == [error]
    assert answer.partitions[0].state is None
    assert rig.commits() == []
    assert error.name in rig.rejects()


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_first_broken_rule_is_the_answer(first: Any, second: Any) -> None:
    rig = _leaving(led_by_one(isr=(1, 2)))
    (answer,) = rig.ask(rig.alter(1, changed(rig.proposal([1]), **first[1], **second[1])))
    assert errors(answer) == [first[2]]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 6, "partition_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 4, "partition_epoch": 8}, ErrorCode.NOT_CONTROLLER),
        ({"recovery": 7}, ErrorCode.INVALID_REQUEST),
        ({"recovery": RECOVERING, "new_isr": (1, 2)}, ErrorCode.INVALID_REQUEST),
        ({"new_isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"new_isr": (2, 3)}, ErrorCode.INVALID_REQUEST),
        ({"new_isr": (1, 2, 2)}, ErrorCode.INVALID_REQUEST),
        ({"new_isr": (1, 1, 2)}, ErrorCode.INVALID_REQUEST),
        ({"new_isr": (1, 4)}, ErrorCode.INVALID_REQUEST),
        ({"new_isr": (1, -7)}, ErrorCode.INVALID_REQUEST),
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"topic": "nowhere", "topic_id": ""}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "", "topic_id": ""}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_must_not_be_stored(changes: dict[str, Any], error: ErrorCode) -> None:
    rig = led_by_one(isr=(1, 2))
    (answer,) = rig.ask(rig.alter(1, changed(rig.proposal([1]), **changes)))
    assert errors(answer) == [error]
    assert rig.stored() == (1, LEADER_EPOCH, [1, 2])


@pytest.mark.parametrize("sender", [2, 4])
def test_only_the_leader_proposes(sender: int) -> None:
    """Not even what is stored already: the original answers a follower that names it with success."""
    rig = led_by_one(isr=(1, 2))
    for isr in ([1, 2], [1], [2]):
        (answer,) = rig.ask(rig.alter(sender, rig.proposal(isr)))
        assert errors(answer) == [ErrorCode.INVALID_REQUEST]
    assert rig.commits() == []


def test_a_sender_before_topic_ids() -> None:
    """By name: other words for an unknown topic and for an ineligible member."""
    rig = _leaving(led_by_one(isr=(1, 2)))
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 2, 3], topic_id="")))
    assert errors(answer) == [ErrorCode.OPERATION_NOT_ATTEMPTED]
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1], topic_id="")))
    assert errors(answer) == [ErrorCode.NONE]
    assert rig.stored()[2] == [1]


def test_a_partition_that_was_never_initialised_is_unknown() -> None:
    world = World(1)
    world.create_topic("t", {0: [1], 1: [9]})
    rig = MachineHarness.active(world)
    proposal = Proposal("t", world.topics["t"].topic_id, 1, 0, (9,), RECOVERED, 0)
    (answer,) = rig.ask(rig.alter(1, proposal))
    assert errors(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("epoch", [-1, 0, "older", "newer"])
def test_another_incarnation_of_the_sender(epoch: Any) -> None:
    """Equal or nothing, unlike every other gate: not even -1 passes."""
    rig = led_by_one()
    known = rig.world.brokers[1].epoch
    sent = {"older": known - 1, "newer": known + 1}.get(epoch, epoch)
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1]), broker_epoch=sent))
    assert (answer.error, list(answer.partitions)) == (ErrorCode.STALE_BROKER_EPOCH, [])
    assert rig.stored() == (1, LEADER_EPOCH, [1, 2, 3])
    assert rig.lines() == []


@pytest.mark.parametrize("sender", [99, -1])
def test_an_unknown_sender(sender: int) -> None:
    rig = led_by_one()
    (answer,) = rig.ask(AlterPartition(sender, 1, [rig.proposal([1])]))
    assert answer.error is ErrorCode.STALE_BROKER_EPOCH


def test_a_cached_state_of_a_newer_controller_is_not_ours_to_change() -> None:
    rig = led_by_one()
    newer = state(1, [1, 2, 3], LEADER_EPOCH, 8, controller_epoch=2)
    rig.world.put_state("t", 0, newer)
    rig.partition().leadership = newer
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1])))
    assert errors(answer) == [ErrorCode.NOT_CONTROLLER]


# --- liveness of members: only new ones ------------------------------------------------------------------


@pytest.mark.parametrize("gone", ["dead", "shutting down", "disk"])
def test_only_a_new_member_has_to_be_online(gone: str) -> None:
    """Section 14, point 9: with 3 gone and 2 lagging the leader may drop 2 although its proposal keeps 3."""
    rig = led_by_one()
    if gone == "dead":
        del rig.cluster.brokers[3]
        rig.chronicle.forget()
    elif gone == "shutting down":
        rig.cluster.shutting_down.add(3)
    else:
        rig.cluster.offline_dirs[3] = {rig.partition()}
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 3])))
    assert errors(answer) == [ErrorCode.NONE]
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1])))
    assert errors(answer) == [ErrorCode.NONE]
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 3])))
    assert errors(answer) == [ErrorCode.INELIGIBLE_REPLICA]
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 2])))
    assert errors(answer) == [ErrorCode.NONE]
    assert rig.world.states[("t", 0)].isr == (1, 2)


def test_a_member_that_lost_its_assignment_may_stay_but_not_come() -> None:
    """Between two steps of a reassignment's end the ISR is larger than the assignment (KAFKA-9672)."""
    rig = led_by_one(isr=(1, 2, 3))
    rig.partition().assign((1, 2))
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 3])))
    assert errors(answer) == [ErrorCode.NONE]
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1])))
    assert errors(answer) == [ErrorCode.NONE]
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 3])))
    assert errors(answer) == [ErrorCode.INVALID_REQUEST]


# --- what passes -----------------------------------------------------------------------------------------


def test_a_change_is_stored_told_as_metadata_and_answered() -> None:
    rig = led_by_one()
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 3])))
    stored = rig.world.states[("t", 0)]
    assert stored == LeaderAndIsr(1, LEADER_EPOCH, (1, 3), PARTITION_EPOCH + 1, 1)
    assert answer.partitions[0].state == stored == rig.partition().leadership
    assert rig.lines() == [f"{b} UMR t-0 leader 1 epoch 5 isr [1, 3]" for b in (1, 2, 3, 4)]
    (change,) = rig.recorded(LeadershipChange)
    assert change.old is not None
    assert (change.old.isr, change.new.isr) == ((1, 2, 3), (1, 3))
    assert {b.cause for b in rig.batches} == {"AlterPartitionReceived"}
    rig.check_converged()


def test_the_writing_controllers_epoch_is_stored() -> None:
    rig = led_by_one()
    successor = MachineHarness(rig.world, epoch=9).failover()
    successor.ask(successor.alter(1, successor.proposal([1, 2])))
    assert rig.world.states[("t", 0)].controller_epoch == 9


def test_who_stays_in_sync_keeps_the_directory_that_is_known_and_who_joins_has_that_of_its_registration() -> (
    None
):
    world = World()
    for broker_id, registered in ((1, (10, 11)), (2, (20,)), (3, (30,))):
        world.broker_up(broker_id, directories=registered)
    world.create_topic("t", {0: [1, 2, 3]})
    before = state(1, (1, 2), LEADER_EPOCH, PARTITION_EPOCH)
    world.put_state("t", 0, msgspec.structs.replace(before, directories=(11, 20)))
    rig = MachineHarness.active(world)
    epochs = tuple(world.brokers[b].epoch for b in (1, 3))
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 3], isr_epochs=epochs)))
    assert errors(answer) == [ErrorCode.NONE]
    assert world.states[("t", 0)].directories == (11, 30)


def test_who_stays_keeps_its_directory_though_the_leader_tells_no_broker_epochs() -> None:
    world = World()
    for broker_id, registered in ((1, (10, 11)), (2, (20,)), (3, (30,))):
        world.broker_up(broker_id, directories=registered)
    world.create_topic("t", {0: [1, 2, 3]})
    before = state(1, (1, 2), LEADER_EPOCH, PARTITION_EPOCH)
    world.put_state("t", 0, msgspec.structs.replace(before, directories=(11, 20)))
    rig = MachineHarness.active(world)
    rig.ask(rig.alter(1, changed(rig.proposal([1, 3]), isr_epochs=())))
    assert world.states[("t", 0)].directories == (11, 0)


def test_recovery_ends_by_the_leaders_word() -> None:
    rig = led_by_one(isr=(1,), recovery=RECOVERING)
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 2])))
    assert errors(answer) == [ErrorCode.INVALID_REQUEST]
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1], recovery=RECOVERED)))
    assert errors(answer) == [ErrorCode.NONE]
    assert rig.world.states[("t", 0)] == LeaderAndIsr(1, LEADER_EPOCH, (1,), PARTITION_EPOCH + 1, 1)
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1], recovery=RECOVERING)))
    assert errors(answer) == [ErrorCode.INVALID_REQUEST]


def test_what_is_stored_already_is_success_without_a_write() -> None:
    """KAFKA-14144: the reply to a change was lost, and the leader asks again with the epoch it knew."""
    rig = led_by_one()
    asked = rig.proposal([1, 2])
    rig.ask(rig.alter(1, asked))
    rig.forget()
    for again in (asked, changed(asked, new_isr=(2, 1)), changed(asked, new_isr=(2, 1), partition_epoch=0)):
        (answer,) = rig.ask(rig.alter(1, again))
        assert errors(answer) == [ErrorCode.NONE]
        assert answer.partitions[0].state == rig.world.states[("t", 0)]
    assert rig.commits() == []
    # The metadata of what was named is told again, as in the original.
    assert len(rig.lines("UMR")) == 3 * 4
    assert rig.lines("LISR") == []


def test_directories_that_nobody_can_believe_are_nothing_to_write() -> None:
    """Without the members' broker epochs they may be those of former processes."""
    rig = led_by_one()
    asked = changed(rig.proposal([1, 2, 3]), isr_directories=(11, 12, 13))
    (answer,) = rig.ask(rig.alter(1, asked))
    assert errors(answer) == [ErrorCode.NONE]
    assert rig.commits() == []


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"partition_epoch": PARTITION_EPOCH + 1}, "partition epoch 8 is newer than ours, 7"),
        ({"leader_epoch": LEADER_EPOCH + 1}, "leader epoch 6 is newer than ours, 5"),
        ({"new_isr": (1, 2), "isr_epochs": (-1, 1)}, "[2] registered anew since they got in sync"),
    ],
)
def test_the_reason_of_a_refusal_names_what_is_newer(fields: dict[str, Any], why: str) -> None:
    rig = led_by_one()
    rig.ask(rig.alter(1, changed(rig.proposal([1, 2]), **fields)))
    assert why in rig.recorded(Rejection)[0].reason


def test_a_set_is_no_list() -> None:
    """Section 14, point 9: another order of the same brokers is nothing to write, at the present epoch too."""
    rig = led_by_one()
    (answer,) = rig.ask(rig.alter(1, rig.proposal([3, 1, 2])))
    assert errors(answer) == [ErrorCode.NONE]
    assert rig.commits() == []
    assert answer.partitions[0].state is not None
    assert answer.partitions[0].state.isr == (1, 2, 3)


# --- many at once ----------------------------------------------------------------------------------------


def test_answers_are_in_the_requests_order_whatever_became_of_each() -> None:
    rig = led_by_one(4)
    wanted = [
        rig.proposal([1], number=3),
        rig.proposal([1], number=0, leader_epoch=1),
        changed(rig.proposal([1], number=1), topic="nowhere"),
        rig.proposal([1, 2, 3], number=2),
    ]
    (answer,) = rig.ask(rig.alter(1, *wanted))
    assert [(a.topic, a.partition, a.error) for a in answer.partitions] == [
        ("t", 3, ErrorCode.NONE),
        ("t", 0, ErrorCode.FENCED_LEADER_EPOCH),
        ("nowhere", 1, ErrorCode.UNKNOWN_TOPIC_ID),
        ("t", 2, ErrorCode.NONE),
    ]
    # Metadata of everything that was named and exists, changed or not.
    assert {line.split()[2] for line in rig.lines("UMR")} == {"t-3", "t-0", "t-2"}


def test_an_empty_request_is_answered() -> None:
    rig = led_by_one()
    (answer,) = rig.ask(rig.alter(1))
    assert (answer.error, list(answer.partitions)) == (ErrorCode.NONE, [])
    assert rig.effects == []


def test_a_partition_named_twice_in_one_request_is_decided_once() -> None:
    rig = led_by_one(2)
    asked = rig.proposal([1, 2])
    (answer,) = rig.ask(rig.alter(1, asked, rig.proposal([1], number=1), asked, rig.proposal([1])))
    assert errors(answer) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert rig.stored() == (1, LEADER_EPOCH, [1, 2])
    assert rig.stored("t", 1) == (1, LEADER_EPOCH, [1])


def test_a_partition_named_with_and_without_its_topics_id_is_decided_twice() -> None:
    """Which topic it is shows only later; no harm is done."""
    rig = led_by_one()
    asked = rig.proposal([1, 2])
    (answer,) = rig.ask(rig.alter(1, asked, changed(asked, topic_id="")))
    assert errors(answer) == [ErrorCode.NONE, ErrorCode.NONE]


def test_several_requests_may_name_one_partition() -> None:
    rig = led_by_one(2)
    first = rig.alter(1, rig.proposal([1], number=1))
    asked = rig.proposal([1, 2])
    answers = rig.ask(first, rig.alter(1, asked), rig.alter(1, asked), rig.alter(1, rig.proposal([1])))
    assert [errors(answer)[0] for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]
    assert rig.stored() == (1, LEADER_EPOCH, [1, 2])


def test_requests_that_wait_together_are_one_round_of_writes() -> None:
    rig = led_by_one(6)
    requests = [rig.alter(1, rig.proposal([1], number=n)) for n in range(5)]
    stale = AlterPartition(1, 3, [rig.proposal([1], number=5)])
    answers = rig.ask(*requests, stale)
    assert [a.error for a in answers] == [ErrorCode.NONE] * 5 + [ErrorCode.STALE_BROKER_EPOCH]
    # The first began alone; the rest waited behind it.
    assert [len(c.writes) for c in rig.commits()] == [1, 4]
    assert len(rig.finished) == 2


def test_what_came_in_between_is_handled_in_between() -> None:
    rig = led_by_one(3)
    first = rig.send(rig.alter(1, rig.proposal([1], number=0)))
    second = rig.send(rig.alter(1, rig.proposal([1], number=1)))
    rig.world.broker_down(1)
    third = rig.send(AlterPartition(1, rig.cluster.brokers[1].epoch, [rig.proposal([1], number=2)]))
    rig.run()
    assert [rig.replies[s].error for s in (first, second, third)] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.STALE_BROKER_EPOCH,
    ]
    assert [done.kind.value for done in rig.finished] == [
        "AlterPartitionReceived",
        "AlterPartitionReceived",
        # Between two parts of the broker's failure.
        "AlterPartitionReceived",
        "BrokerChange",
    ]


def test_thousands_go_in_few_large_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "BATCH_WRITES", 100)
    rig = led_by_one(250)
    (answer,) = rig.ask(rig.alter(1, *[rig.proposal([1], number=n) for n in range(250)]))
    assert set(errors(answer)) == {ErrorCode.NONE}
    assert [len(c.writes) for c in rig.commits()] == [100, 100, 50]
    rig.check_converged()


# --- conflicts and lost answers --------------------------------------------------------------------------


def test_a_conflict_concerns_that_partition_only_and_refreshes_the_cache() -> None:
    rig = led_by_one(3)
    world = rig.world

    def fate(_: Commit) -> Fate:
        if world.states[("t", 1)].partition_epoch == PARTITION_EPOCH:
            world.shrink_or_grow("t", 1, [1, 2])
        return Fate.ANSWERED

    rig.fate = fate
    (answer,) = rig.ask(rig.alter(1, *[rig.proposal([1, 3], number=n) for n in range(3)]))
    assert errors(answer) == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NONE]
    assert [rig.stored("t", n)[2] for n in range(3)] == [[1, 3], [1, 2], [1, 3]]
    rig.check_converged()


@pytest.mark.parametrize("fates", [[Fate.LANDED], [Fate.LOST], [Fate.LOST, Fate.LANDED]])
def test_a_write_whose_answer_is_lost(fates: list[Fate]) -> None:
    """Landed is a success; not landed is written again: one step of the partition epoch either way."""
    rig = led_by_one(2)
    script = iter(fates)
    rig.fate = lambda _: next(script, Fate.ANSWERED)
    (answer,) = rig.ask(rig.alter(1, *[rig.proposal([1], number=n) for n in range(2)]))
    assert errors(answer) == [ErrorCode.NONE, ErrorCode.NONE]
    assert {a.state.partition_epoch for a in answer.partitions} == {PARTITION_EPOCH + 1}
    rig.check_converged()


def test_nothing_is_answered_before_it_is_durable() -> None:
    rig = led_by_one()
    serial = rig.send(rig.alter(1, rig.proposal([1])))
    while not rig.outstanding:
        rig.advance()
    assert serial not in rig.replies
    rig.run()
    assert rig.replies[serial].error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("happens", "error"),
    [
        (lambda world: world.states.pop(("t", 0)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (
            lambda world: world.put_state("t", 0, state(2, [2], 6, 8, controller_epoch=3)),
            ErrorCode.NOT_CONTROLLER,
        ),
        (lambda world: world.shrink_or_grow("t", 0, [1]), ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_what_a_failed_write_is_called(happens: Callable[[World], Any], error: ErrorCode) -> None:
    rig = led_by_one()
    once = iter([happens])
    rig.fate = lambda _: (next(once, lambda _: None)(rig.world), Fate.ANSWERED)[1]
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 2])))
    assert errors(answer) == [error]


def test_a_write_that_never_lands_is_given_up_and_said() -> None:
    rig = led_by_one()
    rig.fate = lambda _: Fate.LOST
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1])))
    assert errors(answer) == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_requests_are_never_taken_for_one_another() -> None:
    """Events that say «look again» collapse; requests do not, however equal they are."""
    rig = led_by_one()
    request = rig.alter(1, rig.proposal([1]))
    rig.step(TOPIC_CHANGE)
    serials = [rig.send(request), rig.send(request)]
    rig.run()
    assert [rig.replies[s].error for s in serials] == [ErrorCode.NONE, ErrorCode.NONE]


# --- the rest of a request ------------------------------------------------------------------------------------


def test_refusals_of_one_error_that_are_too_many_hide_no_other_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_partition, "REFUSALS_RECORDED_MAX", 2)
    rig = led_by_one(6)
    stale = [rig.proposal([1], number=n, leader_epoch=4) for n in range(5)]
    rig.ask(rig.alter(1, *stale, rig.proposal([2], number=5)))
    assert rig.rejects() == ["FENCED_LEADER_EPOCH"] * 3 + ["INVALID_REQUEST"]
    assert "3 more, which are not recorded" in rig.recorded(Rejection)[2].reason


def test_long_requests_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once in three proposals: while they are taken, while they are looked up, and while they are answered."""
    monkeypatch.setattr(alter_partition, "EXAMINED_MAX", 3)
    rig = led_by_one()
    asked = changed(rig.proposal([1]), topic="nowhere", topic_id="")
    unknown = [changed(asked, partition=n) for n in range(9)]
    request = rig.alter(1, *unknown)
    assert len(rig.pauses(lambda context: alter_partition.alter_partitions(context, [(1, request)]))) == 9


@pytest.mark.parametrize(
    ("known", "told", "found"),
    [
        (0, 20, 20),
        (of_several((10, 20)), 20, 20),
        (10, 20, 20),
        (77, 20, 77),
        (of_several((10, 77)), 20, of_several((10, 77))),
        (10, 99, 10),
    ],
)
def test_where_a_replica_is_is_believed_unless_it_may_have_lost_its_data(
    known: int, told: int, found: int
) -> None:
    cluster = Cluster(100)
    cluster.brokers = {1: a_broker(1, 1, directories=(10, 20))}
    assert cluster.more_exactly(1, known, told) == found
    assert cluster.more_exactly(2, known, told) == known


def test_partitions_that_differ_in_one_thing_are_decided_each_by_its_own() -> None:
    """Others of the request propose the same ISR, and nothing else about them is alike."""
    world = World(1, 2, 3, 4)
    world.create_topic("t", {0: [1, 2, 3], 1: [1, 2], 2: [1, 2, 3], 3: [1, 2, 3]})
    for number, (isr, recovery) in enumerate([((1, 2), 0), ((1, 2), 0), ((1, 2), 0), ((1,), RECOVERING)]):
        world.put_state("t", number, state(1, isr, LEADER_EPOCH, PARTITION_EPOCH, recovery=recovery))
    world.broker_down(3)
    rig = MachineHarness.active(world)
    world.broker_up(3)
    rig.run()
    rig.cluster.shutting_down.add(2)
    wanted = [
        rig.proposal([1, 3], number=0),
        rig.proposal([1, 3], number=1),
        changed(rig.proposal([1, 3], number=2), isr_epochs=(-1, 1)),
        changed(rig.proposal([1, 2], number=3), recovery=RECOVERED),
    ]
    (answer,) = rig.ask(rig.alter(1, *wanted))
    assert errors(answer) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.INELIGIBLE_REPLICA,
    ]
    assert rig.stored("t", 0)[2] == [1, 3]


@pytest.mark.parametrize("other", ["sender", "topic id", "directories", "disk"])
def test_a_verdict_is_kept_for_what_is_alike_only(other: str) -> None:
    """The same is asked of two partitions; each has the verdict that it has when it is asked about alone."""
    cluster = Cluster(1, 7)
    cluster.brokers = {b: a_broker(b, 50 + b, directories=(b,)) for b in (1, 2, 3)}
    topic = Topic("t", "id")
    one, two = (Partition(topic, number, (1, 2, 3)) for number in (0, 1))
    for partition in (one, two):
        partition.leadership = msgspec.structs.replace(state(1, (1, 2), 5, 7), directories=(1, 2))
    proposal = Proposal("t", "id", 0, 5, (1, 2, 3), RECOVERED, 7, (51, 52, 53))
    asked = [(one, 1, proposal), (two, 1, changed(proposal, partition=1))]
    match other:
        case "sender":
            asked[1] = (two, 2, asked[1][2])
        case "topic id":
            cluster.shutting_down.add(3)
            asked[1] = (two, 1, changed(asked[1][2], topic_id=""))
        case "directories":
            two.leadership = msgspec.structs.replace(state(1, (1, 2), 5, 7), directories=(1, 9))
        case "disk":
            cluster.offline_dirs[3] = {two}
    alike: alter_partition.Alike = {}
    together = [alter_partition.evaluate(cluster, *each, alike) for each in asked]
    assert together == [alter_partition.evaluate(cluster, *each) for each in asked]
    assert together[0] != together[1]
