"""The short form of ``make soak``, and what it reads of processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.provers.chaos.plan import ACTIVE, Kind
from tests.provers.soak import report
from tests.provers.soak.judge import Quantity, Reading, Verdict
from tests.provers.soak.plan import ELDERS, draw
from tests.provers.soak.sampling import Life, Sampler, Watched, growing, log_bytes
from tests.support.paths import ROOT

ME = Life("this process", os.getpid())


def last(sampler: Sampler, quantity: Quantity, life: Life = ME) -> float:
    return sampler.readings[life, quantity][-1].value


def test_an_open_file_and_a_thread_are_seen() -> None:
    sampler = Sampler(lambda: [Watched(*ME)])
    sampler.sample()
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    with Path("/dev/null").open():
        thread.start()
        sampler.sample()
    over.set()
    thread.join()
    for quantity in (Quantity.DESCRIPTORS, Quantity.THREADS):
        before, after = (reading.value for reading in sampler.readings[ME, quantity])
        assert after > before, quantity
    assert 10 < last(sampler, Quantity.MEMORY) < 10_000


def test_the_speed_of_logs_is_of_files_and_folders_and_not_of_rotations(tmp_path: Path) -> None:
    file, folder = tmp_path / "a.log", tmp_path / "logs"
    folder.mkdir()
    now_s = 0.0
    sampler = Sampler(lambda: [Watched(*ME, (file, folder), java=True)], clock=lambda: now_s)
    for written in (1024, 11 * 1024, 1024):
        now_s += 10
        file.write_bytes(b"x" * written)
        (folder / "b.log").write_bytes(b"x" * written)
        sampler.sample()
    assert log_bytes((file, folder)) == 2048
    assert [reading.value for reading in sampler.readings[ME, Quantity.LOG]] == [pytest.approx(2.0)]
    assert (ME, Quantity.MEMORY) not in sampler.readings


def test_a_process_that_ended_is_left_out() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    sampler = Sampler(lambda: [Watched("gone", process.pid)])
    sampler.sample()
    assert (Life("gone", process.pid), Quantity.MEMORY) not in sampler.readings


def test_a_restarted_process_is_another_and_what_grows_is_named() -> None:
    sampler = Sampler(list)
    for n in range(400):
        sampler.add(Life("broker-2", 10 + n // 200), Quantity.THREADS, 20 + n % 200, 10.0 * n)
        sampler.add(Life("broker-1", 9), Quantity.THREADS, 20, 10.0 * n)
    trends = sampler.trends()
    assert [trend.verdict for trend in trends.values()].count(Verdict.GROWS) == 2
    assert all("broker-2 (pid 1" in line and "threads" in line for line in growing(trends))
    assert report.verdict(trends).startswith("growing: broker-2")
    assert "GROWS" in "".join(map(str, report.table(trends).columns[4].cells))


def test_the_verdict_says_when_it_cannot_tell_and_when_nothing_grows() -> None:
    sampler = Sampler(list)
    sampler.readings[ME, Quantity.MEMORY] = [Reading(10.0 * n, 100) for n in range(10)]
    assert "nothing can be said" in report.verdict(sampler.trends())
    sampler.readings[ME, Quantity.MEMORY] = [Reading(10.0 * n, 100) for n in range(200)]
    assert report.verdict(sampler.trends()).startswith("nothing grows, of 1 process")


def test_some_members_are_never_restarted() -> None:
    plan = draw(3)
    faults = [fault for _ in range(300) for fault in next(plan).faults]
    restarted = {name for fault in faults if fault.kind in (Kind.KILL, Kind.ROLL) for name in fault.who}
    assert restarted
    assert not restarted & set(ELDERS)
    # Controllers are frozen and cut off when they lead.
    assert {*ELDERS, ACTIVE} - {"controller-1"} <= {name for fault in faults for name in fault.who}


@pytest.mark.long
@pytest.mark.slow
def test_a_minute_ends_with_its_summary(tmp_path: Path) -> None:
    """Asked to end after the first fault, as by Ctrl-C."""
    command = [
        sys.executable,
        "-m",
        "tests.provers.soak",
        "--minutes=60",
        f"--directory={tmp_path / 'run'}",
    ]
    said = tmp_path / "said"
    with said.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 240
        while "2 faults" not in said.read_text():
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        code = process.wait(240)
    finally:
        process.kill()
        process.wait()
    text = said.read_text()
    assert code == 0, text
    assert "asked to end" in text
    assert "acknowledged records lost or wrong" in text
    assert "nothing can be said of growth" in text
    assert text.rstrip().endswith("GOOD"), text
    progress = [line for line in text.splitlines() if "processes: " in line]
    assert len(progress) > 2, text
    # Three ZooKeeper servers, three controllers, five brokers, the workload.
    assert any("12 processes: " in line for line in progress), text
