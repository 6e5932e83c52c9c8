"""Processes that end with the one that started them, and whether one is there. What tests fork behaves like what is
started: only its start differs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.child_processes import is_running, launch, release
from tests.support.runtime import forks
from tests.support.runtime.programs import BIN, environment

KINDS = ["started", "forked"]


def waiting() -> list[str]:
    """One of ours, which waits for a server of ZooKeeper that never is."""
    return [str(BIN / "partition-controller"), "run", "--zookeeper=127.0.0.1:1", "--grpc-listen=127.0.0.1:0"]


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Also one that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("launch", [launch, forks.launch], ids=KINDS)
def test_a_process_leads_its_group_and_ends_by_a_signal(launch: Any, tmp_path: Path) -> None:
    output, log = tmp_path / "out", tmp_path / "log"
    process = launch(waiting(), output, environment({"PARTITION_CONTROLLER_STATE_LOG_DIR": str(log)}))
    until(lambda: log.is_dir() and '"listening"' in output.read_text())
    assert os.getpgid(process.pid) == os.getsid(process.pid) == process.pid
    assert Path(f"/proc/{process.pid}/fd/0").resolve() == Path(os.devnull)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    release(process)


@pytest.mark.slow
@pytest.mark.parametrize("launch", [launch, forks.launch], ids=KINDS)
def test_a_process_ends_with_who_started_it(launch: Any, tmp_path: Path) -> None:
    output = tmp_path / "out"
    process = launch([*waiting(), f"--state-log-dir={tmp_path / 'log'}"], output, environment())
    until(lambda: "{" in output.read_text())
    # As when the one that holds it ends.
    release(process)
    assert process.wait(30) == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("name", [launch.__module__, forks.__name__])
def test_a_process_ends_with_who_started_it_and_was_killed(name: str, tmp_path: Path) -> None:
    code = (
        f"import sys, time\nfrom pathlib import Path\nfrom {name} import launch\n"
        f"print(launch({waiting()!r}, Path('out')).pid, flush=True)\ntime.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    with holder.stdout:
        pid = int(holder.stdout.readline())
    holder.kill()
    holder.wait()
    until(lambda: has_ended(pid))


@pytest.mark.slow
@pytest.mark.parametrize("start", [subprocess.Popen, forks.start], ids=KINDS)
@pytest.mark.parametrize(
    ("arguments", "variables", "code", "said"),
    [
        (["partition-controller", "run", "--no-such"], {}, 2, "Usage: partition-controller run"),
        (["broker-stub", "run", "--no-such"], {}, 2, "Usage: broker-stub run"),
        (
            ["pctl", "brokers"],
            {"PCTL_ZOOKEEPER": "127.0.0.1:1"},
            1,
            "pctl: no ZooKeeper listens at 127.0.0.1:1",
        ),
        (["pctl", "man", "here"], {}, 0, ""),
        (["pctl", "--version"], {"PYTHONWARNINGS": "error"}, 0, "pctl"),
    ],
)
def test_a_command_has_its_arguments_environment_folder_and_exit_code(
    start: Any, arguments: list[str], variables: dict[str, str], code: int, said: str, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with output.open("wb") as out:
        process = start(
            [str(BIN / arguments[0]), *arguments[1:]],
            cwd=tmp_path,
            env=environment(variables),
            stdout=out,
            stderr=out,
        )
    assert process.wait(60) == code
    assert output.read_text().startswith(said)
    assert ("here" in arguments) == (tmp_path / "here").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("start", [subprocess.Popen, forks.start], ids=KINDS)
def test_a_command_that_cannot_write_says_so(start: Any, tmp_path: Path) -> None:
    error = tmp_path / "error"
    with open("/dev/full", "wb") as full, error.open("wb") as said:
        process = start(
            [str(BIN / "pctl"), "--version"], cwd=tmp_path, env=environment(), stdout=full, stderr=said
        )
    assert process.wait(60) == 1
    assert error.read_text() == "pctl: write error: No space left on device\n"


def test_who_has_ended_does_not_run() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    assert (is_running(os.getpid()), is_running(ended.pid)) == (True, False)


def test_who_may_not_be_signalled_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_pid: int, number: int) -> None:
        assert number == 0
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    assert is_running(1)
