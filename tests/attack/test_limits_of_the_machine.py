"""Too little memory, a disk that cannot be written, a log that is taken away, a /controller that nobody can read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.support.paths import take_away
from tests.support.runtime.clusters import controller, lines
from tests.support.runtime.programs import BIN, run_to_end

pytestmark = pytest.mark.slow


def test_too_little_memory_is_named(tmp_path: Path) -> None:
    ours = f"{BIN}/partition-controller run --zookeeper=127.0.0.1:1 --grpc-listen=127.0.0.1:0 --http-listen=127.0.0.1:0"
    done = run_to_end(["/bin/sh", "-c", f"ulimit -v 250000; exec {ours} --state-log-dir=log"], tmp_path)
    assert done.returncode == 1
    assert "the memory limit (ulimit -v) is 244 MiB: must be at least 512 MiB" in done.stderr


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """Not even by root."""
    command = f"{BIN}/partition-controller run --zookeeper=127.0.0.1:1 --state-log-dir=/proc/self/task"
    done = run_to_end(command.split(), tmp_path)
    assert done.returncode == 2
    assert "state_log_dir = '/proc/self/task': must be a writable directory" in done.stderr


@pytest.mark.parametrize("renamed", [False, True])
def test_a_state_log_that_is_taken_away(
    zookeeper: str, zk: KazooClient, tmp_path: Path, renamed: bool
) -> None:
    log = tmp_path / "log-1"
    with controller(zookeeper, tmp_path) as running:
        running.until(lambda: (log / "state-change.jsonl").exists())
        if renamed:
            log.rename(tmp_path / "moved")
        else:
            take_away(log)
        zk.delete("/controller")
        running.until(lambda: len(lines(running, "ready")) == 2)
        assert running.terminate() == 0
    records = [json.loads(line) for line in (log / "state-change.jsonl").read_text().splitlines()]
    assert "stopped" in [record["to"] for record in records if record["kind"] == "controller"]
    (lost,) = [record for record in records if record["kind"] == "log"]
    assert (lost["to"], lost["reason"]) == (
        "dropped",
        "state-change.jsonl was removed or renamed with them in it",
    )
    assert lost["count"] > 0


def test_garbage_that_stays_is_logged_now_and_then(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    with controller(zookeeper, tmp_path) as running:
        transaction = zk.transaction()
        transaction.delete("/controller")
        transaction.create("/controller", b"garbage")
        assert not any(isinstance(result, Exception) for result in transaction.commit())
        running.until(lambda: running.said().count("no controller is active") >= 1)
        for _ in range(5):
            zk.set("/controller", b"garbage")
        assert len(lines(running, "malformed_znode")) == 1
        assert "delete it" in lines(running, "malformed_znode")[0]["todo"]
        zk.delete("/controller")
        running.until(lambda: len(lines(running, "ready")) == 2)
