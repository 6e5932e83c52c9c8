"""The fetcher against a scripted leader: append, truncate, back off, role changes during a fetch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_stub.control.requests import Key, StopReplica
from broker_stub.errors import BrokerError
from broker_stub.replication.fetcher import FetchSettings
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.support.broker.replication_fakes import (
    FOO,
    Broker,
    content,
    leaping,
    log_of,
    order,
    run_ready_tasks,
    stored,
)

OLD = FetchSettings(truncation_on_fetch=False)
Call = tuple[str, int, Any]


class Leader:
    """Other brokers: every call waits in `calls` until the test answers it."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.times: list[float] = []
        self._answers: list[asyncio.Future[object]] = []

    async def respond(self, method: str, broker: int, request: object) -> object:
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.calls.append((method, broker, request))
        self.times.append(asyncio.get_running_loop().time())
        self._answers.append(answer)
        return await answer

    @property
    def last(self) -> Call:
        return self.calls[-1]

    async def answer(self, answer: object) -> None:
        """Answer the newest call."""
        future = self._answers[-1]
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        await run_ready_tasks()

    async def fetched(self, key: Key = FOO, **fields: Any) -> None:
        partition = wire.FetchedPartition(topic=key[0], partition=key[1], **fields)
        await self.answer(wire.FetchResponse(partitions=[partition]))

    async def offset(self, offset: int, error: codes.ErrorCode = codes.NONE) -> None:
        listed = wire.ListedOffset(topic="foo", partition=3, offset=offset, error_code=error)
        await self.answer(wire.ListOffsetsResponse(partitions=[listed]))

    async def epoch_end(self, epoch: int, end_offset: int) -> None:
        answer = wire.OffsetForLeaderEpoch(
            topic="foo", partition=3, leader_epoch=epoch, end_offset=end_offset
        )
        await self.answer(wire.OffsetsForLeaderEpochResponse(partitions=[answer]))


async def following(
    *terms: tuple[int, list[str]], epoch: int = 7, fetch: FetchSettings | None = None, high_watermark: int = 0
) -> tuple[Broker, Leader]:
    """Broker 0 with these records, following broker 1."""
    leader = Leader()
    broker = Broker(0, respond=leader.respond, fetch=fetch, high_watermarks={FOO: high_watermark})
    log = broker.logs.open(FOO)
    source = log_of(*terms)
    log.append_as_follower(source.read(0, 2**31, source.log_end_offset))
    await broker.leader_and_isr(order(1, epoch))
    await run_ready_tasks()
    return broker, leader


def asked(leader: Leader) -> wire.FetchPartition:
    method, broker, request = leader.last
    assert (method, broker) == ("fetch", 1)
    (partition,) = request.partitions
    assert isinstance(partition, wire.FetchPartition)
    return partition


@leaping
async def test_records_and_high_watermark_are_taken_and_more_is_asked_for() -> None:
    broker, leader = await following((3, ["a"]))
    broker.partition().directory = 77
    await leader.fetched(error_code=codes.NOT_LEADER_OR_FOLLOWER)
    await asyncio.sleep(0.05)
    assert leader.last[2] == wire.FetchRequest(
        replica_id=0,
        replica_epoch=1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10 * 1024 * 1024,
        partitions=[
            wire.FetchPartition(
                topic="foo",
                partition=3,
                fetch_offset=1,
                partition_max_bytes=1024 * 1024,
                current_leader_epoch=7,
                last_fetched_epoch=3,
                log_start_offset=0,
                high_watermark=0,
                replica_directory=77,
            )
        ],
    )
    await leader.fetched(records=stored("b", epoch=7, offset=1), high_watermark=9)
    assert content(broker.log()) == [(3, "a"), (7, "b")]
    assert broker.partition().high_watermark == 2, "no further than its own log"
    again = asked(leader)
    assert (again.fetch_offset, again.last_fetched_epoch, again.high_watermark) == (2, 7, 2)


@leaping
async def test_a_divergence_is_cut_away_and_asked_again() -> None:
    broker, leader = await following((3, ["a", "b"]), (5, ["x", "y"]))
    await leader.fetched(diverging_epoch=wire.EpochEndOffset(epoch=3, end_offset=1))
    assert content(broker.log()) == [(3, "a")]
    assert (asked(leader).fetch_offset, asked(leader).last_fetched_epoch) == (1, 3)
    assert broker.loop.time() == 0.0


