"""Controllers and brokers as processes of this tree, and what they say in their JSON logs."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.runtime.programs import BIN, Program, program


def lines(running: Program, event: str) -> list[dict[str, Any]]:
    """The entries of one kind in a log; the last one may be half written."""
    whole = [line for line in running.said().splitlines(keepends=True) if line[0] == "{" and line[-1] == "\n"]
    return [entry for entry in map(json.loads, whole) if entry["event"] == event]


def has_said(running: Program, event: str) -> bool:
    return bool(lines(running, event))


@contextmanager
def controller(
    zookeeper: str,
    directory: Path,
    controller_id: int = 1,
    planted: str = "",
    changes: Mapping[str, str] = {},
) -> Iterator[Program]:
    """One that leads, or has found another that does. ``planted``: Python that runs before our own. ``changes``: of its
    environment."""
    start = [str(BIN / "partition-controller")]
    if planted:
        start = [sys.executable, "-c", f"{planted}\nfrom controller.cli.main import main\nmain()\n"]
    command = [
        *start, "run", f"--controller-id={controller_id}", f"--zookeeper={zookeeper}", "--grpc-listen=127.0.0.1:0",
        "--http-listen=127.0.0.1:0", f"--state-log-dir=log-{controller_id}", "--session-timeout-ms=6000",
    ]  # fmt: skip
    with program(command, directory, changes, f"controller-{controller_id}") as running:
        running.until(lambda: has_said(running, "ready") or "is active" in running.said())
        yield running


def http(running: Program, path: str, accept: str = "*/*") -> str:
    address = lines(running, "listening")[0]["http"]
    asked = urllib.request.Request(f"http://{address}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(asked) as answer:
        return str(answer.read().decode())


def broker_command(zookeeper: str, broker_id: int) -> list[str]:
    return [
        str(BIN / "broker-stub"), "run", f"--broker-id={broker_id}", f"--zookeeper={zookeeper}",
        "--listen=127.0.0.1:0", f"--data-dir=data-{broker_id}", "--session-timeout-ms=6000",
    ]  # fmt: skip


@contextmanager
def brokers(zookeeper: str, directory: Path, count: int) -> Iterator[list[Program]]:
    with ExitStack() as stack:
        started = [
            stack.enter_context(program(broker_command(zookeeper, n), directory, name=f"broker-{n}"))
            for n in range(1, count + 1)
        ]
        for one in started:
            one.until(partial(has_said, one, "registered"))
        yield started
