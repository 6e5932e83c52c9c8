"""One partition: roles, fencing, and divergence of two logs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.control.replicas import Replica, Role
from broker_stub.log.interface import Log
from broker_stub.replication.partition import Divergence, Partition, PartitionError
from proto.gen import common_pb2 as codes
from tests.support.broker.memory_log import MemoryLog
from tests.support.broker.replication_fakes import FOO, batch, content, log_of


def role(
    leader: int = 0, epoch: int = 5, isr: tuple[int, ...] = (0, 1, 2), partition_epoch: int = 1
) -> Replica:
    kind = Role.LEADER if leader == 0 else Role.FOLLOWER
    return Replica("foo", 3, None, kind, leader, epoch, partition_epoch, 9, isr, (0, 1, 2))


def partition_with(log: Log, high_watermark: int = 0, broker_id: int = 0) -> Partition:
    found = Partition(FOO, broker_id, log, high_watermark)
    found.min_isr = 1
    return found


def refused(call: Callable[[], object]) -> codes.ErrorCode:
    with pytest.raises(PartitionError) as caught:
        call()
    assert str(caught.value)
    return caught.value.error_code


# --- roles -------------------------------------------------------------------------------------------------


def test_a_new_leader_begins_its_term_where_its_log_ends() -> None:
    partition = partition_with(log_of((3, "ab")))
    assert partition.make_leader(role(epoch=5), 1000)
    assert partition.is_leader
    assert (partition.leader_epoch, partition.leader_epoch_start_offset) == (5, 2)
    assert partition.log.end_offset_for_epoch(5) == (5, 2)
    assert (partition.isr, partition.assigned) == ((0, 1, 2), (0, 1, 2))
    assert (partition.partition_epoch, partition.controller_epoch) == (1, 9)


def test_leading_on_in_a_newer_epoch_is_no_new_leadership_but_a_new_term() -> None:
    partition = partition_with(log_of((3, "ab")))
    partition.make_leader(role(), 1000)
    partition.record_fetch(1, 2, 1000)
    partition.log.append_as_leader(batch("c"), 5)
    assert not partition.make_leader(role(epoch=6, partition_epoch=2), 2000)
    assert partition.leader_epoch_start_offset == 3
    # What a follower had in the earlier term is to be said again.
    assert partition.remote[1].log_end_offset == -1


def test_who_leads_on_takes_nobody_for_in_sync_whom_it_has_not_taken_in() -> None:
    """A member that it had removed comes from a ZooKeeper that was restored."""
    partition = partition_with(log_of((3, "ab")))
    partition.make_leader(role(isr=(0, 1)), 1000)
    partition.make_leader(role(epoch=6, partition_epoch=2), 2000)
    proposal = partition.propose_shrink(2000, 30_000)
    assert proposal is not None
    assert proposal.isr == (0, 1)


def test_who_leads_on_takes_for_in_sync_whom_it_was_just_taking_in() -> None:
    partition = partition_with(log_of((3, "ab")))
    partition.make_leader(role(isr=(0, 1)), 1000)
    partition.record_fetch(2, 2, 1000)
    assert partition.propose_expansion(2, 1000, lambda _: True) is not None
    partition.make_leader(role(epoch=6, partition_epoch=2), 2000)
    assert partition.propose_shrink(2000, 30_000) is None


def test_the_same_order_again_changes_nothing() -> None:
    partition = partition_with(log_of((3, "ab")))
    partition.make_leader(role(), 1000)
    partition.record_fetch(1, 2, 1000)
    before = content(partition.log)
    assert not partition.make_leader(role(), 2000)
    assert partition.remote[1].log_end_offset == 2
    assert partition.leader_epoch_start_offset == 2
    assert content(partition.log) == before
    partition.make_follower(role(1, 6))
    assert not partition.make_follower(role(1, 6))


def test_a_follower_has_no_isr_and_no_followers() -> None:
    partition = partition_with(log_of((3, "ab")), high_watermark=1)
    partition.make_leader(role(), 1000)
    partition.propose_shrink(9000, 100)
    assert partition.make_follower(role(1, 6, partition_epoch=2))
    assert (partition.isr, partition.proposed_isr, partition.remote) == ((), None, {})
    assert (partition.leader, partition.leader_epoch, partition.high_watermark) == (1, 6, 1)
    assert partition.make_follower(role(2, 7)), "another leader"
    assert not partition.make_follower(role(2, 8)), "the same in a newer epoch"


@pytest.mark.parametrize(("checkpointed", "expected"), [(-5, 0), (0, 0), (1, 1), (2, 2), (99, 2)])
def test_a_checkpointed_high_watermark_is_kept_inside_the_log(checkpointed: int, expected: int) -> None:
    assert partition_with(log_of((3, "ab")), checkpointed).high_watermark == expected


# --- fencing -----------------------------------------------------------------------------------------------


def test_the_epoch_is_checked_before_the_role() -> None:
    partition = partition_with(MemoryLog())
    partition.make_leader(role(), 0)
    partition.require_leader()
    partition.require_leader(5)
    assert refused(lambda: partition.require_leader(4)) == codes.FENCED_LEADER_EPOCH
    assert refused(lambda: partition.require_leader(6)) == codes.UNKNOWN_LEADER_EPOCH
    partition.make_follower(role(1, 6))
    assert refused(lambda: partition.require_leader(5)) == codes.FENCED_LEADER_EPOCH
    assert refused(lambda: partition.require_leader(6)) == codes.NOT_LEADER_OR_FOLLOWER
    assert refused(partition.require_leader) == codes.NOT_LEADER_OR_FOLLOWER


def test_who_is_no_replica_is_no_follower() -> None:
    partition = partition_with(MemoryLog())
    partition.make_leader(role(), 0)
    for stranger in (0, 7):
        assert refused(lambda who=stranger: partition.record_fetch(who, 0, 0)) == codes.NOT_LEADER_OR_FOLLOWER  # type: ignore[misc]


# --- where logs part ---------------------------------------------------------------------------------------

#: Leader epochs 1, 2, 4 from offsets 0, 3, 5; the end is 7.
LEADERS_LOG = ((1, "abc"), (2, "de"), (4, "fg"))


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (7, 4, None),
        (6, 4, None),
        (5, 2, None),
        (3, 1, None),
        (0, 1, None),
        # It has more of an epoch than we.
        (9, 4, (4, 7)),
        (6, 2, (2, 5)),
        (4, 1, (1, 3)),
        # An epoch that we have not: the one before it, and where that ends.
        (6, 3, (2, 5)),
        (5, 3, (2, 5)),
    ],
)
def test_a_leader_says_where_a_followers_log_diverges(
    offset: int, epoch: int, expected: tuple[int, int] | None
) -> None:
    partition = partition_with(log_of(*LEADERS_LOG))
    assert partition.divergence(offset, epoch) == (None if expected is None else Divergence(*expected))


@pytest.mark.parametrize("epoch", [-1, 5])
def test_an_epoch_the_leader_cannot_place(epoch: int) -> None:
    partition = partition_with(log_of(*LEADERS_LOG))
    assert refused(lambda: partition.divergence(7, epoch)) == codes.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((4, 6), 6),
        ((4, 99), 7),
        ((2, 4), 4),
        ((2, 99), 5),
        # Told of an epoch that we have not: to the end of ours before it.
        ((3, 6), 5),
        ((3, 4), 5),
        ((1, 2), 2),
        # Of a later one than any of ours.
        ((9, 6), 6),
        ((9, 99), 7),
        # The leader knows nothing: the high watermark.
        ((-1, -1), 3),
        # It knows an end, but no epochs.
        ((-1, 4), 4),
        ((-1, 99), 7),
    ],
)
def test_where_a_follower_cuts(answer: tuple[int, int], expected: int) -> None:
    partition = partition_with(log_of(*LEADERS_LOG), high_watermark=3)
    assert partition.truncation_offset(*answer) == expected


def test_cutting_below_the_high_watermark_takes_it_along() -> None:
    partition = partition_with(log_of(*LEADERS_LOG), high_watermark=6)
    assert partition.truncate(4)
    assert partition.high_watermark == partition.log.log_end_offset == 4
    assert not partition.truncate(4)


TERMS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=4)


@given(TERMS, TERMS, TERMS)
def test_whatever_the_logs_they_agree_in_the_end(
    shared: list[tuple[int, int]], ours: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    """A follower that does what the leader says ends with a beginning of the leader's log, in few steps."""

    def grow(log: MemoryLog, terms: list[tuple[int, int]], who: str, first: int) -> None:
        epoch = first
        for step, count in terms:
            epoch += 2 * step + 2
            for _ in range(count):
                # Leader epochs are of one leader: even ones of ours, odd ones of theirs, after what they share.
                log.append_as_leader(batch(f"{who}{epoch}"), epoch + (who == "their"))

    follower_log, leader_log = MemoryLog(), MemoryLog()
    for log in (follower_log, leader_log):
        grow(log, shared, "both", 0)
    split = leader_log.latest_epoch or 0
    grow(follower_log, ours, "our", split)
    grow(leader_log, theirs, "their", split)
    leader, follower = partition_with(leader_log), partition_with(follower_log, broker_id=1)
    leader.make_leader(role(epoch=1000), 0)
    for _ in range(20):
        epoch = follower_log.latest_epoch
        if epoch is None:
            break
        diverging = leader.divergence(follower_log.log_end_offset, epoch)
        if diverging is None:
            break
        follower.truncate(follower.truncation_offset(*diverging))
    else:
        pytest.fail("it goes on for ever")
    kept = content(follower_log)
    assert kept == content(leader_log)[: len(kept)]
    assert len(kept) >= sum(count for _, count in shared), "what they share is not cut"


