"""The playground as a newcomer starts it: everything from nothing, and nothing left over."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from controller.cli.playground import Member, Playground, PlaygroundError, fresh_directory, healthy
from controller.core.model import Broker, Endpoint, LeaderAndIsr
from controller.runtime.inspection import PartitionSeen, Seen
from tests.runtime.programs import BIN, program, run_to_end


def left_over(directory: Path) -> list[str]:
    """Processes whose command line names the directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in command and int(entry.parent.name) != os.getpid():
            found.append(command)
    return found


def playground(*arguments: str) -> list[str]:
    return [str(BIN / "partition-controller"), "playground", "--no-report", "--data-dir=run", *arguments]


#: The command, with less patience: what is waited for comes within a second or never.
IMPATIENT = "from controller.cli import main, playground; playground.WAIT_S = 8; main.main()"


@pytest.mark.slow
def test_rolling_restart_end_to_end(tmp_path: Path) -> None:
    arguments = playground("--script=rolling", "--brokers=2")[1:]
    done = run_to_end([sys.executable, "-c", IMPATIENT, *arguments], tmp_path)
    assert left_over(tmp_path) == []
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    for name in ("broker-1", "broker-2"):
        assert said.index(f"SIGTERM {name}") < said.index(f"{name} is back")
    assert "36 partitions are led" in said
    assert "0 partitions are led" in said  # nobody else was in sync: they wait for broker 2


@pytest.mark.slow
def test_failover_end_to_end(tmp_path: Path) -> None:
    done = run_to_end(playground("--script=failover", "--brokers=1"), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert "1 brokers are registered" in said
    assert said.count("kill -9 the active controller") == 3
    assert said.count("took over after") == 3
    (run,) = (tmp_path / "run").glob("run-*")
    for name in ("controller-1", "controller-2", "broker-1"):
        assert (run / "state-logs" / name / "state-change.jsonl").stat().st_size > 0
    assert left_over(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_interrupting_the_idle_playground_ends_everything(
    zookeeper: str, tmp_path: Path, signum: int
) -> None:
    command = playground("--script=idle", "--brokers=1", f"--zookeeper={zookeeper}")
    with program(command, tmp_path) as running:
        running.until(lambda: "Ctrl-C ends the playground" in running.said())
        running.process.send_signal(signum)
        assert running.process.wait(30) == 1
        assert "interrupted" in running.said()
    assert left_over(tmp_path) == []


def test_usage_is_checked(tmp_path: Path) -> None:
    for bad in ("--script=x", "--brokers=0", "--controllers=1"):
        assert run_to_end(playground(bad), tmp_path).returncode == 2


def test_only_the_last_run_is_kept(tmp_path: Path) -> None:
    (tmp_path / "run-1" / "x").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    fresh = fresh_directory(tmp_path)
    assert fresh.parent == tmp_path
    assert fresh.name.startswith("run-")
    assert [p.name for p in tmp_path.iterdir()] == ["other"]


def test_a_process_that_ends_by_itself_is_said_with_its_last_words(tmp_path: Path) -> None:
    member = Member("broken", ["sh", "-c", "echo last words; exit 3"], tmp_path / "log")
    member.start()
    assert member.process is not None
    member.process.wait(10)
    with pytest.raises(PlaygroundError, match=r"broken ended with 3; .*last words"):
        member.check()
    member.stop()
    assert Playground(tmp_path, zookeeper="h:1").connect == "h:1/playground"


def test_healthy_means_led_by_somebody_registered() -> None:
    seen = Seen()
    assert not healthy(seen)
    seen.partitions.append(PartitionSeen("t", 0, (1,), LeaderAndIsr(1, 0, (1,), 0, 0)))
    assert not healthy(seen)
    seen.brokers[1] = Broker(1, 1, (Endpoint("GRPC", "PLAINTEXT", "h", 1),))
    assert healthy(seen)
    seen.partitions.append(PartitionSeen("t", 1, (1,), None))
    assert not healthy(seen)
