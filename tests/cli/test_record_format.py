"""Records in words, and the options that choose them."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import time
from collections.abc import AsyncGenerator, Collection
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from controller.cli.common.options import Options
from controller.cli.common.record_format import (
    filter_message,
    filter_of,
    parse_time,
    record_line,
    record_row,
    what_happened,
)
from controller.cli.pctl import history as history_verbs
from controller.cli.pctl.main import main
from controller.client import admin
from controller.runtime.rpc.history_service import _read_filter
from proto.gen import history_pb2 as pb
from proto.statelog.schema import KINDS, QUIET
from proto.statelog.writer import format_ts
from tests.support.paths import DOCS

DOCUMENT = DOCS / "state-change-log.md"
EXAMPLES: list[dict[str, Any]] = [
    json.loads(text)
    for block in re.findall(r"```json\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    for text in block.splitlines()
]
WORDS = {
    "controller": "controller standby -> active",
    "failover": "failover: partitions, 100000, 612.3 ms",
    "partition": "orders-3: OnlinePartition -> OfflinePartition",
    "replica": "orders-3: replica 1 OnlineReplica -> OfflineReplica",
    "leader": "orders-3: leader 1 -> 2, leader epoch 5",
    "isr": "orders-4: ISR [2,1,3] -> [2,3]",
    "push": "LeaderAndIsr to broker 2: 40 partitions",
    "ack": "LeaderAndIsr to broker 2 acknowledged: 40 partitions, 3.0 ms",
    "broker": "broker 1: online -> offline",
    "topic": "topic orders: known -> vanished",
    "reassignment": "orders-3: moving",
    "config": "config: topics/orders (2)",
    "feature": "feature: 1 -> 2",
    "audit": "orders-3: taken_over",
    "reject": "refused: STALE_CONTROLLER_EPOCH",
    "unchanged": "LeaderAndIsr: 40 partitions unchanged",
    "log": "120 lines of the log were lost",
    "request": "DeleteTopics of orders by User:CN=alice,O=Example at 192.0.2.7: done",
}


def example(kind: str, **changes: Any) -> dict[str, Any]:
    return {**next(e for e in EXAMPLES if e["kind"] == kind), **changes}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_has_words(kind: str) -> None:
    assert what_happened(example(kind)) == WORDS[kind]


def test_what_goes_wrong_is_in_the_words() -> None:
    assert what_happened(example("leader", to="-1")) == "orders-3: leader 1 -> none, leader epoch 5"
    assert what_happened(example("ack", error="STALE_CONTROLLER_EPOCH", count=1)) == (
        "LeaderAndIsr to broker 2 refused: STALE_CONTROLLER_EPOCH: 1 partition, 3.0 ms"
    )
    illegal = example(
        "reject", topic="t", partition=0, error="ILLEGAL_TRANSITION", **{"from": "A", "to": "B"}
    )
    assert what_happened(illegal) == "t-0: refused: ILLEGAL_TRANSITION, A -> B"
    assert what_happened({**example("log"), "kind": "unheard-of", "to": "x"}) == "unheard-of: x (120)"


def test_a_line_names_time_event_cause_and_reason() -> None:
    assert record_line(example("leader")) == (
        "2026-01-14T10:16:00.010000Z  epoch 7 event 12 BrokerChange: orders-3: leader 1 -> 2, leader epoch 5 (offline)"
    )
    bare = example("broker", controller_epoch=-1, event_id=0, cause="Broker")
    assert record_line(bare) == "2026-01-14T10:16:00.000000Z  Broker: broker 1: online -> offline"


def test_times_are_so_long_ago_or_a_date() -> None:
    now_us = time.time_ns() // 1000
    assert 0 <= now_us - 600_000_000 - parse_time("10m") + 60_000_000 <= 120_000_000
    assert parse_time("2026-01-14T10:00:00Z") == 1_768_384_800_000_000
    for bad in ("", "10", "m", "-1m", "10x", "yesterday", "2026-01-14T10:00:00", "1969-01-01T00:00:00Z"):
        with pytest.raises(click.BadParameter, match="must be like 30s"):
            parse_time(bad)


@given(
    st.sampled_from(["", "orders"]),
    st.none() | st.integers(0, 9),
    st.lists(st.integers(0, 2**31 - 1), max_size=3),
    st.none() | st.integers(1, 99),
    st.lists(st.sampled_from(sorted(KINDS)), max_size=3),
    st.integers(0, 5),
)
def test_a_filter_arrives_as_it_was_chosen(
    topic: str, partition: int | None, brokers: list[int], epoch: int | None, kinds: list[str], since_us: int
) -> None:
    wanted = filter_of(topic or None, partition if topic else None, brokers, epoch, kinds, False, since_us)
    assert _read_filter(filter_message(wanted)) == wanted


@pytest.mark.parametrize(
    ("kinds", "all_kinds", "passes"),
    [((), False, KINDS.keys() - QUIET), ((), True, ()), (["push"], False, ["push"])],
)
def test_quiet_kinds_are_left_out_unless_they_are_asked_for(
    kinds: list[str], all_kinds: bool, passes: Collection[str]
) -> None:
    wanted = filter_of(None, None, (), None, kinds, all_kinds)
    assert wanted.kinds == frozenset(passes), "no kind: each passes"


def test_a_record_of_no_event_and_no_epoch_has_blanks() -> None:
    row = record_row(example("leader"))
    assert (row["epoch"], row["event"]) == (7, 12)
    row = record_row(example("leader", event_id=0, controller_epoch=-1))
    assert (row["epoch"], row["event"]) == (None, None)


# --- from log files ------------------------------------------------------------------------------------------


def history(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["--zookeeper=127.0.0.1:1", "history", *map(str, arguments)])


def log(directory: Path, role: str, node: int, *entries: tuple[int, dict[str, Any]]) -> Path:
    """A node's log: seconds and fields of each line."""
    directory.mkdir(parents=True)
    lines = [
        json.dumps(
            example(
                "broker", role=role, node=node, ts=format_ts(1_768_384_800_000_000 + at * 10**6), **fields
            )
        )
        for at, fields in entries
    ]
    (directory / "state-change.jsonl").write_text("".join(f"{text}\n" for text in lines))
    return directory


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    log(tmp_path / "a", "controller", 1, (1, {"replica": 1}), (4, {"replica": 2}), (4, {"replica": 3}))
    log(tmp_path / "b", "broker", 7, (2, {"replica": 7, "controller_epoch": 8}), (5, {"replica": 7}))
    return tmp_path