@leaping
async def test_the_older_way_asks_for_the_end_of_its_last_epoch_first() -> None:
    broker, leader = await following((3, ["a", "b"]), (5, ["x", "y"]), fetch=OLD)
    (call,) = leader.calls
    place = wire.OffsetForLeaderEpochPartition(
        topic="foo", partition=3, leader_epoch=5, current_leader_epoch=7
    )
    request = wire.OffsetsForLeaderEpochRequest(replica_id=0, partitions=[place])
    assert call == ("offsets_for_leader_epoch", 1, request)
    # KIP-279: the leader has no epoch 5, and of its epoch 4 we have nothing.
    await leader.epoch_end(4, 3)
    assert content(broker.log()) == [(3, "a"), (3, "b")]
    method, _, request = leader.last
    assert (method, request.partitions[0].leader_epoch) == ("offsets_for_leader_epoch", 3)
    await leader.epoch_end(3, 1)
    assert content(broker.log()) == [(3, "a")]
    assert (asked(leader).fetch_offset, asked(leader).HasField("last_fetched_epoch")) == (1, False)


@leaping
async def test_the_older_way_asks_once_where_it_has_the_leaders_epoch() -> None:
    broker, leader = await following((3, ["a", "b"]), (5, ["x"]), fetch=OLD)
    await leader.epoch_end(3, 1)
    assert content(broker.log()) == [(3, "a")]
    assert asked(leader).fetch_offset == 1


@leaping
async def test_what_is_cut_away_below_the_high_watermark_is_a_warning() -> None:
    _, leader = await following((3, ["a", "b", "c"]), high_watermark=2)
    with capture_logs() as logs:
        for end in (2, 1):
            await leader.fetched(diverging_epoch=wire.EpochEndOffset(epoch=3, end_offset=end))
    assert [
        (e["log_level"], e["topic"], e["partition"], e["was"], e["to"], e["high_watermark"]) for e in logs
    ] == [
        ("info", "foo", 3, 3, 2, 2),
        ("warning", "foo", 3, 2, 1, 2),
    ]


@leaping
async def test_an_end_beyond_the_leaders_is_cut_to_it() -> None:
    broker, leader = await following((3, ["a", "b", "c"]))
    await leader.fetched(error_code=codes.OFFSET_OUT_OF_RANGE)
    assert (leader.last[0], leader.last[2].partitions[0].timestamp) == ("list_offsets", -1)
    await leader.offset(1)
    assert content(broker.log()) == [(3, "a")]
    assert asked(leader).fetch_offset == 1


@pytest.mark.parametrize("start", [2, 15])
@leaping
async def test_an_end_before_the_leaders_start_begins_anew_there(start: int) -> None:
    broker, leader = await following((3, ["a"]))
    await leader.fetched(error_code=codes.OFFSET_OUT_OF_RANGE)
    await leader.offset(20)
    await leader.offset(start)
    log, partition = broker.log(), broker.partition()
    assert (log.log_start_offset, log.log_end_offset, partition.high_watermark) == (start, start, start)
    assert asked(leader).fetch_offset == start


@leaping
async def test_an_epoch_the_leader_never_had_goes_down_to_the_high_watermark() -> None:
    broker, leader = await following((3, ["a", "b"]), high_watermark=1)
    await leader.fetched(error_code=codes.OFFSET_OUT_OF_RANGE)
    await leader.offset(2)
    assert (leader.last[0], leader.last[2].partitions[0].timestamp) == ("list_offsets", -2)
    await leader.offset(0)
    assert content(broker.log()) == [(3, "a")]


@pytest.mark.parametrize("answers", [[], [20]])
@leaping
async def test_whoever_became_a_leader_meanwhile_is_not_cut(answers: list[int]) -> None:
    """The leader's offsets may arrive when we lead ourselves: our records are not to be compared any more."""
    broker, leader = await following((3, ["a", "b"]))
    await broker.leader_and_isr(order(1, 7, key=("bar", 0)))  # keeps the fetcher alive
    await run_ready_tasks()
    answer = wire.FetchedPartition(topic="foo", partition=3, error_code=codes.OFFSET_OUT_OF_RANGE)
    await leader.answer(wire.FetchResponse(partitions=[answer]))
    for offset in answers:
        await leader.offset(offset)
    assert leader.last[0] == "list_offsets"
    await broker.leader_and_isr(order(0, 8, (0,), 1))
    await leader.offset(30 if answers else 0)
    assert content(broker.log()) == [(3, "a"), (3, "b")]
    assert broker.partition().high_watermark == 2


