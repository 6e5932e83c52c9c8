"""SIGHUP kills nothing: a lost terminal, or the habit of reloading, must not cost an outage."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.runtime.clusters import lines
from tests.support.runtime.programs import BIN, Program, program

pytestmark = pytest.mark.slow


def hang_up(running: Program, times: int) -> None:
    """SIGHUP; wait until it has been dealt with for the given time."""
    running.process.send_signal(signal.SIGHUP)
    running.until(lambda: len(lines(running, "reloaded")) == times)


def write_settings(path: Path, **changed: str) -> None:
    path.write_text("\n".join(f"{name} = {value}" for name, value in changed.items()))


def test_a_controller_reads_its_settings_again(zookeeper: str, tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    own = {
        "zookeeper": f'"{zookeeper}"',
        "grpc_listen": '"127.0.0.1:0"',
        "http_listen": '"127.0.0.1:0"',
        "state_log_dir": '"log"',
    }
    write_settings(file, **own)
    command = [str(BIN / "partition-controller"), "run", f"--config={file}"]
    with program(command, tmp_path) as running:
        running.until(lambda: bool(lines(running, "ready")))

        write_settings(file, **own, log_level='"debug"', num_partitions="7")
        hang_up(running, 1)
        assert [line["log_level"] for line in lines(running, "settings_changed")] == ["debug"]
        assert [line["name"] for line in lines(running, "setting_needs_restart")] == ["num_partitions"]

        write_settings(file, **own, log_level='"loud"')
        hang_up(running, 2)
        (refused,) = lines(running, "not_reloaded")
        assert "log_level = 'loud'" in refused["error"]
        assert len(lines(running, "settings_changed")) == 1

        assert running.terminate() == 0
    (resigned,) = lines(running, "resigned")
    assert resigned["why"] == "stop requested"


def test_a_broker_stays(zookeeper: str, tmp_path: Path) -> None:
    command = [
        str(BIN / "broker-stub"), "run", "--broker-id=1", f"--zookeeper={zookeeper}", "--listen=127.0.0.1:0",
        "--data-dir=data",
    ]  # fmt: skip
    with program(command, tmp_path) as running:
        running.until(lambda: bool(lines(running, "registered")))
        hang_up(running, 1)
        assert running.terminate() == 0


def test_zookeeper_stays(tmp_path: Path) -> None:
    command = [str(BIN / "partition-controller"), "zookeeper", "--port=0", "--data-dir=zk"]
    with program(command, tmp_path) as running:
        running.until(lambda: "is serving" in running.said())
        running.process.send_signal(signal.SIGHUP)
        running.until(lambda: "nothing to reload" in running.said())
        assert running.terminate() == 0
