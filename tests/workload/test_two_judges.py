"""Two judges of different make, on histories with one planted wrong each: both find it; clean ones pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from controller.workload.checker import Kind, Logs, ReplicaLog, check
from controller.workload.history import Content, History, Key, Read, Write
from tests.support.workload.generated import BROKERS, LEADER, content, log_of
from tests.support.workload.second_judge import objections

KEY: Key = ("t", 0)
SEEDS = range(50)


class Story:
    """One partition, several writers in time, readers below the high watermark, copies by retries, a drawn end."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.items: list[Content] = []
        self.writes: list[Write] = []
        self.reads: list[Read] = []
        now = 0
        for number in range(rng.randint(6, 30)):
            writer, now = rng.randrange(3), now + rng.randint(1, 5)
            item, attempts = content(writer, number), rng.choice([1, 1, 1, 2, 3])
            landed = rng.randint(1, attempts)
            self.items += [item] * landed
            acked = number < 4 or rng.random() < 0.8
            offset = len(self.items) - 1 if acked else None
            begun, now = now, now + rng.randint(1, 5)
            self.writes.append(Write(writer, number, *KEY, item.crc, attempts, offset, begun, now))
            if rng.random() < 0.4:
                at = rng.randrange(len(self.items))
                self.reads.append(Read(0, *KEY, at, *self.items[at], len(self.items), now))
        self.logs = dict.fromkeys(BROKERS, log_of(self.items))

    def history(self) -> History:
        return History(tuple(self.writes), tuple(self.reads))

    def acknowledged(self) -> list[int]:
        """Numbers of writes that have one copy only, and stand alone between others."""
        return [
            n for n, write in enumerate(self.writes) if write.offset is not None and write.attempts == 1
        ] or [n for n, write in enumerate(self.writes) if write.offset is not None]

    def relay(self, items: list[Content], brokers: tuple[int, ...] = BROKERS) -> None:
        self.logs = {**self.logs, **dict.fromkeys(brokers, log_of(items))}

    def judged(self) -> tuple[set[Kind], list[str]]:
        logs: Logs = {KEY: self.logs}
        verdict = check(self.history(), logs, {KEY: LEADER})
        return {finding.kind for finding in verdict.findings}, objections(self.history(), logs)


def lost(story: Story) -> None:
    """An acknowledged record gives way to a foreign one, in every replica."""
    victim = story.writes[story.rng.choice(story.acknowledged())].content
    story.relay([Content(-1, -1, 7) if item == victim else item for item in story.items])
    story.reads = [read for read in story.reads if read.content != victim]


def lost_at_the_end(story: Story) -> None:
    """The log ends before the last acknowledged record."""
    last = max(write.offset for write in story.writes if write.offset is not None)
    story.reads = [read for read in story.reads if read.offset < last]
    story.relay(story.items[:last])


def duplicated(story: Story) -> None:
    write = story.writes[story.rng.choice(story.acknowledged())]
    story.relay([*story.items, *[write.content] * (write.attempts or 0)])


def reordered(story: Story) -> None:
    """Two records of one writer are acknowledged in the wrong order, and stand so."""
    later = len(story.items)
    second, first = content(7, 1), content(7, 0)
    story.items += [second, first]
    story.writes.append(Write(7, 0, *KEY, first.crc, 1, later + 1, 1000, 1010))
    story.writes.append(Write(7, 1, *KEY, second.crc, 1, later, 1005, 1015))
    story.relay(story.items)


def read_early(story: Story) -> None:
    """A reader gets a record at the high watermark."""
    at = story.rng.randrange(len(story.items))
    story.reads.append(Read(1, *KEY, at, *story.items[at], at, 0))


def read_and_gone(story: Story) -> None:
    """A reader got what is nowhere now: it was overwritten."""
    at = story.rng.randrange(len(story.items))
    story.reads.append(Read(1, *KEY, at, *content(8, 8), at + 1, 0))


def forked(story: Story) -> None:
    """One replica has another record at one place."""
    at = story.rng.randrange(len(story.items))
    other = [*story.items]
    other[at] = Content(-1, -1, 9)
    story.relay(other, (story.rng.choice([2, 3]),))


def short(story: Story) -> None:
    """One replica ends earlier."""
    story.relay(story.items[: story.rng.randrange(len(story.items))], (story.rng.choice([2, 3]),))


def invented(story: Story) -> None:
    story.relay([*story.items, content(8, 8)])


WRONGS: dict[Callable[[Story], None], set[Kind]] = {
    lost: {Kind.LOST},
    lost_at_the_end: {Kind.LOST, Kind.MOVED},
    duplicated: {Kind.DUPLICATED},
    reordered: {Kind.REORDERED},
    read_early: {Kind.READ_UNCOMMITTED},
    read_and_gone: {Kind.READ_UNCOMMITTED},
    forked: {Kind.DIVERGED},
    short: {Kind.DIVERGED},
    invented: {Kind.INVENTED},
}


def test_both_judges_let_clean_histories_pass() -> None:
    assert [seed for seed in SEEDS if Story(seed).judged() != (set(), [])] == []


@pytest.mark.parametrize("wrong", WRONGS, ids=lambda wrong: wrong.__name__)
def test_both_judges_find_the_wrong(wrong: Callable[[Story], None]) -> None:
    missed: list[tuple[int, set[Kind], list[str]]] = []
    for seed in SEEDS:
        story = Story(seed)
        wrong(story)
        kinds, others = story.judged()
        if not kinds & WRONGS[wrong] or not others:
            missed.append((seed, kinds, others))
    assert missed == []


def test_the_second_judge_sees_time_too() -> None:
    """An append that had ended stands behind one that began later: nobody's own order is broken by that."""
    items = [content(1, 0), content(2, 0)]
    writes = (
        Write(2, 0, *KEY, items[1].crc, 1, 1, 10, 20),
        Write(1, 0, *KEY, items[0].crc, 1, 0, 30, 40),
    )
    logs = {KEY: dict.fromkeys(BROKERS, log_of(items))}
    assert len(objections(History(writes), logs)) == 1
    assert objections(History((writes[0], replace_time(writes[1]))), logs) == []


def replace_time(write: Write) -> Write:
    return write._replace(begun_us=15)


def test_the_second_judge_compares_bytes() -> None:
    log = log_of([Content(-1, -1, 5)])
    other = replace(log, batches=(log.batches[0]._replace(digest=b"?"),))
    assert objections(History(), {KEY: {1: log, 2: other}}) == ["('t', 0): replicas hold other bytes"]
    unreadable = ReplicaLog(problem="Input/output error")
    assert "cannot be read" in objections(History(), {KEY: {1: unreadable}})[0]