@leaping
async def test_whoever_became_a_leader_meanwhile_is_not_cut_to_the_end_of_an_epoch() -> None:
    broker, leader = await following((3, ["a", "b"]), fetch=OLD)
    waiting = leader._answers[-1]
    await broker.leader_and_isr(order(1, 7, key=("bar", 0)))  # keeps the fetcher alive
    await broker.leader_and_isr(order(0, 8, (0,), 1))
    answer = wire.OffsetForLeaderEpoch(topic="foo", partition=3, leader_epoch=3, end_offset=1)
    waiting.set_result(wire.OffsetsForLeaderEpochResponse(partitions=[answer]))
    await run_ready_tasks()
    assert content(broker.log()) == [(3, "a"), (3, "b")]


@leaping
async def test_records_that_do_not_fit_cost_only_their_partition() -> None:
    broker, leader = await following((3, ["a"]))
    await broker.leader_and_isr(order(1, 7, key=("bar", 0)))
    await run_ready_tasks()
    bad = wire.FetchedPartition(topic="bar", partition=0, records=b"garbage")
    good = wire.FetchedPartition(topic="foo", partition=3, records=stored("b", epoch=7, offset=1))
    await leader.answer(wire.FetchResponse(partitions=[bad, good]))
    assert content(broker.log()) == [(3, "a"), (7, "b")]


@leaping
async def test_a_partition_with_another_leader_is_fetched_from_that_one_alone() -> None:
    broker, _ = await following((3, ["a"]))
    fetchers, partition = broker.manager._fetchers, broker.partition()
    partition.leader = 2
    fetchers.change([], [partition])
    assert fetchers.describe() == {2: 1}


@leaping
async def test_an_answer_of_an_earlier_term_is_not_taken() -> None:
    broker, leader = await following((3, ["a"]))
    await broker.leader_and_isr(order(1, 8, partition_epoch=1))
    late = leader._answers[0]
    assert late.cancelled() or not late.done()
    if not late.done():
        late.set_result(
            wire.FetchResponse(
                partitions=[
                    wire.FetchedPartition(topic="foo", partition=3, records=stored("b", epoch=7, offset=1))
                ]
            )
        )
    await run_ready_tasks()
    assert content(broker.log()) == [(3, "a")]
    assert asked(leader).current_leader_epoch == 8


@leaping
async def test_a_refused_partition_backs_off_alone() -> None:
    broker, leader = await following((3, ["a"]))
    await broker.leader_and_isr(order(1, 7, key=("bar", 0)))
    await run_ready_tasks()
    refusal = wire.FetchedPartition(topic="bar", partition=0, error_code=codes.NOT_LEADER_OR_FOLLOWER)
    good = wire.FetchedPartition(topic="foo", partition=3, records=stored("b", epoch=7, offset=1))
    await leader.answer(wire.FetchResponse(partitions=[refusal, good]))
    assert content(broker.log()) == [(3, "a"), (7, "b")]
    assert [p.topic for p in leader.last[2].partitions] == ["foo"]
    await leader.answer(BrokerError("connection reset"))
    await asyncio.sleep(0.1)
    assert {p.topic for p in leader.last[2].partitions} == {"foo", "bar"}


#: One that only a newer leader knows.
NEWER: Any = 999


@pytest.mark.parametrize(
    ("error", "name"), [(codes.NOT_LEADER_OR_FOLLOWER, "NOT_LEADER_OR_FOLLOWER"), (NEWER, "error 999")]
)
@pytest.mark.parametrize("older", [True, False])
@leaping
async def test_a_refusal_is_logged_with_its_partition_and_error_loudly_once(
    older: bool, error: Any, name: str
) -> None:
    with capture_logs() as logs:
        _, leader = await following((3, ["a"]), fetch=OLD if older else None)
        for _ in range(2):
            if older:
                answer = wire.OffsetForLeaderEpoch(topic="foo", partition=3, error_code=error)
                await leader.answer(wire.OffsetsForLeaderEpochResponse(partitions=[answer]))
            else:
                await leader.fetched(error_code=error)
            await asyncio.sleep(1.1)
    said = [entry for entry in logs if entry["event"] == "leader refuses a fetch"]
    assert [(e["log_level"], e["topic"], e["partition"], e["error"]) for e in said] == [
        ("info", "foo", 3, name),
        ("debug", "foo", 3, name),
    ]


