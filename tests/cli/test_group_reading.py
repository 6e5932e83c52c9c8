"""What ``pctl consume`` reads, shows and commits, from brokers that are not there."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import click
import pytest

from broker_stub.client.consumer import ConsumedRecord, Consumer
from broker_stub.client.errors import FatalError, MemberError
from controller.cli.common.standard_input import LINE_BYTES_MAX
from controller.cli.pctl.records import Limits, _content, _Member, _parse, _read
from proto.gen import common_pb2 as codes


async def test_it_says_so_though_no_record_comes() -> None:
    member = _Member(["127.0.0.1:1"], "t", "g", 0, None)

    class Empty(Consumer):
        async def poll(self, timeout_ms: int) -> list[object]:  # type: ignore[override]
            member.member.failure = FatalError(codes.TOPIC_AUTHORIZATION_FAILED, "membership", "refused")
            return []

    limits = Limits(None, None)
    with pytest.raises(FatalError, match="refused"):
        await _read(asyncio.Event(), limits, lambda _: None, Empty(["127.0.0.1:1"]), after=member.commit)
    await member.consumer.close()


class Log:
    """Gives all records of two partitions at once, and is told where to go on."""

    def __init__(self) -> None:
        self.polls = 0
        self.positions = {("t", 0): 0, ("t", 1): 0}

    async def poll(self, timeout_ms: int) -> list[ConsumedRecord]:
        del timeout_ms
        self.polls += 1
        assert self.polls < 9, "it reads on"
        found = [
            ConsumedRecord("t", number, offset, 0, 0, None, b"", 9)
            for number, offset in ((0, 0), (1, 0), (0, 1), (1, 1), (0, 2))
            if offset >= self.positions["t", number]
        ]
        for record in found:
            self.positions[record.topic, record.partition] = record.offset + 1
        return found

    def position(self, key: tuple[str, int]) -> int:
        return self.positions[key]

    def seek(self, key: tuple[str, int], offset: int) -> None:
        self.positions[key] = offset

    def assignment(self) -> list[tuple[str, int]]:
        return list(self.positions)


async def read(log: Log, limits: Limits, **more: Any) -> list[str]:
    shown: list[str] = []
    count = await _read(
        asyncio.Event(),
        limits,
        lambda record: shown.append(f"{record.partition}@{record.offset}"),
        log,  # type: ignore[arg-type]
        **more,
    )
    assert count == len(shown)
    return shown


@pytest.mark.parametrize(
    ("most", "shown", "positions"),
    [(1, ["0@0"], (1, 0)), (2, ["0@0", "1@0"], (1, 1)), (4, ["0@0", "1@0", "0@1", "1@1"], (2, 2))],
)
async def test_reading_goes_on_with_the_first_record_that_was_not_shown(
    most: int, shown: list[str], positions: tuple[int, int]
) -> None:
    log = Log()
    assert await read(log, Limits(most, None)) == shown
    assert tuple(log.positions.values()) == positions


async def test_what_is_committed_was_shown_before() -> None:
    log, told = Log(), list[str]()

    async def after() -> None:
        told.append("committed")

    def show(record: ConsumedRecord) -> None:
        told.append(f"{record.partition}@{record.offset}")

    await _read(asyncio.Event(), Limits(5, None), show, log, after=after)  # type: ignore[arg-type]
    assert told == ["0@0", "1@0", "0@1", "1@1", "0@2", "committed"]


async def test_reading_ends_with_the_end_of_the_log() -> None:
    assert await read(Log(), Limits(None, None), ends={("t", 0): 2, ("t", 1): 1}) == ["0@0", "1@0", "0@1"]


async def test_a_log_without_records_beside_another_is_at_its_end() -> None:
    assert await read(Log(), Limits(None, None), ends={("t", 0): 3, ("t", 1): 0}) == ["0@0", "0@1", "0@2"]


async def test_the_time_without_a_record_begins_with_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each poll takes 40 ms, of which 100 may pass: two after the one that had records."""
    loop, log = asyncio.get_running_loop(), Log()
    slow = Log.poll

    async def poll(timeout_ms: int) -> list[ConsumedRecord]:
        if log.polls < 2:
            log.polls += 1
            return []
        return await slow(log, timeout_ms)

    monkeypatch.setattr(log, "poll", poll)
    monkeypatch.setattr(loop, "time", lambda: log.polls * 0.04)
    assert len(await read(log, Limits(None, 100))) == 5
    assert log.polls == 6


async def test_positions_are_committed_once_they_have_changed() -> None:
    member = _Member(["127.0.0.1:1"], "t", "g", 0, None)
    await member.consumer.close()
    committed: list[dict[tuple[str, int], int]] = []

    async def commit(offsets: dict[tuple[str, int], int]) -> None:
        committed.append(offsets)

    log: Any = Log()
    member.consumer = log
    member.member = SimpleNamespace(failure=None, commit=commit)  # type: ignore[assignment]
    log.seek(("t", 0), 5)
    await member.commit()
    await member.commit()
    log.seek(("t", 1), 3)
    await member.commit()
    assert committed == [{("t", 0): 5, ("t", 1): 0}, {("t", 1): 3}]


async def test_a_commit_that_is_refused_is_tried_again() -> None:
    member = _Member(["127.0.0.1:1"], "t", "g", 0, None)
    await member.consumer.close()
    tried: list[dict[tuple[str, int], int]] = []

    async def commit(offsets: dict[tuple[str, int], int]) -> None:
        tried.append(offsets)
        if len(tried) == 1:
            raise MemberError(codes.REBALANCE_IN_PROGRESS, "OffsetCommit", "a rebalance")

    log: Any = Log()
    member.consumer = log
    member.member = SimpleNamespace(failure=None, commit=commit)  # type: ignore[assignment]
    for _ in range(3):
        await member.commit()
    assert tried == [{("t", 0): 0, ("t", 1): 0}] * 2


@pytest.mark.parametrize("line", [b"a\tb", b"a\tb\n", b"a\tb\r\n"])
def test_a_record_is_a_line_without_its_end(line: bytes) -> None:
    assert _content(line) == b"a\tb"
    with pytest.raises(click.UsageError, match="must be at most"):
        _content(line + bytes(LINE_BYTES_MAX))


def test_a_key_ends_with_the_first_separator() -> None:
    assert _parse(b"k:v:w", None, ":") == (b"k", b"v:w")
    assert _parse(b":v", None, ":") == (b"", b"v")
    assert (_parse(b"k:v", "x", None), _parse(b"k:v", None, None)) == ((b"x", b"k:v"), (None, b"k:v"))
    with pytest.raises(click.UsageError, match="must be KEY:VALUE"):
        _parse(b"kv", None, ":")
