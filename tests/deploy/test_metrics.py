"""Alerts and the runbook name metrics that a running controller really has, and the runbook has them all."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from controller.certificates import make
from tests.support.paths import DOCS, ROOT

ALERTS = ROOT / "deploy" / "alerts.yml"
RUNBOOK = DOCS / "operations.md"
NAME = re.compile(r"\b(?:kafka|partition)_(?:controller|server)_\w+")
BIN = Path(sys.executable).parent


def families(metrics: str) -> set[str]:
    """Names of all metrics, as queries use them; when a counter was created is of no use to anyone."""
    names = set(re.findall(r"^# TYPE (\S+)", metrics, re.MULTILINE))
    return {name for name in names if not name.endswith("_created")}


@pytest.fixture
def metrics(zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What /metrics says on an active controller with one broker."""
    controller_log, broker_log = tmp_path / "controller.log", tmp_path / "broker.log"
    controller = f"partition-controller run --zookeeper {zookeeper} --http-listen 127.0.0.1:0"
    controller += f" --grpc-listen 127.0.0.1:0 --state-log-dir {tmp_path}/controller"
    broker = f"broker-stub run --broker-id 1 --zookeeper {zookeeper} --listen 127.0.0.1:0"
    broker += f" --data-dir {tmp_path}/broker"
    folder = tmp_path / "certificates"
    make(folder, ["own"])
    files = {"CERTIFICATE": folder / "own.pem", "KEY": folder / "own.key", "CA": folder / "ca.pem"}
    for prefix in ("PARTITION_CONTROLLER", "BROKER_STUB"):
        for name, path in files.items():
            monkeypatch.setenv(f"{prefix}_SSL_{name}", str(path))
    monkeypatch.setenv("PARTITION_CONTROLLER_HTTP_SSL", "false")
    with controller_log.open("w") as out, broker_log.open("w") as broker_out:
        processes = [_start(controller, out), _start(broker, broker_out)]
        try:
            yield _await_metrics(controller_log)
        finally:
            for process in processes:
                process.terminate()
            codes = [process.wait(60) for process in processes]
    assert codes == [0, 0], controller_log.read_text() + broker_log.read_text()


def _start(command: str, log: IO[str]) -> subprocess.Popen[bytes]:
    program, *arguments = command.split()
    return subprocess.Popen([str(BIN / program), *arguments], stderr=log)


def _await_metrics(log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.2)
        entries = [
            json.loads(line) for line in log.read_text().splitlines(keepends=True) if line[-1:] == "\n"
        ]
        for entry in entries:
            if entry["event"] == "listening":
                with urllib.request.urlopen(f"http://{entry['http']}/metrics") as answer:
                    text: str = answer.read().decode()
                # A broker has a queue before the cluster has the broker.
                if all(f'{name}{{broker_id="1"}}' in text for name in ("queuesize", "broker_losses")):
                    return text
    pytest.fail(f"no active controller with a broker: {log.read_text()}")


@pytest.mark.slow
def test_alerts_and_runbook_name_real_metrics(metrics: str) -> None:
    exported = families(metrics)
    alerted = {re.sub("_(bucket|count|sum)$", "", name) for name in NAME.findall(ALERTS.read_text())}
    assert alerted - exported == set()
    documented = set(re.findall(r"^\| `((?:kafka|partition)_\w+)", RUNBOOK.read_text(), re.MULTILINE))
    assert documented == exported, "keep the table of metrics in docs/operations.md complete"