@leaping
async def test_offsets_that_a_leader_does_not_say_cost_only_their_partition() -> None:
    broker, leader = await following((3, ["a"]))
    await broker.leader_and_isr(order(1, 7, key=("bar", 0)))
    await run_ready_tasks()
    lost = wire.FetchedPartition(topic="bar", partition=0, error_code=codes.OFFSET_OUT_OF_RANGE)
    good = wire.FetchedPartition(topic="foo", partition=3, records=stored("b", epoch=7, offset=1))
    await leader.answer(wire.FetchResponse(partitions=[lost, good]))
    await leader.offset(-1, codes.NOT_LEADER_OR_FOLLOWER)
    assert content(broker.log()) == [(3, "a"), (7, "b")]


@leaping
async def test_a_leader_that_does_not_answer_is_asked_again_ever_more_slowly() -> None:
    broker, leader = await following((3, ["a"]))
    pauses = []
    for _ in range(9):
        failed_at = broker.loop.time()
        await leader.answer(BrokerError("connection refused"))
        await asyncio.sleep(1.1)
        pauses.append(leader.times[-1] - failed_at)
    assert pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0])
    await leader.fetched()
    failed_at = broker.loop.time()
    await leader.answer(BrokerError("connection reset"))
    await asyncio.sleep(1.1)
    assert leader.times[-1] - failed_at == pytest.approx(0.02), "it had answered again"


@leaping
async def test_a_partition_that_is_refused_is_asked_for_ever_more_slowly() -> None:
    broker, leader = await following((3, ["a"]))
    pauses = []
    for answer in ["refused"] * 4 + ["taken", "refused"]:
        asked_at = broker.loop.time()
        if answer == "refused":
            await leader.fetched(error_code=codes.NOT_LEADER_OR_FOLLOWER)
        else:
            await leader.fetched(records=stored("b", epoch=7, offset=1))
            continue
        await asyncio.sleep(1.1)
        pauses.append(leader.times[-1] - asked_at)
    assert pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.02])


@leaping
async def test_a_leader_that_leaves_a_partition_out_is_not_asked_at_once() -> None:
    broker, leader = await following((3, ["a"]), fetch=OLD)
    await leader.answer(wire.OffsetsForLeaderEpochResponse())
    assert len(leader.calls) == 1
    await asyncio.sleep(0.03)
    assert [call[0] for call in leader.calls] == ["offsets_for_leader_epoch"] * 2
    assert broker.loop.time() < 1.0


@pytest.mark.parametrize(
    "records",
    [
        b"garbage",
        stored("b", epoch=7, offset=1)[:-1],
        stored("b", epoch=7, offset=5),
        stored("b", epoch=2, offset=1),
    ],
    ids=["no batch", "cut short", "a gap", "an older epoch"],
)
@leaping
async def test_records_that_do_not_fit_are_refused_and_asked_for_again(records: bytes) -> None:
    broker, leader = await following((3, ["a"]))
    await leader.fetched(records=records)
    assert content(broker.log()) == [(3, "a")]
    assert not broker.failures
    assert len(leader.calls) == 1, "not at once"
    await asyncio.sleep(0.05)
    await leader.fetched(records=stored("b", epoch=7, offset=1))
    assert content(broker.log()) == [(3, "a"), (7, "b")]


async def _by_append(leader: Leader) -> None:
    await leader.fetched(records=stored("b", epoch=7, offset=2))


async def _by_divergence(leader: Leader) -> None:
    await leader.fetched(diverging_epoch=wire.EpochEndOffset(epoch=3, end_offset=1))


async def _by_epoch_end(leader: Leader) -> None:
    await leader.epoch_end(3, 1)


