"""Logs of many days of a large cluster, many million lines in minutes: one day of it is made, the others repeat it.

On a day each broker fails and returns, after which all is as it was but for epochs. In the others the date and the
epochs are replaced, in whole blocks of text; all else, times of day and durations included, is the same. A program:
``python -m tests.support.analysis.many_days DIR LINES``.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from proto.statelog.writer import Rotation
from tests.support.analysis.make_log import SECOND_US, Cluster, failure

PARTITIONS = 200_000
#: At which a node's file is closed.
FILE_BYTES = Rotation().bytes_max
#: What our writers do is twice as dear; the files are a third smaller then.
_GZIP_LEVEL = 1
_TS = re.compile(rb'"ts":"([^"]+)"')
_STATE = ("leader_epoch", "partition_epoch")


@dataclass(frozen=True)
class Part:
    """A rotated file of one day: ``path`` has its lines on the first day."""

    path: Path
    directory: Path
    lines: int


@dataclass(frozen=True)
class Day:
    """How the first day differs from a later one. ``epochs``: of controllers on the first day, which begins and ends in
    one; ``elections``: of a partition in a day."""

    first: date
    epochs: range
    elections: int

    def of(self, text: bytes, days: int) -> bytes:
        if not days:
            return text
        before, later = (day.isoformat().encode() for day in (self.first, self.first + timedelta(days)))
        text = text.replace(b'"ts":"%sT' % before, b'"ts":"%sT' % later)
        # The last first: on the next day the first one becomes it, and is not to be replaced again.
        for epoch in reversed(self.epochs):
            new = epoch + days * (len(self.epochs) - 1)
            text = text.replace(b'"controller_epoch":%d,' % epoch, b'"controller_epoch":%d,' % new)
            text = text.replace(
                b"controller epoch %d, last seen %d" % (epoch - 1, epoch),
                b"controller epoch %d, last seen %d" % (new - 1, new),
            )
        for epoch in range(1, self.elections + 1):
            new = epoch + days * self.elections
            text = text.replace(b'"leader_epoch":%d,' % epoch, b'"leader_epoch":%d,' % new)
            for end in (b",", b"}"):
                text = text.replace(
                    b'"partition_epoch":%d%s' % (epoch, end), b'"partition_epoch":%d%s' % (new, end)
                )
        return text


def write_days(root: Path, lines: int, partitions: int = PARTITIONS) -> int:
    """Write about so many lines: rotated files, gzipped, in a directory for each node. Out: how many."""
    with tempfile.TemporaryDirectory(dir=root.parent, prefix=".day-") as scratch:
        begun, day, parts = _first_day(Path(scratch), root, partitions)
        total, in_day = sum(part.lines for part in begun), sum(part.lines for part in parts)
        days = max(1, round((lines - total) / in_day))
        tasks = [(day, part, 0) for part in begun]
        tasks += [(day, part, number) for number in range(days) for part in parts]
        with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
            list(pool.map(_write, tasks))
    return total + days * in_day


def _write(task: tuple[Day, Part, int]) -> None:
    day, part, number = task
    text = day.of(part.path.read_bytes(), number)
    found = _TS.search(text)
    assert found is not None
    stamp = re.sub(rb"[-:]", b"", found[1]).decode()
    with gzip.open(part.directory / f"state-change.{stamp}.jsonl.gz", "wb", compresslevel=_GZIP_LEVEL) as out:
        out.write(text)


def _first_day(scratch: Path, root: Path, partitions: int) -> tuple[list[Part], Day, list[Part]]:
    """What there is before, and the first day."""
    whole = Rotation(bytes_max=1 << 62, seconds_max=1e9)
    cluster = Cluster(scratch / "day", partitions=partitions, rotation=whole)
    cluster.fail_over()
    cluster.pass_time(SECOND_US)
    cluster.create_topics(topics=max(2, partitions // 50))
    cluster.pass_time(SECOND_US)
    for writer in cluster.writers.values():
        while not writer.flush():
            pass
    logs = {directory: directory / "state-change.jsonl" for directory in (scratch / "day").iterdir()}
    before = {directory: log.stat().st_size if log.exists() else 0 for directory, log in logs.items()}
    first_epoch, elected = cluster.epoch, dict(cluster.leader_epoch)
    for victim in range(1, cluster.brokers + 1):
        for _ in failure(cluster, victim):
            cluster.pass_time(5 * SECOND_US)
    cluster.close()
    elections = {epoch - elected[where] for where, epoch in cluster.leader_epoch.items()}
    assert len(elections) == 1, "a day is not like the next"
    first = datetime.fromtimestamp(cluster.now_us / 1e6, UTC).date()
    day = Day(first, range(first_epoch, cluster.epoch + 1), elections.pop())
    parts: tuple[list[Part], list[Part]] = [], []
    for directory, log in logs.items():
        target = root / directory.name
        target.mkdir(parents=True)
        begun = log.read_bytes()
        for text, of in zip((begun[: before[directory]], begun[before[directory] :]), parts, strict=True):
            for number, block in enumerate(_blocks(text)):
                path = directory / f"{'first' if of is parts[0] else 'day'}-{number}"
                path.write_bytes(block)
                of.append(Part(path, target, block.count(b"\n")))
        log.unlink()
    return parts[0], day, parts[1]


def _blocks(text: bytes) -> Iterator[bytes]:
    """Whole lines of about FILE_BYTES."""
    begin = 0
    while begin < len(text):
        end = text.find(b"\n", begin + FILE_BYTES) + 1 or len(text)
        yield text[begin:end]
        begin = end


if __name__ == "__main__":
    where = Path(sys.argv[1])
    began = time.monotonic()
    written = write_days(where, int(sys.argv[2]))
    spent = time.monotonic() - began
    size = sum(path.stat().st_size for path in where.rglob("*.gz"))
    free = shutil.disk_usage(where).free
    print(f"{written:,} lines in {spent:.0f} s, {size / 1e9:.2f} GB; {free / 1e9:.0f} GB free")
