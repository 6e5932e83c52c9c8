"""Brokers with two data directories: one fails while it runs, is gone at a start, or comes back empty."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support.cli.operator import pctl
from tests.support.paths import take_away
from tests.support.runtime.clusters import broker_command, controller, has_said
from tests.support.runtime.programs import BIN, Program, program

pytestmark = pytest.mark.slow

#: Short times: what a broker looks for now and then, it has to find soon.
ENVIRONMENT = {
    "BROKER_STUB_REPLICA_LAG_TIME_MAX_MS": "2000",
    "BROKER_STUB_REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS": "500",
}


def data(connect: str, *arguments: str) -> Any:
    return json.loads(pctl(connect, "-o", "json", *arguments).stdout)


@contextmanager
def broker(connect: str, directory: Path, broker_id: int, run: int = 1) -> Iterator[Program]:
    """With directories ``a`` and ``b``."""
    command = [part for part in broker_command(connect, broker_id) if "data-dir" not in part]
    command.append(f"--data-dirs=data-{broker_id}/a,data-{broker_id}/b")
    with program(command, directory, ENVIRONMENT, name=f"broker-{broker_id}-{run}") as started:
        started.until(partial(has_said, started, "registered"))
        yield started


def state(zk: KazooClient, partition: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zk.get(f"/brokers/topics/t/partitions/{partition}/state")[0])
    return found


def created(connect: str, zk: KazooClient, running: Program) -> None:
    """Topic t: two partitions, led by 1, on both; it is stored where each replica is."""
    done = pctl(connect, "topics", "create", "t", "--replica-assignment", "1:2,1:2")
    assert done.exit_code == 0, done.output
    running.until(lambda: all(len(told(zk, n)) == 2 for n in (0, 1)))


def told(zk: KazooClient, partition: int) -> dict[str, int]:
    """Directories of members that have been told exactly: others share one number for both of theirs."""
    both = [state(zk, n)["isr_directories"] for n in (0, 1)]
    return {b: d for b, d in both[partition].items() if d != both[1 - partition].get(b)}


def test_a_directory_is_removed_while_the_broker_runs(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    with (
        controller(zookeeper, tmp_path) as running,
        broker(zookeeper, tmp_path, 1) as first,
        broker(zookeeper, tmp_path, 2),
    ):
        created(zookeeper, zk, running)
        assert [(tmp_path / "data-1" / d / f"t-{n}").is_dir() for d, n in (("a", 0), ("b", 1))] == [True] * 2
        take_away(tmp_path / "data-1" / "a")
        # As the place where a disk was mounted: it is there, and it is not the one that was opened.
        (tmp_path / "data-1" / "a").mkdir()
        running.until(lambda: state(zk, 0)["leader"] == 2)
        assert state(zk, 0)["isr"] == [2]
        assert state(zk, 1)["leader"] == 1, "the other directory works"
        assert state(zk, 1)["isr"] == [1, 2]
        assert first.process.poll() is None
        take_away(tmp_path / "data-1" / "b")
        assert first.process.wait(60) == 1
        assert "no data directory works any more" in first.said()
        running.until(lambda: state(zk, 1)["leader"] == 2)


def test_a_directory_comes_back_empty_while_nobody_is_the_controller(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    with broker(zookeeper, tmp_path, 2), broker(zookeeper, tmp_path, 1) as first:
        with controller(zookeeper, tmp_path) as running:
            created(zookeeper, zk, running)
        first.process.kill()
        first.process.wait()
        take_away(tmp_path / "data-1" / "a")
        with broker(zookeeper, tmp_path, 1, 2), controller(zookeeper, tmp_path) as running:
            running.until(lambda: state(zk, 0)["leader"] == 2)
            assert state(zk, 1)["leader"] == 1
            running.until(lambda: state(zk, 0)["isr"] == [2, 1])


@pytest.mark.long
def test_a_directory_cannot_be_used_at_a_start_and_later_it_can(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    with controller(zookeeper, tmp_path) as running, broker(zookeeper, tmp_path, 2):
        with broker(zookeeper, tmp_path, 1) as first:
            created(zookeeper, zk, running)
            first.process.kill()
            first.process.wait()
        kept = tmp_path / "kept"
        (tmp_path / "data-1" / "b").rename(kept)
        (tmp_path / "data-1" / "b").write_text("no directory")
        with broker(zookeeper, tmp_path, 1, 2) as second:
            running.until(lambda: state(zk, 1)["isr"] == [2])
            running.until(lambda: state(zk, 0)["isr"] == [2, 1])
            assert not (tmp_path / "data-1" / "a" / "t-1").exists(), (
                "no other is made for the one that failed"
            )
            (row,) = data(zookeeper, "partitions", "--topic", "t", "--under-replicated")
            assert row["partition"] == 1
            second.process.terminate()
            second.process.wait()
        (tmp_path / "data-1" / "b").unlink()
        kept.rename(tmp_path / "data-1" / "b")
        with broker(zookeeper, tmp_path, 1, 3):
            running.until(lambda: all(sorted(state(zk, n)["isr"]) == [1, 2] for n in (0, 1)))


def test_sizes_are_those_of_the_files(zookeeper: str, tmp_path: Path) -> None:
    with (
        controller(zookeeper, tmp_path) as running,
        broker(zookeeper, tmp_path, 1),
        broker(zookeeper, tmp_path, 2),
    ):
        done = pctl(zookeeper, "topics", "create", "t", "--replica-assignment", "1:2,1:2")
        assert done.exit_code == 0, done.output
        written = "".join(f"k{n}:{'v' * 100}\n" for n in range(200))
        produce = [str(BIN / "pctl"), f"--zookeeper={zookeeper}", "produce", "t"]
        subprocess.run(produce, input=written.encode(), check=True, timeout=60)

        def on_disk(broker_id: int, partition: int) -> int:
            folders = (tmp_path / f"data-{broker_id}").glob(f"?/t-{partition}")
            return sum(log.stat().st_size for folder in folders for log in folder.glob("*.log"))

        def shown() -> bool:
            rows = data(zookeeper, "partitions", "--topic", "t", "--sizes")
            sizes = [row["size_bytes"] for row in rows]
            return sizes == [[on_disk(b, n) for b in (1, 2)] for n in (0, 1)] and any(map(all, sizes))

        running.until(shown)