def test_logs_of_all_nodes_are_merged_by_time_without_any_controller(logs: Path) -> None:
    done = history("-o", "json", "--state-log-dir", logs / "b", logs / "a")
    assert done.exit_code == 0
    assert [(r["ts"][17:19], r["replica"]) for r in json.loads(done.stdout)] == [
        ("01", 1),
        ("02", 7),
        ("04", 2),
        ("04", 3),
        ("05", 7),
    ]
    table = history("--state-log-dir", logs, "--broker", 7).stdout.splitlines()
    assert table[0].split() == ["TIME", "NODE", "EPOCH", "EVENT", "CAUSE", "WHAT", "REASON"]
    assert [row.split()[1:6] for row in table[1:]] == [
        ["broker", "7", "8", "12", "BrokerChange"],
        ["broker", "7", "7", "12", "BrokerChange"],
    ]


@pytest.mark.parametrize(
    ("options", "replicas"), [((), [1, 7, 2, 3, 7]), (("--limit", 3), [2, 3, 7]), (("--limit", 1), [7])]
)
def test_copies_count_once(logs: Path, options: tuple[object, ...], replicas: list[int]) -> None:
    """A copied directory, and a rotated file beside its gzip, which its writer had not finished."""
    shutil.copytree(logs / "a", logs / "copy")
    content = (logs / "b" / "state-change.jsonl").read_bytes()
    (logs / "b" / "state-change.20260114T101500.000000Z.jsonl.gz").write_bytes(gzip.compress(content)[:-8])
    done = history("-o", "json", "--state-log-dir", logs, *options)
    assert [r["replica"] for r in json.loads(done.stdout)] == replicas