@pytest.mark.parametrize(
    ("refuses", "fetch", "act"),
    [("append", None, _by_append), ("truncate", None, _by_divergence), ("truncate", OLD, _by_epoch_end)],
    ids=["append", "divergence", "epoch end"],
)
@leaping
async def test_a_disk_that_refuses_ends_following_and_is_reported(
    refuses: str, fetch: FetchSettings | None, act: Callable[[Leader], Any]
) -> None:
    broker, leader = await following((3, ["a", "b"]), fetch=fetch)
    broker.log().refuses.add(refuses)
    await act(leader)
    assert [key for key, _ in broker.failures] == [FOO]
    assert broker.manager.get(FOO) is None
    assert broker.manager.describe()["followed"] == {}
    assert not broker.bugs
    calls = len(leader.calls)
    await asyncio.sleep(5.0)
    assert len(leader.calls) == calls


@leaping
async def test_a_log_that_cannot_be_cut_when_following_begins() -> None:
    leader = Leader()
    broker = Broker(0, respond=leader.respond)
    log = broker.logs.open(FOO)
    log.append_as_leader(stored("a", epoch=0, offset=0), 0)
    log._epochs.clear()
    log.refuses.add("truncate")
    answers = await broker.leader_and_isr(order(1, 7), order(1, 7, key=("bar", 0)))
    assert [a.error for a in answers] == [codes.KAFKA_STORAGE_ERROR, codes.NONE]
    await run_ready_tasks()
    assert [p.topic for p in leader.last[2].partitions] == ["bar"]


@leaping
async def test_without_epochs_only_the_high_watermark_is_kept() -> None:
    leader = Leader()
    broker = Broker(0, respond=leader.respond, high_watermarks={FOO: 1})
    log = broker.logs.open(FOO)
    for value in ("a", "b"):
        log.append_as_leader(stored(value, epoch=0, offset=0), 0)
    log._epochs.clear()
    await broker.leader_and_isr(order(1, 7))
    await run_ready_tasks()
    assert log.log_end_offset == asked(leader).fetch_offset == 1


@leaping
async def test_a_bug_in_a_fetcher_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, leader = await following((3, ["a"]))

    def broken(_records: bytes) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(broker.log(), "append_as_follower", broken)
    await leader.fetched(records=stored("b", epoch=7, offset=1))
    assert [type(bug) for bug in broker.bugs] == [ZeroDivisionError]


@leaping
async def test_what_was_not_asked_for_is_not_taken() -> None:
    broker, leader = await following((3, ["a"]))
    other = wire.FetchedPartition(topic="foo", partition=4, records=stored("x", epoch=7, offset=1))
    asked_for = wire.FetchedPartition(topic="foo", partition=3, records=stored("b", epoch=7, offset=1))
    again = wire.FetchedPartition(topic="foo", partition=3, records=stored("c", epoch=7, offset=2))
    await leader.answer(wire.FetchResponse(partitions=[other, asked_for, again]))
    assert content(broker.log()) == [(3, "a"), (7, "b")]
    assert not broker.bugs


@leaping
async def test_a_partition_that_goes_ends_a_fetch_under_way() -> None:
    broker, leader = await following((3, ["a"]))
    await broker.leader_and_isr(order(1, 7, key=("bar", 0)))
    await run_ready_tasks()
    await broker.stopped(StopReplica(("bar", 0), -1, True))
    await run_ready_tasks()
    assert asked(leader).topic == "foo", "the leader need not wait for what nobody follows"


@leaping
async def test_a_partition_that_comes_does_not_wait_for_a_fetch_under_way() -> None:
    broker, leader = await following((3, ["a"]))
    await broker.leader_and_isr(order(1, 7, key=("bar", 0)))
    await run_ready_tasks()
    assert {p.topic for p in leader.last[2].partitions} == {"foo", "bar"}
    assert broker.loop.time() == 0.0


@pytest.mark.parametrize(
    "late",
    [
        {"records": stored("late", epoch=7, offset=1), "high_watermark": 2},
        {"diverging_epoch": wire.EpochEndOffset(epoch=0, end_offset=0)},
        {"error_code": codes.OFFSET_OUT_OF_RANGE},
    ],
    ids=["records", "divergence", "out of range"],
)
@leaping
async def test_a_role_that_changes_within_an_answer_leaves_the_rest_of_it_untaken(
    late: dict[str, Any],
) -> None:
    """While the leader is asked for the range of one partition, this broker becomes the leader of the next one."""
    broker, leader = await following((3, ["a"]))
    bar = ("bar", 0)
    await broker.leader_and_isr(order(1, 7, key=bar))
    await run_ready_tasks()
    first = wire.FetchedPartition(topic="bar", partition=0, error_code=codes.OFFSET_OUT_OF_RANGE)
    await leader.answer(
        wire.FetchResponse(partitions=[first, wire.FetchedPartition(topic="foo", partition=3, **late)])
    )
    assert leader.last[0] == "list_offsets"
    waiting = leader._answers[-1]
    await broker.leader_and_isr(order(0, 8, partition_epoch=1))
    waiting.set_exception(BrokerError("gone"))
    await run_ready_tasks()
    assert content(broker.log()) == [(3, "a")]
    asked_of = {call[2].partitions[0].topic for call in leader.calls if call[0] == "list_offsets"}
    assert asked_of == {"bar"}