# --- the stories the KIPs tell -----------------------------------------------------------------------------


def agree(leader: Partition, follower: Partition) -> None:
    """The follower fetches until it has all."""
    for _ in range(20):
        epoch = follower.log.latest_epoch
        if epoch is not None:
            diverging = leader.divergence(follower.log.log_end_offset, epoch)
            if diverging is not None:
                follower.truncate(follower.truncation_offset(*diverging))
                continue
        records = leader.log.read(follower.log.log_end_offset, 1, leader.log.log_end_offset)
        if not records:
            return
        follower.log.append_as_follower(records)


def replicas(*logs: MemoryLog) -> list[Partition]:
    return [partition_with(log, broker_id=number) for number, log in enumerate(logs)]


def test_kip_101_a_follower_that_restarts_keeps_what_is_committed() -> None:
    """Scenario 1: B has m2 but does not know yet that it is committed; it restarts, and A dies at once."""
    a, b = replicas(log_of((0, ["m1", "m2"])), log_of((0, ["m1", "m2"])))
    b = partition_with(b.log, high_watermark=1, broker_id=1)
    b.make_follower(role(leader=0, epoch=1))
    assert b.log.log_end_offset == 2, "its high watermark says nothing of what to keep"
    b.make_leader(role(leader=1, epoch=2, isr=(1,)), 0)
    a.make_follower(role(leader=1, epoch=2))
    agree(b, a)
    assert content(a.log) == content(b.log) == [(0, "m1"), (0, "m2")]


