"""Controllers and brokers as processes of this tree, and what they say in their JSON logs."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.runtime.programs import BIN, Program, program


def lines(running: Program, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in running.said().splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


def has_said(running: Program, event: str) -> bool:
    return bool(lines(running, event))


@contextmanager
def controller(zookeeper: str, directory: Path) -> Iterator[Program]:
    command = [
        str(BIN / "partition-controller"), "run", f"--zookeeper={zookeeper}", "--grpc-listen=127.0.0.1:0",
        "--http-listen=127.0.0.1:0", "--state-log-dir=log", "--session-timeout-ms=6000",
    ]  # fmt: skip
    with program(command, directory, name="controller") as running:
        running.until(partial(has_said, running, "ready"))
        yield running


def http(running: Program, path: str) -> str:
    address = lines(running, "listening")[0]["http"]
    with urllib.request.urlopen(f"http://{address}{path}") as answer:
        return str(answer.read().decode())


@contextmanager
def brokers(zookeeper: str, directory: Path, count: int) -> Iterator[list[Program]]:
    with ExitStack() as stack:
        started = []
        for broker_id in range(1, count + 1):
            command = [
                str(BIN / "broker-stub"), "run", f"--broker-id={broker_id}", f"--zookeeper={zookeeper}",
                "--listen=127.0.0.1:0", f"--data-dir=data-{broker_id}",
            ]  # fmt: skip
            started.append(stack.enter_context(program(command, directory, name=f"broker-{broker_id}")))
        for one in started:
            one.until(partial(has_said, one, "registered"))
        yield started
