"""The state-change log under kill -9 and on a full disk, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

WRITE_FOR_EVER = """
import sys
from pathlib import Path
from proto.statelog.writer import StateLogWriter
writer = StateLogWriter(Path(sys.argv[1]), "broker", 1)
n = 0
while True:
    writer.append(({"kind": "log", "n": i, "pad": "x" * 200} for i in range(n, n + 500)), cause="A", count=500)
    n += 500
    writer.flush()
    if n == 5000:
        print("going", flush=True)
"""

FILL_THE_DISK = """
import resource, signal, sys, time
from pathlib import Path
from proto.statelog.writer import StateLogWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writes fail with EFBIG, as on a full disk
log = Path(sys.argv[1])
writer = StateLogWriter(log, "broker", 1)
for n in range(20):
    writer.append([{"kind": "log", "n": n * 10 + i, "pad": "x" * 1000} for i in range(10)], cause="A", count=10)
    writer.flush()
print(writer.written, writer.dropped, file=sys.stderr)
(log / "state-change.jsonl").rename(log / "full")  # somebody makes room
writer.append([{"kind": "log", "n": 999}], cause="A")
writer.close()
print(writer.written, writer.dropped, file=sys.stderr)
"""


def test_kill_9_leaves_at_most_one_torn_line_and_a_successor_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path)]
    path = tmp_path / "state-change.jsonl"
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"going\n"
            process.kill()
    torn = 0
    numbers = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            numbers.append(json.loads(line)["n"])
        except json.JSONDecodeError:
            torn += 1
    assert torn <= 1
    second = numbers.index(0, 1)
    assert numbers[:second] == list(range(second))
    assert numbers[second:] == list(range(len(numbers) - second))


def test_a_full_disk_is_counted_and_reported_when_there_is_room_again(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    (written, dropped), (written_after, dropped_after) = (
        map(int, line.split()) for line in done.stderr.splitlines()
    )
    assert written + dropped == 200
    assert written > 0 < dropped
    assert (written_after, dropped_after) == (written + 2, dropped)  # the record and the report
    report, record = (
        json.loads(line) for line in sorted((tmp_path / "state-change.jsonl").read_bytes().splitlines())
    )
    if report.get("n") == 999:
        report, record = record, report
    assert record["n"] == 999
    assert (report["kind"], report["to"], report["count"]) == ("log", "dropped", dropped)
    assert report["reason"] == os.strerror(27)