def test_kip_101_after_both_failed_the_logs_do_not_differ() -> None:
    """Scenario 2: A had m2, B had not; both die, B comes back first and writes m3 where m2 was."""
    a, b = replicas(log_of((0, ["m1", "m2"])), log_of((0, ["m1"])))
    b.make_leader(role(leader=1, epoch=1, isr=(1,)), 0)
    b.log.append_as_leader(batch("m3"), 1)
    a = partition_with(a.log, high_watermark=2)
    a.make_follower(role(leader=1, epoch=1))
    agree(b, a)
    assert content(a.log) == content(b.log) == [(0, "m1"), (1, "m3")]


def test_kip_279_fast_leader_changes_leave_no_divergence() -> None:
    """A led epochs 0 and 1, B led 0 and 2 without having seen 1: cutting to the end of epoch 1 is not enough."""
    a, b = replicas(log_of((0, ["m1"]), (1, ["m2", "m3"])), log_of((0, ["m1"]), (2, ["m4"])))
    b.make_leader(role(leader=1, epoch=3, isr=(1,)), 0)
    a.make_follower(role(leader=1, epoch=3))
    agree(b, a)
    assert content(a.log) == content(b.log) == [(0, "m1"), (2, "m4")]


def test_kip_279_epochs_are_compared_until_one_is_common() -> None:
    """Neither has the other's latest epochs: it takes more than one question."""
    a = log_of((0, ["m1"]), (1, ["a"]), (3, ["a", "a"]), (5, ["a"]))
    b = log_of((0, ["m1"]), (2, ["b", "b"]), (4, ["b"]), (6, ["b"]))
    leader, follower = partition_with(b, broker_id=1), partition_with(a)
    leader.make_leader(role(leader=1, epoch=7, isr=(1,)), 0)
    assert leader.divergence(5, 5) == Divergence(4, 4)
    assert follower.truncation_offset(4, 4) == 4
    agree(leader, follower)
    assert content(a) == content(b)


def test_kip_207_a_new_leader_says_no_end_before_it_knows_one() -> None:
    partition = partition_with(log_of((0, ["m1", "m2"])), high_watermark=1)
    partition.make_leader(role(epoch=1), 0)
    assert refused(partition.consumer_end) == codes.OFFSET_NOT_AVAILABLE
    for follower in (1, 2):
        partition.record_fetch(follower, 2, 0)
    assert partition.advance_high_watermark(0, 1000, lambda _: True)
    assert partition.consumer_end() == 2
