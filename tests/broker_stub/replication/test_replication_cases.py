"""The reference's rows about replicated log, fetches and ISR changes (``broker_cases.jsonl``), each run as written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from broker_stub.control.replicas import Replica, Role
from broker_stub.control.requests import Key, PartitionMetadata, StopReplica
from broker_stub.replication.isr import IsrProposer
from broker_stub.replication.partition import Partition
from broker_stub.replication.ports import IsrProposal, IsrResult
from broker_stub.zookeeper.codecs import PartitionState, encode_state
from broker_stub.zookeeper.isr_writers import NotificationWriter
from proto.gen import common_pb2 as codes
from tests.broker_stub.test_cases import CASES, REPLICATION
from tests.support.broker.memory_log import MemoryLog
from tests.support.broker.replication_fakes import (
    FOO,
    Broker,
    ManualWriter,
    batch,
    fetch_request,
    leaping,
    order,
    run_ready_tasks,
)

Row = dict[str, Any]
LAG_MS = 1000


def error(name: str) -> codes.ErrorCode:
    return cast("codes.ErrorCode", codes.ErrorCode.Value(name))


async def waiting_fetch(row: Row) -> None:
    given, when = row["given"], row["when"]
    start = given["partition"]
    broker = Broker(given["broker"])
    known = PartitionMetadata(FOO, 1, start["leader"], start["leader_epoch"], (0, 1), 0, (0, 1), ())
    broker.know((0, 1), known)
    await broker.leader_and_isr(
        order(start["leader"], start["leader_epoch"], start["isr"], 0, start["replicas"])
    )
    epoch = start["leader_epoch"] if "leader epoch" in given["waiting"] else None
    waiting = asyncio.ensure_future(broker.service.fetch(fetch_request(wait_ms=60_000, epoch=epoch)))
    await run_ready_tasks()
    assert not waiting.done()
    if "stop_replica" in when:
        sent = when["stop_replica"]
        await broker.stopped(StopReplica(FOO, sent["leader_epoch"], sent["delete"]))
    else:
        sent = when["leader_and_isr"]
        await broker.leader_and_isr(
            order(sent["leader"], sent["leader_epoch"], sent["isr"], 0, sent["replicas"])
        )
    (answer,) = (await waiting).partitions
    expected, _, at_once = row["then"]["waiting_fetch"].partition(" ")
    assert answer.error_code == error(expected)
    assert broker.loop.time() == 0.0, at_once


async def epoch_cache(row: Row) -> None:
    log = MemoryLog()
    for epoch, records in row["given"]["log_epochs"]:
        for _ in range(records):
            log.append_as_leader(batch("x"), epoch)
    assert log.log_end_offset == row["given"]["log_end"]
    epoch = row["when"]["become_leader"]["leader_epoch"]
    Partition(FOO, 0, log).make_leader(Replica("foo", 3, None, Role.LEADER, 0, epoch, 1, 1, (0,), (0,)), 0)
    assert log.end_offset_for_epoch(epoch) == (epoch, row["then"]["end_offset_for_epoch_8"])


# --- the leader's side of ISR changes ----------------------------------------------------------------------


class Leading:
    """Broker 0 leading a partition on brokers 0 to 3, and what it asks of the controller."""

    def __init__(self, row: Row) -> None:
        given = row["given"]
        self.isr, self.epoch = tuple(given["isr"]), given.get("leader_epoch", 1)
        self.partition_epoch = given.get("partition_epoch", 1)
        self.end = given.get("log_end", 0)
        self.writer = ManualWriter()
        self.broker = Broker(0, writer=self.writer, live=range(4), lag_max_ms=LAG_MS)

    async def begin(self) -> Partition:
        log = self.broker.logs.open(FOO)
        for _ in range(self.end):
            log.append_as_leader(batch("x"), 0)
        self.broker.manager.start()
        await self.broker.leader_and_isr(order(0, self.epoch, self.isr, self.partition_epoch, range(4)))
        return self.broker.partition()

    async def fetched(self, follower: int, offset: int | None = None) -> None:
        at = self.broker.log().log_end_offset if offset is None else offset
        await self.broker.service.fetch(fetch_request(at, replica=follower, epoch=self.epoch))
        await run_ready_tasks()

    async def lag(self) -> None:
        """The leader appends, nobody fetches, the lag time passes."""
        self.broker.manager.append(self.broker.partition(), batch("x"), 1)
        await asyncio.sleep(2 * LAG_MS / 1000)
        await run_ready_tasks()

    @property
    def requests(self) -> list[tuple[int, ...]]:
        return [proposal.isr for asked in self.writer.asked for proposal in asked]


async def race_with_leader_and_isr(row: Row) -> None:
    leading = Leading(row)
    partition = await leading.begin()
    await leading.lag()
    assert leading.requests == [(0,)]
    newer = row["when"]["become_leader"]["partition_epoch"]
    partition.make_leader(Replica("foo", 3, None, Role.LEADER, 0, 1, newer, 1, (0, 1), (0, 1, 2, 3)), 0)
    assert (partition.proposed_isr is not None) is row["then"]["in_flight"]
    await leading.lag()
    assert leading.requests == [(0,)], "not before the old answer"
    await leading.writer.answer()
    assert leading.requests == [(0,), (0,)]
    assert partition.isr == (0, 1)


async def expansion_refused(row: Row) -> None:
    leading = Leading(row)
    partition = await leading.begin()
    await leading.fetched(row["given"]["caught_up_follower"])
    await leading.writer.answer(error(row["when"]["isr_expansion_answered"]))
    then = row["then"]
    assert list(partition.isr) == then["isr"]
    assert sorted(partition.maximal_isr) == then["maximal_isr"]
    await leading.fetched(row["given"]["caught_up_follower"])
    await asyncio.sleep(5.0)
    assert (len(leading.requests) > 1) is then["retried"]


async def expansion(row: Row) -> None:
    leading = Leading(row)
    partition = await leading.begin()
    for offset in row["when"]["follower_fetch_offsets"]:
        assert leading.requests == []
        await leading.fetched(1, offset)
    assert [list(isr) for isr in leading.requests] == [row["then"]["requested_isr"]]
    await leading.writer.answer()
    assert list(partition.isr) == row["then"]["isr"]


async def expansion_of_who_is_alive(row: Row) -> None:
    leading = Leading(row)
    partition = await leading.begin()
    for step in row["when"]["steps"]:
        if step.startswith("controller: "):
            answer = step.removeprefix("controller: ").replace("OK", "NONE")
            await leading.writer.answer(error(answer))
            continue
        asked = len(leading.requests)
        leading.broker.know((0,) if "not alive" in step else (0, 1))
        await asyncio.sleep(0.6)  # longer than a refused member is left alone
        await leading.fetched(1)
        assert len(leading.requests) - asked == (0 if "no ask" in step else 1), step
    assert list(partition.isr) == row["then"]["isr"]


async def shrink_retried(row: Row) -> None:
    leading = Leading(row)
    partition = await leading.begin()
    await leading.lag()
    assert row["when"]["shrink_answers"] == ["NETWORK_EXCEPTION", "OK"]
    await leading.writer.fail()
    await asyncio.sleep(0.1)
    assert len(leading.requests) == 1 + row["then"]["retries"]
    await leading.writer.answer()
    assert list(partition.isr) == row["then"]["isr"]
    assert partition.partition_epoch == row["then"]["partition_epoch"]


async def expansion_retried(row: Row) -> None:
    leading = Leading(row)
    partition = await leading.begin()
    await leading.fetched(row["given"]["follower"])
    for answer in row["when"]["expansion_answers"]:
        await leading.writer.answer(error(answer.replace("OK", "NONE")))
        await asyncio.sleep(0.1)
    assert len(leading.requests) == row["then"]["requests"]
    assert list(partition.isr) == row["then"]["isr"]
    assert partition.partition_epoch == leading.partition_epoch + 1


async def one_in_flight(row: Row) -> None:
    leading = Leading(row)
    await leading.begin()
    await leading.fetched(3)
    assert leading.requests == [(*row["given"]["isr"], 3)]
    await leading.lag()
    assert len(leading.requests) == row["then"]["requests"]


# --- lag -----------------------------------------------------------------------------------------------------


async def lagging(row: Row) -> None:
    given = row["given"]
    log = MemoryLog()
    for _ in range(10):
        log.append_as_leader(batch("x"), 0)
    lag_ms, now_ms = given["replica_lag_time_max_ms"], 10_000
    partition = Partition(FOO, given["leader"], log)
    isr = tuple(given["isr"])
    partition.make_leader(Replica("foo", 3, None, Role.LEADER, 0, 1, 1, 1, isr, isr), now_ms)

    def out_of_sync() -> list[int]:
        proposal = partition.propose_shrink(now_ms, lag_ms)
        partition.proposed_isr = None
        return [] if proposal is None else sorted(set(isr) - set(proposal.isr))

    for step in row["when"]["follower"]:
        if step.startswith("wait "):
            now_ms += int(step.removeprefix("wait "))
        elif step.startswith("fetch to end"):
            behind = int(step.removeprefix("fetch to end") or "0")
            partition.record_fetch(given["follower"], log.log_end_offset + behind, now_ms)
        else:
            assert step == f"check out {out_of_sync()}"
    assert out_of_sync() == row["then"]["out_of_sync"]


# --- what carries proposals ----------------------------------------------------------------------------------


class Proposing:
    """A proposer alone, and the results that it passed on."""

    def __init__(self) -> None:
        self.writer = ManualWriter()
        self.results: list[IsrResult] = []
        self.proposer = IsrProposer(self.writer, lambda _: True, self._settled)
        self.running = asyncio.ensure_future(self.proposer.run())

    def _settled(self, _proposal: IsrProposal, result: IsrResult) -> None:
        self.results.append(result)

    async def submit(self) -> None:
        self.proposer.submit(IsrProposal(FOO, None, 1, (0, 1), len(self.writer.asked), 1))
        await run_ready_tasks()

    @property
    def pending(self) -> int:
        """Asked for, without an answer that ends it."""
        return len(self.writer._answers)


async def refused_for_good(row: Row) -> None:
    proposing = Proposing()
    await proposing.submit()
    await proposing.writer.answer(error(row["when"]["partition_answer"]))
    assert [result.error for result in proposing.results] == [error(row["then"]["future"])]
    await asyncio.sleep(1.0)
    assert proposing.pending == row["then"]["pending"]
    await proposing.submit()
    assert (proposing.pending == 1) is row["then"]["can_submit_again"]


async def refused_as_a_whole(row: Row) -> None:
    proposing = Proposing()
    await proposing.submit()
    first, second = row["when"]["top_level_answers"]
    assert (first, second) != ("NONE", "NONE")
    await proposing.writer.fail()  # the writers make this of every top-level error, and of calls that fail
    assert proposing.pending == 0
    await asyncio.sleep(0.1)
    assert proposing.pending == 1, row["then"]["after_first"]
    await proposing.writer.answer(error(second))
    await asyncio.sleep(1.0)
    assert proposing.pending == 0, row["then"]["after_second"]
    assert [result.error for result in proposing.results] == [codes.NONE]


async def refused_and_again(row: Row) -> None:
    """The proposer retries automatically: the callback need not submit it again."""
    assert row["when"]["resubmit_in_callback"]
    proposing = Proposing()
    await proposing.submit()
    for answer in row["when"]["answers"]:
        await proposing.writer.answer(error(answer.removesuffix(" on partition").replace("OK", "NONE")))
        await asyncio.sleep(0.1)
    assert [result.error for result in proposing.results] == [codes.NONE]
    assert proposing.pending == row["then"]["pending"]


# --- writing the state ourselves, before 2.7 -----------------------------------------------------------------


class States:
    """One partition's state and its version."""

    def __init__(self, state: PartitionState, version: int) -> None:
        self.data, self.version = encode_state(state), version

    async def get_state(
        self, _topic: str, _partition: int, *, latest: bool = False
    ) -> tuple[bytes, int] | None:
        del latest
        return self.data, self.version

    async def set_state(self, _topic: str, _partition: int, data: bytes, version: int) -> int | None:
        if version != self.version:
            return None
        self.data, self.version = data, version + 1
        return self.version

    async def get_registration(self, broker_id: int) -> tuple[bytes, int] | None:
        raise AssertionError(f"nobody joins the ISR, and {broker_id} is looked for")

    async def notify_isr_changes(self, partitions: Sequence[Key]) -> None:
        raise AssertionError(f"nothing changed, and {partitions} are told")