@pytest.mark.parametrize(
    ("options", "replicas"),
    [
        (("--epoch", 8), [7]),
        (("--broker", 2, "--broker", 3), [2, 3]),
        (("--limit", 2), [3, 7]),
        (("--since", "2026-01-14T10:00:02Z", "--until", "2026-01-14T10:00:05Z"), [7, 2, 3]),
        (("--kind", "leader"), []),
        (("--topic", "orders"), []),
    ],
)
def test_filters_apply_to_files_too(logs: Path, options: tuple[object, ...], replicas: list[int]) -> None:
    done = history("-o", "json", "--state-log-dir", logs, *options)
    assert [r["replica"] for r in json.loads(done.stdout)] == replicas
    assert ("older records match too" in done.stderr) == ("--limit" in options)


def test_bad_lines_are_counted_and_named_and_not_fatal(logs: Path) -> None:
    path = logs / "a" / "state-change.jsonl"
    path.write_text(path.read_text() + "garbage\n" * 12 + '{"torn')
    done = history("-o", "json", "--state-log-dir", logs)
    assert done.exit_code == 0
    assert len(json.loads(done.stdout)) == 5
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"pctl: {path}: line 4: not JSON")
    assert (len(lines), lines[-1]) == (11, "pctl: 13 lines in all could not be read")


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("--state-log-dir", "/nowhere"), 1, "/nowhere: no such directory"),
        (("--partition", 1), 2, "--partition: needs --topic"),
        (("--topic", "a/b"), 2, "--topic 'a/b': "),
        (("--kind", "leaders"), 2, "'leaders' is not one of"),
        (("--since", "1x"), 2, "must be like 30s"),
        (("--since", "10m", "--until", "20m"), 2, "--since must be before --until"),
        (
            ("--since", "2026-01-14T10:00:00Z", "--until", "2026-01-14T10:00:00Z"),
            2,
            "--since must be before --until",
        ),
        (("--limit", 0), 2, "0 is not in the range"),
        (("--epoch", 0), 2, "0 is not in the range"),
        (("some-dir",), 2, "directories come after --state-log-dir"),
        ((), 1, "127.0.0.1:1"),
    ],
)
def test_bad_input_is_named(arguments: tuple[object, ...], code: int, problem: str) -> None:
    done = CliRunner().invoke(
        main, ["--zookeeper=127.0.0.1:1", "--timeout=0.5", "history", *map(str, arguments)]
    )
    assert (done.exit_code, problem in done.stderr) == (code, True), done.stderr


async def test_a_stream_that_broke_within_a_batch_goes_on_behind_what_was_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All records of a batch have one time: asked from that time on, the controller sends the printed ones again."""
    batch = [line(2, replica=n) for n in range(4)]
    later = line(3, replica=9)
    streams = [[[line(1, replica=8)], batch[:3]], [batch[:2], [batch[2]], [batch[3], later]], [[later]]]
    asked: list[int] = []
    whole_epochs: list[bool] = []

    async def watch(
        _endpoint: str, request: pb.WatchRequest, *_: object
    ) -> AsyncGenerator[pb.WatchResponse, None]:
        asked.append(request.filter.since_us)
        whole_epochs.append(request.whole_epoch)
        yield pb.WatchResponse(controller_id=1, controller_epoch=7)
        for records in streams.pop(0):
            yield pb.WatchResponse(records=records)

    monkeypatch.setattr(admin, "watch", watch)
    watcher = history_verbs._Watcher(Options("", "json", 1.0), filter_of(None, None, (), None, (), True))
    for _ in range(3):
        await watcher._stream("c:1", (1, 7))
    printed = [json.loads(text)["replica"] for text in capsys.readouterr().out.splitlines()]
    assert printed == [8, 0, 1, 2, 3, 9]
    assert asked[0] == 0
    assert whole_epochs == [False, True, True], "a watch begins with what comes"
    assert asked[2] - asked[1] == 1_000_000
    # The next controller's record of the same time is another one.
    streams.append([[line(3, replica=10)]])
    await watcher._stream("c:2", (2, 8))
    assert json.loads(capsys.readouterr().out)["replica"] == 10
    assert (asked[3], whole_epochs[3]) == (0, True), "nothing of its term is left out"


def line(second: int, **more: object) -> str:
    return json.dumps({"ts": f"2026-01-14T10:00:{second:02}.000000Z", **more})


def test_a_note_is_told_again_once_another_came_between(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = history_verbs._Watcher(Options("", "json", 1.0), filter_of(None, None, (), None, (), True))
    for text in ("away", "away", "back", "away"):
        watcher._note_once(text)
    assert capsys.readouterr().err.split() == ["away", "back", "away"]
