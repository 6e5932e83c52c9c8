"""Power cuts while a log is written, at each sync and after each change: what was flushed is there, and nothing that
never was."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from broker_stub.log import batches
from broker_stub.log.interface import LogConfig
from broker_stub.log.log import PartitionLog
from tests.support.broker.power_cut import MEMORY_DISK, Image, Platter

CONFIG = LogConfig(segment_bytes=240)
SEEDS, STEPS = 40, 25
#: Images of each moment.
DRAWN = 2
#: What is done, and numbers of which one is drawn: bytes of a record, a step of the epoch, records that go, or are
#: skipped.
CHANGES = {
    "append": (0, 3, 40, 200),
    "new epoch": (1, 2),
    "truncate": range(8),
    "start again": range(5),
    "flush": (0,),
}
#: How often each of them is drawn, of 20 times.
OFTEN = (10, 3, 3, 1, 3)


@dataclass
class Held:
    """``states``: first offset and content of the log since its last flush; ``floor``: what of them was flushed and
    not cut off since; ``point``: the recovery point that the broker has stored."""

    states: list[tuple[int, bytes]] = field(default_factory=lambda: [(0, b"")])
    floor: tuple[int, bytes] = (0, b"")
    point: int = 0

    def now(self, log: PartitionLog) -> None:
        start, content = content_of(log)
        self.states.append((start, content))
        if start != self.floor[0] or not content.startswith(self.floor[1]):
            kept = [
                batch for batch in batches.iterate(self.floor[1]) if batch.next_offset <= log.log_end_offset
            ]
            self.floor = (start, self.floor[1][: kept[-1].end] if kept and start == self.floor[0] else b"")
        if log.recovery_point == log.log_end_offset:
            self.states, self.floor = [(start, content)], (start, content)
        self.point = log.recovery_point


def do(log: PartitionLog, what: str, number: int) -> None:
    end, epoch = log.log_end_offset, log.latest_epoch or 0
    if what == "append":
        log.append_as_leader(batches.encode([(None, b"x" * number)], 1000 + end), epoch)
    elif what == "new epoch":
        log.append_as_leader(batches.encode([(None, b"first")], 1000 + end), epoch + number)
    elif what == "truncate":
        log.truncate_to(max(end - number, log.log_start_offset))
    elif what == "start again":
        log.truncate_fully_and_start_at(end + number)
    else:
        log.flush()


def content_after(image: Image, place: Path, point: int, rng: Random) -> tuple[int, bytes]:
    """First offset and content as recovery finds them, which another power cut ends, or which comes to a next flush."""
    cuts = list[Image]()
    with watched(image, place / "1", cuts, rng) as (folder, platter):
        log = PartitionLog.open(folder, CONFIG, point)
        recovering, recovered = [*cuts, platter.after_cut(rng)], content_of(log)
        do(log, "new epoch", 1)
        do(log, "flush", 0)
        flushed, point_flushed = content_of(log), log.recovery_point
        after_flush = platter.after_cut(rng)
        log.close(flush=False)
    for number, (cut, is_flushed) in enumerate([(rng.choice(recovering), False), (after_flush, True)]):
        with watched(cut, place / f"again-{number}", [], rng) as (folder, _):
            log = PartitionLog.open(folder, CONFIG, point_flushed if is_flushed else point)
            assert content_of(log) == (flushed if is_flushed else recovered)
            log.close(flush=False)
    return recovered


@contextmanager
def watched(image: Image, place: Path, cuts: list[Image], rng: Random) -> Iterator[tuple[Path, Platter]]:
    """A folder with the image; ``cuts``: what a power cut at any sync of it leaves."""
    folder, links = place / "log", place / "links"
    folder.mkdir(parents=True)
    links.mkdir()
    for name, content in image.items():
        (folder / name).write_bytes(content)
    platter = Platter(folder, links)
    with platter.watching(lambda: cuts.append(platter.after_cut(rng))):
        yield folder, platter


def content_of(log: PartitionLog) -> tuple[int, bytes]:
    """First offset and all batches; their epochs are those that the log knows."""
    start = log.log_start_offset
    found = log.read(start, 10**9, 10**9) if log.log_end_offset > start else b""
    epochs = {batch.leader_epoch: batch.base_offset for batch in reversed(list(batches.iterate(found)))}
    assert {entry.epoch: entry.start_offset for entry in log._epochs.entries} == epochs
    return start, found


@pytest.mark.parametrize(
    "seed",
    [pytest.param(n, marks=pytest.mark.long if n >= SEEDS // 2 else ()) for n in range(SEEDS)],
)
def test_what_was_flushed_survives_and_nothing_else_appears(seed: int) -> None:
    rng = Random(seed)
    with tempfile.TemporaryDirectory(prefix="power-cut-", dir=MEMORY_DISK) as directory:
        held, cuts, place = Held(), list[Image](), Path(directory)
        with watched({}, place, cuts, rng) as (folder, platter):
            log = PartitionLog.open(folder, CONFIG, 0)
            for number in range(STEPS):
                before, floor, point = list(held.states), held.floor, held.point
                (what,) = rng.choices(list(CHANGES), OFTEN)
                do(log, what, rng.choice(CHANGES[what]))
                held.now(log)
                images = [(image, point) for image in cuts]
                images += [(platter.after_cut(rng), held.point) for _ in range(DRAWN)]
                cuts.clear()
                for which, (image, stored) in enumerate(images):
                    start, found = content_after(image, place / f"{number}-{which}", stored, rng)
                    states = [*before, *held.states]
                    assert any(start == first and whole.startswith(found) for first, whole in states)
                    certain = [len(content) for first, content in (floor, held.floor) if first == start]
                    assert min(certain, default=0) <= len(found)
            log.close()