async def conditional_write(row: Row) -> None:
    given, when = row["given"], row["when"]
    stored = given.get("stored", {"leader": 1, "leader_epoch": 1, "isr": [0, 1]})
    version = given.get("zk_state_version", given.get("zk_version"))
    states = States(
        PartitionState(stored["leader"], stored["leader_epoch"], 1, tuple(stored["isr"])), version
    )
    before = states.data
    writer = NotificationWriter(states, stored["leader"], lambda: 0)
    epoch, asked = stored["leader_epoch"], when.get("zk_submit_with_version")
    if asked is None:
        assert when["conditional_write"]["data"] == "leader epoch +1"
        epoch, asked = epoch + 1, when["conditional_write"]["version"]
    (result,) = await writer.propose([IsrProposal(FOO, None, epoch, (1,), asked, 1)])
    assert result.error == error(row["then"].get("result", "INVALID_UPDATE_VERSION"))
    assert result.partition_epoch == row["then"].get("zk_version", -1)
    assert (states.data, states.version) == (before, version)


RUN: dict[str, Callable[[Row], Awaitable[None]]] = {
    "K396": waiting_fetch,
    "K406": waiting_fetch,
    "K448": epoch_cache,
    "K462": race_with_leader_and_isr,
    "K468": expansion_refused,
    "K469": expansion,
    "K470": expansion_of_who_is_alive,
    "K471": shrink_retried,
    "K472": expansion_retried,
    "K473": one_in_flight,
    "K476": lagging,
    "K477": lagging,
    "K478": lagging,
    "K485": refused_and_again,
    "K488": refused_as_a_whole,
    "K490": refused_as_a_whole,
    "K491": refused_for_good,
    "K492": refused_for_good,
    "K494": refused_for_good,
    "K499": conditional_write,
    "K541": conditional_write,
}


def test_every_row_has_its_test() -> None:
    assert RUN.keys() == REPLICATION


@pytest.mark.parametrize("row_id", RUN, ids=lambda row_id: f"{row_id}-{CASES[row_id]['test']}")
@leaping
async def test_row(row_id: str) -> None:
    await RUN[row_id](CASES[row_id])