@leaping
async def test_stop_ends_every_fetcher_and_none_begins_afterwards() -> None:
    broker, leader = await following((3, ["a"]))
    await broker.manager.stop()
    await broker.leader_and_isr(order(2, 8, partition_epoch=1))
    await run_ready_tasks()
    assert len(leader.calls) == 1
    assert broker.manager.describe()["followed"] == {}


@leaping
async def test_no_address_no_call_until_there_is_one() -> None:
    broker, leader = await following((3, ["a"]))
    broker.know(())
    await leader.answer(BrokerError("gone"))
    await asyncio.sleep(3.0)
    assert len(leader.calls) == 1
    broker.know((0, 1, 2))
    await asyncio.sleep(1.5)
    assert len(leader.calls) == 2


# --- the throttle ------------------------------------------------------------------------------------------

ROWS = [f"{n:04}" for n in range(50)]


@leaping
async def test_a_throttled_partition_is_not_asked_for_while_the_quota_is_exceeded() -> None:
    broker, leader = await following()
    broker.quotas.follower.rate_max = 10
    await leader.fetched(records=stored(*ROWS, epoch=7, offset=0), high_watermark=100)
    assert len(leader.calls) == 1, "what came was more than ten seconds' worth"
    await asyncio.sleep(10.5)
    assert len(leader.calls) == 1
    await asyncio.sleep(2.0)
    assert asked(leader).fetch_offset == 50


@leaping
async def test_a_limit_that_is_lifted_lets_it_go_on() -> None:
    broker, leader = await following()
    broker.quotas.follower.rate_max = 10
    await leader.fetched(records=stored(*ROWS, epoch=7, offset=0), high_watermark=100)
    broker.quotas.follower.rate_max = None
    await asyncio.sleep(1.1)
    assert asked(leader).fetch_offset == 50


@pytest.mark.parametrize("told", [True, False])
@leaping
async def test_who_is_in_sync_is_not_throttled(told: bool) -> None:
    """Also one of which the leader said nothing new."""
    broker, leader = await following()
    broker.quotas.follower.rate_max = 10
    if told:
        await leader.fetched(records=stored(*ROWS, epoch=7, offset=0), high_watermark=50)
        assert asked(leader).fetch_offset == 50
    else:
        broker.quotas.follower.record(FOO, 10_000)
        await leader.answer(wire.FetchResponse())
        assert asked(leader).fetch_offset == 0
        assert len(leader.calls) == 2


@leaping
async def test_a_partition_that_is_not_throttled_goes_on_while_the_quota_is_exceeded() -> None:
    broker, leader = await following()
    quota = broker.quotas.follower
    quota.rate_max, quota._partitions = 10, lambda topic: range(topic == "bar")
    await leader.fetched(records=stored(*ROWS, epoch=7, offset=0), high_watermark=100)
    assert not quota.is_exceeded(), "what is not throttled does not count"
    quota.record(("bar", 0), 10_000)
    await leader.fetched(records=stored("b", epoch=7, offset=50), high_watermark=100)
    assert asked(leader).fetch_offset == 51


@pytest.mark.parametrize("error", [codes.INVALID_REQUEST, NEWER])
@leaping
async def test_a_fetch_that_is_refused_as_a_whole_is_made_again_after_a_pause(error: Any) -> None:
    broker, leader = await following((3, ["a"]))
    refused_at = broker.loop.time()
    await leader.answer(wire.FetchResponse(error_code=error))
    assert len(leader.times) == 1
    await asyncio.sleep(1.0)
    assert leader.times[1] - refused_at == pytest.approx(0.02)
    await broker.manager.stop()
