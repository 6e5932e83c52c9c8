"""Command lines of ``partition-controller``, ``pctl`` and ``broker-stub``, in this process.

Nothing is started and nobody is contacted: where that would begin, it fails as it does without a cluster, or is over at
once. A command ends with 0, 1, 2 or 3; with 1 and 2 exactly one line on standard error says why, where words are
repeated as they were typed; never a traceback.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import click

from broker_stub import cli as broker_cli
from broker_stub import daemon
from broker_stub.errors import RegistrationFault
from controller.analysis import lines
from controller.analysis.errors import ReportError
from controller.cli import main as controller_cli
from controller.cli import playground as playground_cli
from controller.cli import workload
from controller.cli import zookeeper as zookeeper_cli
from controller.cli.common import options
from controller.cli.pctl.main import main as pctl
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from controller.errors import ControllerError, EnvironmentFault
from controller.playground import cluster
from controller.playground import command as playground_command
from controller.runtime import process
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import ConnectionLossError
from tests.cli.running_cluster.test_bad_input import BAD, FINE
from tests.provers.fuzz.harness import Outcome, Target, UnclearError
from tests.provers.fuzz.mutation import NUMBERS, chooser, choosing, chosen, words_mutator
from tests.provers.fuzz.targets_log import scratch
from tests.support.runtime.random_messages import NASTY

COMMANDS: tuple[tuple[str, click.Command], ...] = (
    ("partition-controller", controller_cli.main),
    ("pctl", pctl),
    ("broker-stub", broker_cli.main),
)
EXIT_CODES = (0, 1, 2, 3)
_SEEDS: dict[str, list[list[str]]] = {
    "partition-controller": [
        ["check-config", "--controller-id=3", "--grpc-listen=127.0.0.1:0"],
        ["run", "--zookeeper=h:1", "--state-log-dir=x", "--session-timeout-ms=6000"],
        ["zookeeper", "--port=0", "--servers=3", "--data-dir=x"],
        ["playground", "--script=idle", "--brokers=3", "--no-report"],
        ["workload", "--bootstrap=h:1", "--topic=t", "--history=x", "--rate=5"],
        ["verdict", "--history=x", "--topic=t"],
        ["--version"],
    ],
    "pctl": [*FINE, *(line.split() for line, _, _ in BAD), ["--zookeeper=h:1/c", "--timeout=1", "cluster", "-ojson"]],
    "broker-stub": [
        ["run", "--broker-id=1", "--zookeeper=h:1", "--listen=h:9092", "--data-dir=d", "--rack=r"],
        ["run", "--broker-id=-1", "--zookeeper=h:1", "--listen=h:9092", "--data-dir=d"],
        ["inspect", "--data-dir=d", "-o", "json"],
        ["dump-log", ".", "--records"],
        ["--help"],
    ],
}  # fmt: skip


class Ended(NamedTuple):
    code: object
    stdout: str
    stderr: str


@asynccontextmanager
async def _nobody(*_: object, **__: object) -> Any:
    if options:
        raise ConnectionLossError("no answer: nobody is there")
    yield


async def _once(*_: object) -> None:
    """Instead of round after round."""


def _not_run(work: Coroutine[Any, Any, object]) -> None:
    work.close()
    raise ControllerError("nobody is there")


def _raising(error: Exception) -> Any:
    return mock.Mock(side_effect=error)


@contextmanager
def _alone() -> Iterator[None]:
    """Within it nothing can be started or contacted, and no signal is handled anew."""
    nothing = EnvironmentFault("nothing is started here")
    fake_signal = SimpleNamespace(**{**vars(signal), "signal": lambda *_: None})
    replaced: list[tuple[Any, str, Any]] = [
        (process, "run", lambda *_: 0),
        (playground_cli, "signal", fake_signal),
        (zookeeper_cli, "signal", fake_signal),
        (EmbeddedZooKeeper, "start", _raising(nothing)),
        (playground_command, "fresh_directory", lambda path: path),
        (cluster.Playground, "start", _raising(nothing)),
        (cluster_reader, "connected", _nobody),
        (options, "_repeat", _once),
        (workload, "asyncio", SimpleNamespace(**{**vars(asyncio), "run": _not_run})),
        (daemon, "run", lambda *_: 0),
        (broker_cli, "generate_broker_id", _raising(RegistrationFault("nobody is there"))),
        (socket, "getfqdn", lambda *_: "here"),
        (socket.socket, "connect", _raising(AssertionError("somebody was contacted"))),
        (lines, "find", _raising(ReportError("logs: nothing is read here"))),
    ]
    report = SimpleNamespace(run_report=_raising(ReportError("logs: nothing is read here")))
    with ExitStack() as stack:
        for holder, name, instead in replaced:
            stack.enter_context(mock.patch.object(holder, name, instead))
        stack.enter_context(mock.patch.dict(sys.modules, {"controller.analysis.job": report}))
        before = os.getcwd()
        os.chdir(scratch())
        stack.callback(os.chdir, before)
        yield


def _run(command: click.Command, name: str, words: list[str]) -> Ended:
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape", write_through=True)
    stderr = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
    nothing = io.TextIOWrapper(io.BytesIO())
    code: object = "it returned"
    with _alone(), redirect_stdout(stdout), redirect_stderr(stderr), mock.patch.object(sys, "stdin", nothing):
        try:
            command.main(args=words, prog_name=name)
        except SystemExit as ended:
            code = ended.code or 0
    texts = []
    for stream in (stdout, stderr):
        stream.seek(0)
        texts.append(stream.read())
    return Ended(code, *texts)


#: How the line begins that says why.
_WHY = ("Error: ", "pctl: ", "partition-controller", "broker-stub", "Aborted!")


def _require_told(ended: Ended) -> None:
    if ended.code not in EXIT_CODES:
        raise UnclearError(f"exit code {ended.code!r}: {ended.stderr}")
    if "Traceback" in ended.stderr:
        raise UnclearError(f"a traceback: {ended.stderr}")
    if ended.code in (1, 2):
        why = [line for line in ended.stderr.split("\n") if line.startswith(_WHY)]
        # A group of commands without one of them shows all that it has instead.
        listed = ended.code == 2 and ended.stderr.startswith("Usage: ") and "\nCommands:\n" in ended.stderr
        if len(why) != 1 and not listed:
            raise UnclearError(f"exit code {ended.code}, and {len(why)} lines say why: {ended.stderr!r}")


def _check(data: bytes) -> Outcome:
    index, body = chosen(data, len(COMMANDS))
    name, command = COMMANDS[index]
    words = [os.fsdecode(word) for word in body.split(b"\0")] if body else []
    ended = _run(command, name, words)
    _require_told(ended)
    return Outcome.REFUSED if ended.code == 2 else Outcome.VALID


def _words(command: click.Command) -> Iterator[str]:
    """All that may be said to it: verbs, options, choices."""
    for parameter in command.params:
        yield from parameter.opts
        yield from (f"{option}=" for option in parameter.opts if option.startswith("--"))
        if isinstance(parameter.type, click.Choice):
            yield from map(str, parameter.type.choices)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield name
            verb = command.get_command(context, name)
            assert verb is not None
            yield from _words(verb)


@cache
def _vocabulary(command: click.Command) -> tuple[str, ...]:
    return (
        *sorted(set(_words(command))), *map(str, NUMBERS), *NASTY, "t", "t-0", "1", "1,2", "1:2,2:3", "x=y", "-", "--",
        "h:1", ".", "x", "\udcff", "", "-o", "json",
    )  # fmt: skip


TARGETS = (
    Target(
        "command-lines",
        _check,
        [
            choosing(index, b"\0".join(os.fsencode(word) for word in line))
            for index, (name, _) in enumerate(COMMANDS)
            for line in _SEEDS[name]
        ],
        chooser(
            [words_mutator([w.replace("\0", "") for w in _vocabulary(command)]) for _, command in COMMANDS]
        ),
        weight=1,
        quick=100,
    ),
)
