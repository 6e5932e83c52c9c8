"""One leader: how far records are committed, who joins and leaves the ISR, and what the controller's answers do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.control.replicas import Replica, Role
from broker_stub.replication.partition import ISR_REFUSED_PAUSE_MS, Partition, PartitionError
from broker_stub.replication.ports import IsrProposal, IsrResult
from proto.gen import common_pb2 as codes
from tests.support.broker.replication_fakes import FOO, batch, granted, log_of

LAG_MS = 1000


def everybody(_broker: int) -> bool:
    return True


def nobody(_broker: int) -> bool:
    return False


def leader(
    isr: tuple[int, ...] = (0, 1, 2), end: int = 10, *, least: int | None = 1, now_ms: int = 0
) -> Partition:
    """Broker 0 leading epoch 5 of a partition on 0, 1 and 2; ``end`` records were there before."""
    partition = Partition(FOO, 0, log_of((3, ["x"] * end)))
    if least is not None:
        partition.min_isr = least
    partition.make_leader(Replica("foo", 3, None, Role.LEADER, 0, 5, 1, 9, isr, (0, 1, 2)), now_ms)
    return partition


def advanced(partition: Partition, now_ms: int = 0) -> int:
    partition.advance_high_watermark(now_ms, LAG_MS, everybody)
    return partition.high_watermark


def expansion(partition: Partition, follower: int = 1, now_ms: int = 0) -> IsrProposal:
    proposal = partition.propose_expansion(follower, now_ms, everybody)
    assert proposal is not None
    return proposal


# --- the high watermark ------------------------------------------------------------------------------------


def test_it_is_the_least_end_of_the_isr() -> None:
    partition = leader()
    assert advanced(partition) == 0, "nobody has said yet what it has"
    partition.record_fetch(1, 10, 0)
    assert advanced(partition) == 0
    partition.record_fetch(2, 4, 0, directory=77)
    assert partition.remote[2].directory == 77
    assert advanced(partition) == 4
    partition.record_fetch(2, 10, 0)
    assert advanced(partition) == 10
    assert not partition.advance_high_watermark(0, LAG_MS, everybody)


def test_it_never_goes_back() -> None:
    partition = leader((0, 1))
    partition.record_fetch(1, 8, 0)
    assert advanced(partition, 5000) == 8
    partition.record_fetch(1, 3, 5000)
    assert advanced(partition, 5000) == 8


def test_alone_it_is_the_end() -> None:
    assert advanced(leader((0,)), 5000) == 10


@pytest.mark.parametrize(("least", "expected"), [(1, 10), (2, 10), (3, 0), (9, 0), (None, 0)])
def test_not_under_min_insync_replicas(least: int | None, expected: int) -> None:
    partition = leader((0, 1), least=least)
    partition.record_fetch(1, 10, 5000)
    assert advanced(partition, 5000) == expected


def test_more_replicas_than_there_are_are_not_wanted() -> None:
    partition = leader(least=9)
    partition.require_min_isr()
    partition.isr = (0, 1)
    with pytest.raises(PartitionError, match=r"\[0, 1\] are fewer than min.insync.replicas 3"):
        partition.require_min_isr()


def test_whoever_is_about_to_join_holds_it() -> None:
    partition = leader((0,), end=0)
    partition.record_fetch(1, 0, 100)  # caught up
    partition.log.append_as_leader(batch("a"), 5)
    assert advanced(partition, 100 + LAG_MS) == 0
    assert not partition.advance_high_watermark(100 + LAG_MS, LAG_MS, everybody)
    dead = leader((0,), end=0)
    dead.record_fetch(1, 0, 100)
    dead.log.append_as_leader(batch("a"), 5)
    assert dead.advance_high_watermark(100, LAG_MS, nobody), "the dead do not join"
    assert advanced(partition, 101 + LAG_MS) == 1, "too slow for too long"


def test_whoever_is_proposed_holds_it() -> None:
    partition = leader((0,))
    partition.record_fetch(1, 10, 0)
    assert advanced(partition) == 10
    expansion(partition)
    partition.log.append_as_leader(batch("a"), 5)
    assert advanced(partition, 60_000) == 10
    assert partition.maximal_isr == {0, 1}


def test_whoever_is_proposed_to_leave_holds_it_still() -> None:
    partition = leader((0, 1))
    partition.record_fetch(1, 4, 0)
    proposal = partition.propose_shrink(60_000, LAG_MS)
    assert proposal is not None
    assert proposal.isr == (0,)
    assert advanced(partition, 60_000) == 4
    assert partition.apply_isr_result(granted(proposal), 60_000)
    assert advanced(partition, 60_000) == 10


def test_a_follower_follows_the_leaders_as_far_as_its_log_goes() -> None:
    partition = Partition(FOO, 0, log_of((3, "abc")))
    partition.make_follower(Replica("foo", 3, None, Role.FOLLOWER, 1, 5, 1, 9, (), (0, 1)))
    assert partition.follow_high_watermark(2)
    assert not partition.follow_high_watermark(1)
    assert partition.follow_high_watermark(7)
    assert partition.high_watermark == 3


@given(
    isr=st.sets(st.sampled_from([1, 2])),
    ends=st.tuples(st.integers(-1, 10), st.integers(-1, 10)),
    proposed=st.sampled_from([None, 1, 2]),
    now_ms=st.integers(0, 3 * LAG_MS),
)
def test_it_is_never_above_what_a_member_has(
    isr: set[int], ends: tuple[int, int], proposed: int | None, now_ms: int
) -> None:
    partition = leader((0, *isr))
    for follower, end in zip((1, 2), ends, strict=True):
        if end >= 0:
            partition.record_fetch(follower, end, 0)
    if proposed is not None:
        partition.propose_expansion(proposed, 0, everybody)
    high_watermark = advanced(partition, now_ms)
    for member in partition.maximal_isr - {0}:
        assert high_watermark <= max(partition.remote[member].log_end_offset, 0)


# --- joining -----------------------------------------------------------------------------------------------


def test_joining_needs_the_high_watermark_and_the_start_of_the_epoch() -> None:
    partition = leader((0, 2))
    partition.record_fetch(2, 10, 0)
    partition.log.append_as_leader(batch("a"), 5)
    partition.record_fetch(2, 11, 0)
    assert advanced(partition, 5000) == 11
    for offset, joins in ((9, False), (10, False), (11, True)):
        partition.record_fetch(1, offset, 5000)
        assert (partition.propose_expansion(1, 5000, everybody) is not None) is joins
    fresh = leader((0, 2))
    fresh.record_fetch(1, 9, 0)
    assert fresh.high_watermark == 0
    assert fresh.propose_expansion(1, 0, everybody) is None, "below the start of the epoch"
    fresh.record_fetch(1, 10, 0)
    assert expansion(fresh).isr == (0, 2, 1)


def test_who_does_not_join() -> None:
    partition = leader((0, 2))
    partition.record_fetch(1, 10, 0)
    assert partition.propose_expansion(1, 0, nobody) is None
    assert partition.propose_expansion(2, 0, everybody) is None, "it is in already"
    assert partition.propose_expansion(7, 0, everybody) is None, "no replica"
    expansion(partition)
    assert partition.propose_expansion(1, 0, everybody) is None, "one proposal at a time"
    assert partition.propose_shrink(60_000, LAG_MS) is None


def test_what_is_proposed() -> None:
    partition = leader((0, 2))
    partition.record_fetch(1, 10, 0, 77)
    proposal = expansion(partition)
    assert proposal == IsrProposal(FOO, None, 5, (0, 2, 1), 1, 9, (-1, -1, 77))
    assert partition.owns(proposal)
    partition.make_leader(Replica("foo", 3, None, Role.LEADER, 0, 6, 2, 9, (0, 2), (0, 1, 2)), 0)
    assert not partition.owns(proposal)
    assert partition.maximal_isr == {0, 2}


def test_a_fetch_of_the_former_process_comes_late() -> None:
    partition = leader((0, 1))
    partition.record_fetch(1, 0, 0, 78)
    with pytest.raises(PartitionError, match="broker epoch 77 of broker 1 is older than 78"):
        partition.record_fetch(1, 10, 0, 77)
    assert partition.remote[1].log_end_offset == 0
    partition.record_fetch(1, 4, 0, 79)
    assert partition.remote[1].log_end_offset == 4, "it has registered anew"


# --- leaving -----------------------------------------------------------------------------------------------


def out_of_sync(partition: Partition, now_ms: int) -> set[int]:
    proposal = partition.propose_shrink(now_ms, LAG_MS)
    partition.proposed_isr = None
    return set() if proposal is None else set(partition.isr) - set(proposal.isr)


def test_members_have_the_lag_time_from_the_beginning() -> None:
    partition = leader(now_ms=7000)
    assert out_of_sync(partition, 7000 + LAG_MS) == set()
    assert out_of_sync(partition, 7001 + LAG_MS) == {1, 2}


def test_whoever_has_everything_is_in_sync_however_long_ago_it_fetched() -> None:
    partition = leader()
    partition.record_fetch(1, 10, 0)
    assert out_of_sync(partition, 10 * LAG_MS) == {2}


def test_reaching_the_end_of_the_last_fetch_counts_as_of_then() -> None:
    partition = leader((0, 1))
    partition.record_fetch(1, 8, 1000)  # the end is 10
    partition.log.append_as_leader(batch("a"), 5)
    partition.record_fetch(1, 10, 1800)  # it has what was the end at 1000
    assert out_of_sync(partition, 1000 + LAG_MS) == set()
    assert out_of_sync(partition, 1001 + LAG_MS) == {1}


def test_a_clock_near_its_beginning_lets_nobody_in() -> None:
    partition = leader((0,), end=0, now_ms=5)
    partition.log.append_as_leader(batch("a"), 5)
    assert advanced(partition, 5) == 1, "who never fetched is not about to join"


# --- what the controller answers ---------------------------------------------------------------------------


def proposing() -> tuple[Partition, IsrProposal]:
    partition = leader((0,))
    partition.record_fetch(1, 10, 0)
    partition.record_fetch(2, 10, 0)
    advanced(partition)
    return partition, expansion(partition)


def test_a_granted_proposal_becomes_the_isr() -> None:
    partition, proposal = proposing()
    assert partition.apply_isr_result(granted(proposal), 0)
    assert (partition.isr, partition.proposed_isr, partition.partition_epoch) == ((0, 1), None, 2)
    assert expansion(partition, 2).partition_epoch == 2


def test_granted_what_was_so_already() -> None:
    partition, proposal = proposing()
    same = IsrResult(FOO, codes.NONE, 0, 5, (0,), 1)
    assert not partition.apply_isr_result(same, 0)
    assert (partition.isr, partition.proposed_isr) == ((0,), None)
    assert proposal.isr == expansion(partition).isr


def test_what_an_older_zookeeper_has_already_is_not_decided() -> None:
    """It was restored, and has just this ISR under a lower version: the member counts, as somebody may elect it."""
    partition, proposal = proposing()
    assert not partition.apply_isr_result(granted(proposal)._replace(partition_epoch=0), 0)
    assert (partition.isr, partition.partition_epoch) == ((0,), 1)
    assert partition.maximal_isr == {0, 1}
    assert partition.propose_shrink(60_000, LAG_MS) is None


@pytest.mark.parametrize("error", [codes.OPERATION_NOT_ATTEMPTED, codes.INELIGIBLE_REPLICA])
def test_not_this_member_now(error: codes.ErrorCode) -> None:
    partition, proposal = proposing()
    assert not partition.apply_isr_result(IsrResult(FOO, error), 100)
    assert partition.isr == (0,)
    assert partition.maximal_isr == {0}
    assert partition.propose_expansion(1, 99 + ISR_REFUSED_PAUSE_MS, everybody) is None
    assert expansion(partition, 1, 100 + ISR_REFUSED_PAUSE_MS).isr == proposal.isr


@pytest.mark.parametrize(
    "error",
    [
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.UNKNOWN_TOPIC_ID,
        codes.FENCED_LEADER_EPOCH,
        codes.INVALID_UPDATE_VERSION,
        codes.INVALID_REQUEST,
    ],
)
def test_behind_the_controller(error: codes.ErrorCode) -> None:
    """Nothing more is proposed; what was proposed may be durable from an attempt whose answer was lost."""
    partition, _ = proposing()
    assert not partition.apply_isr_result(IsrResult(FOO, error), 0)
    assert partition.isr == (0,)
    assert partition.maximal_isr == {0, 1}
    partition.log.append_as_leader(batch("a"), 5)
    assert advanced(partition, 60_000) == 10, "the proposed member still counts"
    assert partition.propose_expansion(2, 60_000, everybody) is None
    assert partition.propose_shrink(60_000, LAG_MS) is None
    partition.make_leader(Replica("foo", 3, None, Role.LEADER, 0, 6, 2, 9, (0,), (0, 1, 2)), 60_000)
    assert advanced(partition, 60_000) == 11
    partition.record_fetch(1, 11, 60_000)
    assert expansion(partition, 1, 60_000).leader_epoch == 6


def test_an_answer_of_another_term_is_not_believed() -> None:
    partition, _ = proposing()
    assert not partition.apply_isr_result(IsrResult(FOO, codes.NONE, 1, 6, (1, 2), 9), 0)
    assert (partition.isr, partition.partition_epoch) == ((0,), 1)
    assert partition.maximal_isr == {0, 1}


def test_a_leader_of_a_new_epoch_tells_the_directories_again() -> None:
    partition = leader()
    partition.directory = 7
    proposal = partition.propose_directories(0)
    assert proposal is not None
    assert partition.apply_isr_result(granted(proposal), 0, {0: 7})
    assert partition.propose_directories(0) is None
    partition.make_leader(Replica("foo", 3, None, Role.LEADER, 0, 6, 2, 9, (0, 1, 2), (0, 1, 2)), 0)
    assert partition.propose_directories(0) is not None


def test_directories_that_were_refused_are_told_again_after_a_pause() -> None:
    partition = leader()
    partition.directory = 7
    assert partition.propose_directories(0) is not None
    partition.apply_isr_result(IsrResult(FOO, codes.INELIGIBLE_REPLICA), 100)
    assert partition.propose_directories(99 + ISR_REFUSED_PAUSE_MS) is None
    assert partition.propose_directories(100 + ISR_REFUSED_PAUSE_MS) is not None


def test_who_is_proposed_counts_for_no_acknowledgement() -> None:
    partition = leader((0,), least=2)
    partition.record_fetch(1, 10, 0)
    assert expansion(partition).isr == (0, 1)
    with pytest.raises(PartitionError):
        partition.require_min_isr()


def test_a_member_that_is_no_replica_is_put_out() -> None:
    partition = leader((0, 1, 9))
    partition.record_fetch(1, 10, 0)
    proposal = partition.propose_shrink(0, LAG_MS)
    assert proposal is not None
    assert proposal.isr == (0, 1)


def test_an_older_answer_changes_nothing() -> None:
    partition, _ = proposing()
    assert not partition.apply_isr_result(IsrResult(FOO, codes.NONE, 0, 5, (0, 2), 0), 0)
    assert (partition.isr, partition.partition_epoch) == ((0,), 1)
