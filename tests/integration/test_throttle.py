"""``reassign execute --throttle`` on real brokers: who is held back, who is not, and who goes on when it is lifted."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.support.cli.operator import pctl
from tests.support.runtime.clusters import broker_command, controller, has_said
from tests.support.runtime.programs import BIN, Program, program, run_to_end

pytestmark = pytest.mark.slow

RECORDS = 1000
#: One fetch of many: what goes through before a quota is looked at again is little.
ENVIRONMENT = {"BROKER_STUB_REPLICA_FETCH_MAX_BYTES": "20000", "BROKER_STUB_REPLICA_FETCH_BACKOFF_MS": "100"}


@contextmanager
def broker(connect: str, directory: Path, broker_id: int) -> Iterator[Program]:
    command = broker_command(connect, broker_id)
    with program(command, directory, ENVIRONMENT, name=f"broker-{broker_id}") as started:
        started.until(partial(has_said, started, "registered"))
        yield started


def done(connect: str, *arguments: str) -> str:
    result = pctl(connect, "--timeout=120", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def written(connect: str, topic: str) -> None:
    """Its one partition is on broker 1; records of 1,000 bytes."""
    done(connect, "topics", "create", topic, "--replica-assignment", "1")
    lines = "".join(f"{'v' * 1000}\n" for _ in range(RECORDS))
    command = [str(BIN / "pctl"), f"--zookeeper={connect}", "produce", topic]
    subprocess.run(command, input=lines.encode(), check=True, timeout=120)


def copied(directory: Path, broker_id: int, topic: str) -> int:
    """Bytes of its log on a broker."""
    logs = (directory / f"data-{broker_id}" / f"{topic}-0").glob("*.log")
    return sum(log.stat().st_size for log in logs)


def configured(zk: KazooClient, path: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(zk.get(f"/config/{path}")[0])["config"]
    except NoNodeError:
        return {}
    return found


def limits(zk: KazooClient) -> list[dict[str, Any]]:
    return [configured(zk, path) for path in ("topics/slow", "topics/fast", "brokers/1", "brokers/2")]


def test_a_throttled_move_is_held_back_and_nothing_else(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    with (
        controller(zookeeper, tmp_path),
        broker(zookeeper, tmp_path, 1) as leader,
        broker(zookeeper, tmp_path, 2) as target,
    ):
        for topic in ("slow", "fast"):
            written(zookeeper, topic)
        slow, fast = copied(tmp_path, 1, "slow"), copied(tmp_path, 1, "fast")
        assert min(slow, fast) > RECORDS * 1000
        move = ("reassign", "execute", "--partition=0", "--replicas=2", "--yes")
        target.process.send_signal(signal.SIGSTOP)
        done(zookeeper, *move, "--topic=slow", "--throttle=1000", "--no-wait")
        leader.until(partial(has_said, leader, "replication throttle changed"))
        target.process.send_signal(signal.SIGCONT)
        done(zookeeper, *move, "--topic=fast")
        assert copied(tmp_path, 2, "fast") == fast
        assert copied(tmp_path, 2, "slow") < slow / 2
        (ongoing,) = json.loads(done(zookeeper, "-o", "json", "reassign", "list"))
        assert (ongoing["topic"], ongoing["adding"]) == ("slow", [2])
        read = run_to_end(
            [
                str(BIN / "pctl"),
                f"--zookeeper={zookeeper}",
                "consume",
                "slow",
                "--from-beginning",
                f"--max-messages={RECORDS}",
            ],
            tmp_path,
        )
        assert len(read.stdout.splitlines()) == RECORDS, "consumers are never throttled"
        assert copied(tmp_path, 2, "slow") < slow / 2
        done(zookeeper, *move, "--topic=slow", "--throttle=1000000000")
        assert copied(tmp_path, 2, "slow") == slow
        assert limits(zk) == [{}, {}, {}, {}]


def test_cancelled_and_verified_moves_leave_no_throttle(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    with (
        controller(zookeeper, tmp_path),
        broker(zookeeper, tmp_path, 1),
        broker(zookeeper, tmp_path, 2) as target,
    ):
        for topic in ("slow", "fast"):
            done(zookeeper, "topics", "create", topic, "--replica-assignment", "1")
        done(zookeeper, "config", "set", "--topic=slow", "min.insync.replicas=1", "--yes")
        move = ("reassign", "execute", "--partition=0", "--replicas=2", "--yes", "--no-wait")
        target.process.send_signal(signal.SIGSTOP)
        for topic in ("slow", "fast"):
            done(zookeeper, *move, f"--topic={topic}", "--throttle=1000")
        assert [len(found) for found in limits(zk)] == [3, 2, 2, 2]
        done(zookeeper, "reassign", "cancel", "--topic=slow", "--partition=0", "--yes", "--no-wait")
        assert [len(found) for found in limits(zk)] == [1, 2, 2, 2], "fast is still being moved"
        slow = ("reassign", "execute", "--topic=slow", "--yes", "--throttle=1000")
        assert pctl(zookeeper, *slow, "--partition=0", "--replicas=9").exit_code == 3, "there is no broker 9"
        assert [len(found) for found in limits(zk)] == [1, 2, 2, 2], "nothing of what was refused"
        done(zookeeper, "topics", "alter", "slow", "--partitions=2", "--replica-assignment=1", "--yes")
        done(zookeeper, *slow, "--partition=0", "--replicas=2", "--no-wait")
        done(zookeeper, *slow, "--partition=1", "--replicas=2", "--no-wait")
        of_both = {"0:1,1:1", "0:2,1:2"}
        assert of_both == {v for k, v in limits(zk)[0].items() if k.endswith(".throttled.replicas")}
        done(zookeeper, "reassign", "cancel", "--topic=slow", "--partition=0", "--yes", "--no-wait")
        done(zookeeper, *slow, "--partition=1", "--replicas=1")
        assert [len(found) for found in limits(zk)] == [1, 2, 2, 2], (
            "brokers keep the limit: fast is not there yet"
        )
        target.process.send_signal(signal.SIGCONT)
        plan = tmp_path / "plan.json"
        entry = {"topic": "fast", "partition": 0, "replicas": [2]}
        plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        target.until(lambda: pctl(zookeeper, "reassign", "verify", str(plan)).exit_code == 0)
        assert limits(zk) == [{"min.insync.replicas": "1"}, {}, {}, {}]
