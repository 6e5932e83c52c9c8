"""pctl history, watch and -w on a cluster of processes: what broke is named, and a watcher outlives its controller."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from controller.playground.cluster import Playground, healthy
from controller.runtime.zookeeper.session import Session
from tests.integration.conftest import StartCluster, create
from tests.support.runtime.programs import BIN, Program, program, run_to_end
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow


def command(cluster: Playground, *arguments: str) -> list[str]:
    return [str(BIN / "pctl"), f"--zookeeper={cluster.connect}", *arguments]


async def led(cluster: Playground, session: Session) -> int:
    """A topic with leaders; the active controller."""
    active, _ = await cluster.active(session)
    await cluster.until(session, "registered", lambda s: len(s.brokers) == cluster.brokers)
    await create(session, "t", {0: [1, 2], 1: [2, 1]})
    await cluster.until(session, "led", healthy)
    return active


def records(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


async def said(running: Program, reached: Callable[[str], bool], what: str) -> None:
    try:
        await until(lambda: reached(running.said()), what)
    except AssertionError as error:
        raise AssertionError(f"{error}; it said: {running.said()[-3000:]}") from None


async def test_history_names_the_event_and_its_cause_with_and_without_a_controller(
    start_cluster: StartCluster, session: Session, tmp_path: Path
) -> None:
    cluster = start_cluster(controllers=1, brokers=2)
    await led(cluster, session)
    cluster.members["broker-1"].kill()
    await cluster.until(
        session, "broker 2 leads", lambda s: all(p.state and p.state.leader == 2 for p in s.partitions)
    )
    wanted = ("--topic=t", "--partition=0", "--kind=leader")
    asked = run_to_end(command(cluster, "-o", "json", "history", *wanted), tmp_path)
    assert asked.returncode == 0, asked.stderr
    first, second = json.loads(asked.stdout)
    assert (first["to"], second["from"], second["to"]) == ("1", "1", "2")
    assert (second["cause"], second["controller_epoch"]) == ("BrokerChange", 1)
    table = run_to_end(command(cluster, "history", *wanted), tmp_path).stdout.splitlines()
    assert f"{second['event_id']}      BrokerChange" in table[-1]
    assert "t-0: leader 1 -> 2, leader epoch 1  " in table[-1]
    assert table[-1].endswith("offline")

    cluster.members["controller-1"].kill()
    refused = run_to_end(command(cluster, "--timeout=2", "history"), tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert (refused.stderr.count("pctl: "), "--state-log-dir" in refused.stderr) == (1, True), refused.stderr
    files = command(cluster, "-o", "json", "history", "--state-log-dir", str(cluster.state_logs), *wanted)
    assert json.loads(run_to_end(files, tmp_path).stdout) == [first, second]


@pytest.mark.parametrize(
    "blow",
    [
        pytest.param(signal.SIGKILL, id="killed", marks=pytest.mark.long),
        pytest.param(signal.SIGSTOP, id="frozen"),
    ],
)
async def test_a_watch_goes_on_with_the_successor(
    start_cluster: StartCluster, session: Session, tmp_path: Path, blow: signal.Signals
) -> None:
    cluster = start_cluster(brokers=2)
    active = await led(cluster, session)
    successor = 3 - active
    with program(command(cluster, "watch", "-o", "json"), tmp_path) as watch:
        await said(watch, lambda text: f"watching controller {active}, epoch 1" in text, "the first words")
        cluster.members["broker-1"].kill()
        await said(watch, lambda text: '"kind":"leader"' in text, "the new leader")
        cluster.members[f"controller-{active}"].signal(blow)
        await said(watch, lambda text: f"controller {successor}, epoch 2" in text, "the successor")
        cluster.members["broker-1"].start()
        await said(watch, lambda text: '"to":"online"' in text, "the broker's return")
        watch.process.send_signal(signal.SIGINT)
        assert watch.process.wait(20) == 0
        text = watch.said()
    if blow is signal.SIGSTOP:
        cluster.members[f"controller-{active}"].signal(signal.SIGCONT)
    assert f"controller {active} is replaced: watching controller {successor}, epoch 2" in text
    printed = records(text)
    epochs = [r["controller_epoch"] for r in printed]
    assert epochs == sorted(epochs)
    # Its failover is told too, though it was over before anybody could ask it.
    ready = [r for r in printed if r["kind"] == "failover" and r["to"] == "ready"]
    assert [(r["node"], r["controller_epoch"]) for r in ready] == [(successor, 2)]
    leaders = [(r["topic"], r["from"], r["to"], r["cause"]) for r in printed if r["kind"] == "leader"]
    assert leaders[0] == ("t", "1", "2", "BrokerChange")


async def test_a_request_waits_for_the_successor_of_a_controller_that_was_killed(
    start_cluster: StartCluster, session: Session, tmp_path: Path
) -> None:
    cluster = start_cluster(brokers=1)
    active, _ = await cluster.active(session)
    # Without a successor nobody is waited for.
    await cluster.until(session, "registered", lambda s: (len(s.brokers), len(s.controllers)) == (1, 2))
    cluster.members[f"controller-{active}"].kill()
    done = run_to_end(command(cluster, "--timeout=30", "topics", "create", "t"), tmp_path)
    assert (done.returncode, "created topic t" in done.stderr + done.stdout) == (0, True), done


async def test_a_watch_for_so_long_ends_by_itself(
    start_cluster: StartCluster, session: Session, tmp_path: Path
) -> None:
    cluster = start_cluster(controllers=1, brokers=1)
    await cluster.active(session)
    done = run_to_end(command(cluster, "watch", "--for=3"), tmp_path)
    assert (done.returncode, done.stderr) == (0, "watching controller 1, epoch 1\n")


async def test_a_listing_again_and_again_outlives_the_controller_and_ends_with_ctrl_c(
    start_cluster: StartCluster, session: Session, tmp_path: Path
) -> None:
    cluster = start_cluster(controllers=1, brokers=1)
    await cluster.active(session)
    listing = command(cluster, "--timeout=5", "reassign", "list", "-w", "0.2", "-o", "json")
    with program(listing, tmp_path) as watch:
        await said(watch, lambda text: text.count("[]") >= 2, "two rounds")
        cluster.members["controller-1"].kill()
        await said(watch, lambda text: "pctl: " in text, "what is wrong")
        rounds = watch.said().count("[]")
        cluster.members["controller-1"].start()
        await said(watch, lambda text: text.count("[]") > rounds, "the next controller's answer")
        watch.process.send_signal(signal.SIGINT)
        assert watch.process.wait(20) == 0


async def test_rounds_are_apart_in_a_file_and_replace_each_other_on_a_terminal(
    start_cluster: StartCluster, session: Session, tmp_path: Path
) -> None:
    cluster = start_cluster(controllers=1, brokers=2)
    await led(cluster, session)
    for verb in (
        ("cluster", "-w", "0.1"),
        ("controllers", "--watch=0.1"),
        ("brokers", "-w", "0.1"),
        ("topics", "list", "-w", "0.1"),
        ("topics", "describe", "-w", "t"),
        ("partitions", "-w", "0.1"),
    ):
        once = run_to_end(command(cluster, *(w for w in verb if w[0] != "-" and w != "0.1")), tmp_path)
        head = once.stdout.splitlines()[0]
        with program(command(cluster, *verb), tmp_path) as watch:
            await said(watch, lambda text, head=head: text.count(head) >= 2, "two rounds")  # type: ignore[misc]
            watch.process.send_signal(signal.SIGINT)
            assert watch.process.wait(20) == 0
            lines = watch.said().splitlines()
        starts = [number for number, text in enumerate(lines) if text == head]
        assert lines[starts[1] - 2] == ""
        assert lines[starts[1] - 1].endswith("Z")
    shown = on_a_terminal(command(cluster, "topics", "list", "-w", "0.2"), b"TOPIC", 2)
    assert shown.count(b"\x1b[2J\x1b[H") >= 2
    assert b"every 0.2 s, Ctrl-C ends" in shown


def on_a_terminal(arguments: list[str], word: bytes, times: int) -> bytes:
    """What a command shows on a terminal until a word was there so often; then it is interrupted."""
    ours, theirs = pty.openpty()
    shown = b""
    with subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        try:
            with suppress(OSError):
                while shown.count(word) < times:
                    shown += os.read(ours, 1000)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()
            os.close(ours)
    return shown
