"""Records by hand: pctl produce and consume on a running cluster."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient

from broker_stub.client.errors import DeliveryError
from broker_stub.client.producer import Producer
from controller.cli.common import standard_input
from controller.cli.pctl import records
from controller.cli.pctl.main import main
from proto.gen import common_pb2 as codes
from tests.support.cli.operator import Operator
from tests.support.cli.terminal import typing
from tests.support.runtime.programs import BIN, program

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def letters(operator: Operator) -> Operator:
    """A topic ``letters`` of three partitions, each with ten records keyed by their partition."""
    operator.ok(
        "topics",
        "create",
        "letters",
        "--partitions=3",
        "--replication-factor=3",
        "--config=min.insync.replicas=2",
    )
    for number in range(3):
        values = [f"{number}{letter}" for letter in "abcdefghij"]
        operator.ok("produce", "letters", f"--partition={number}", f"--key=k{number}", *values)
    return operator


def with_input(operator: Operator, text: str | bytes, *arguments: str) -> Result:
    result = CliRunner().invoke(main, [f"--zookeeper={operator.cluster.connect}", *arguments], input=text)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def fresh(operator: Operator, name: str, *more: str) -> None:
    operator.ok("topics", "create", name, "--replication-factor=3", *more)


# --- produce -------------------------------------------------------------------------------------------------


def test_each_value_is_a_record_and_its_place_is_printed(operator: Operator) -> None:
    fresh(operator, "values")
    assert operator.ok("produce", "values", "one", "two", "").stdout.splitlines() == ["0@0", "0@1", "0@2"]
    as_json = rows(operator.ok("produce", "values", "three", "-o", "json"))
    assert as_json == [{"topic": "values", "partition": 0, "offset": 3}]
    assert operator.ok("produce", "values", "x", "--acks=1").stdout == "0@4\n"
    assert operator.ok("produce", "values", "y", "--acks=0").stdout == "0@?\n"
    read = rows(operator.ok("consume", "values", "--from-beginning", "-o", "json"))
    assert [row["value"] for row in read][:5] == ["one", "two", "", "three", "x"]


def test_lines_of_standard_input_are_records(operator: Operator) -> None:
    fresh(operator, "lines")
    done = with_input(operator, b"first\r\nsecond\n\xff\xfe\nlast", "produce", "lines")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == ["0@0", "0@1", "0@2", "0@3"]
    read = rows(operator.ok("consume", "lines", "--from-beginning", "-o", "json"))
    assert [(row["key"], row["value"]) for row in read] == [
        (None, "first"), (None, "second"), (None, "\\xff\\xfe"), (None, "last"),
    ]  # fmt: skip


def test_many_lines_keep_their_order(operator: Operator) -> None:
    fresh(operator, "many")
    text = "".join(f"{n}\n" for n in range(3000))
    done = with_input(operator, text, "produce", "many")
    offsets = [int(line.removeprefix("0@")) for line in done.stdout.splitlines()]
    assert len(offsets) == 3000
    assert offsets == sorted(set(offsets))
    # A batch whose answer did not come in time is written again: the offset told is that of the last copy.
    value_at = {
        row["offset"]: row["value"]
        for row in rows(operator.ok("consume", "many", "--from-beginning", "-o", "json"))
    }
    assert [value_at[offset] for offset in offsets] == [str(n) for n in range(3000)]


def test_the_first_record_is_not_overtaken(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partition is chosen when the first metadata have come; later ones need not wait for any."""
    choose = Producer.choose_partition
    pauses = iter([0.2])

    async def slow_at_first(self: Producer, topic: str, key: bytes | None, size: int) -> int:
        await asyncio.sleep(next(pauses, 0))
        return await choose(self, topic, key, size)

    monkeypatch.setattr(Producer, "choose_partition", slow_at_first)
    fresh(operator, "overtaken")
    done = with_input(operator, "1\n2\n3\n", "produce", "overtaken")
    assert done.stdout.splitlines() == ["0@0", "0@1", "0@2"]


def test_a_failure_behind_more_lines_than_wait_is_told(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: Producer, topic: str, partition: int, records: object) -> int:
        await asyncio.sleep(0.2)
        raise DeliveryError(codes.REQUEST_TIMED_OUT, f"Produce {topic}-{partition}", "nobody answers", 1)

    monkeypatch.setattr(Producer, "send", fails)
    fresh(operator, "stuck")
    done = with_input(operator, "x\n" * 5000, "produce", "stuck")
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("pctl: not acknowledged: Produce stuck-0")


def test_closed_standard_input_is_said(operator: Operator) -> None:
    fresh(operator, "closed")
    command = [
        "sh",
        "-c",
        'exec "$@" <&-',
        "sh",
        str(BIN / "pctl"),
        f"--zookeeper={operator.cluster.connect}",
    ]
    done = subprocess.run([*command, "produce", "closed"], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"pctl: standard input is closed: give the records as arguments\n"


def test_ctrl_c_ends_it_while_a_terminal_says_nothing(operator: Operator) -> None:
    fresh(operator, "silent")
    with typing(operator.cluster.connect, "produce", "silent") as (keyboard, process):
        os.write(keyboard, b"typed\n")
        assert process.stdout is not None
        assert process.stdout.readline() == b"0@0\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0


def test_a_key_has_one_partition(operator: Operator) -> None:
    fresh(operator, "keyed", "--partitions=3")
    done = with_input(operator, "a=1\nb=2\na=3\nc=4=5\n", "produce", "keyed", "--key-separator==")
    assert done.exit_code == 0, done.output
    assert operator.ok("produce", "keyed", "--key=a", "6").exit_code == 0
    read = rows(operator.ok("consume", "keyed", "--from-beginning", "-o", "json"))
    by_key = {key: [row for row in read if row["key"] == key] for key in ("a", "b", "c")}
    assert [row["value"] for row in by_key["a"]] == ["1", "3", "6"]
    assert len({row["partition"] for row in by_key["a"]}) == 1
    # murmur2, as other producers of Kafka place them.
    assert {key: found[0]["partition"] for key, found in by_key.items()} == {"a": 1, "b": 2, "c": 1}
    assert by_key["c"][0]["value"] == "4=5"


def test_what_was_written_before_a_bad_line_is_told(operator: Operator) -> None:
    fresh(operator, "half-keyed")
    ended = with_input(operator, "a:1\nb:2\nbad\nc:3\n", "produce", "half-keyed", "--key-separator=:")
    assert (ended.exit_code, "record b'bad': must be KEY:VALUE" in ended.stderr) == (2, True)
    assert ended.stdout.splitlines() == ["0@0", "0@1"]


@pytest.mark.parametrize("length", [10, 100])
def test_an_endless_line_is_not_read_to_its_end(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """Nor is waited for what would follow one whose end alone is too much."""
    topic = f"endless-{length}"
    fresh(operator, topic)
    monkeypatch.setattr(standard_input, "LINE_BYTES_MAX", 10)
    monkeypatch.setattr(records, "LINE_BYTES_MAX", 10)
    ended = with_input(operator, f"short\n{length * 'x'}\nnext\n", "produce", topic)
    read = f"{length * 'x'}\n"[:11].encode()
    assert (ended.exit_code, f"line {read!r}...: must be at most 10 bytes" in ended.stderr) == (2, True)
    assert ended.stdout.splitlines() == ["0@0"]


def test_too_few_replicas_in_sync_is_a_refusal(operator: Operator) -> None:
    # The second replica is of a broker that is not there.
    operator.ok("topics", "create", "guarded", "--replica-assignment=1:98", "--config=min.insync.replicas=2")
    refused = operator.run("--timeout=5", "produce", "guarded", "x")
    assert refused.exit_code == 3
    assert refused.stderr.startswith("pctl: not acknowledged: Produce guarded-0 of broker ")
    assert "NOT_ENOUGH_REPLICAS" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert operator.ok("produce", "guarded", "x", "--acks=1").stdout == "0@0\n"


# --- consume -------------------------------------------------------------------------------------------------


def test_from_the_beginning_to_what_is_there(letters: Operator) -> None:
    lines = letters.ok("consume", "letters", "--from-beginning").stdout.splitlines()
    for number in range(3):
        mine = [line for line in lines if line.startswith(f"{number}@")]
        assert mine == [f"{number}@{n}\tk{number}\t{number}{letter}" for n, letter in enumerate("abcdefghij")]
    assert len(lines) == 30


def test_one_partition_from_an_offset(letters: Operator) -> None:
    read = rows(letters.ok("consume", "letters", "--partition=1", "--offset=7", "-o", "json"))
    assert [(r["topic"], r["partition"], r["offset"], r["key"], r["value"]) for r in read] == [
        ("letters", 1, n, "k1", f"1{letter}") for n, letter in ((7, "h"), (8, "i"), (9, "j"))
    ]
    assert {row["leader_epoch"] for row in read} == {0}
    assert all(row["timestamp"] > 1_600_000_000_000 for row in read)
    assert letters.ok("consume", "letters", "--partition=1", "--offset=10").stdout == ""


def test_a_number_of_messages(letters: Operator) -> None:
    some = letters.ok("consume", "letters", "--partition=0", "--from-beginning", "--max-messages=3")
    assert some.stdout.splitlines() == ["0@0\tk0\t0a", "0@1\tk0\t0b", "0@2\tk0\t0c"]
    few = letters.run("consume", "letters", "--from-beginning", "--max-messages=31")
    assert few.exit_code == 1
    assert "30 of 31 messages came" in few.stderr
    assert len(few.stdout.splitlines()) == 30
    none = letters.run("consume", "letters", "--max-messages=1", "--timeout-ms=100")
    assert (none.exit_code, none.stdout) == (1, "")


def test_an_offset_outside_the_log_is_said(letters: Operator) -> None:
    result = letters.run("consume", "letters", "--partition=0", "--offset=11", "--follow")
    assert result.exit_code == 1
    assert "OFFSET_OUT_OF_RANGE (offset 11)" in result.stderr


def test_records_cannot_forge_lines(operator: Operator) -> None:
    fresh(operator, "forged")
    operator.ok("produce", "forged", "--key=a\tb", "evil\x1b[2J\n0@1\tx\ty")
    (line,) = operator.ok("consume", "forged", "--from-beginning").stdout.splitlines()
    assert line == "0@0\ta\\tb\tevil\\x1b[2J\\n0@1\\tx\\ty"


def test_following_ends_orderly_when_interrupted(operator: Operator, tmp_path: Path) -> None:
    fresh(operator, "followed")
    command = [
        str(BIN / "pctl"),
        f"--zookeeper={operator.cluster.connect}",
        "consume",
        "followed",
        "--follow",
        "--from-beginning",
    ]
    with program(command, tmp_path) as running:
        operator.ok("produce", "followed", "a")
        running.until(lambda: "0@0\t-\ta" in running.said())
        operator.ok("produce", "followed", "b")
        running.until(lambda: "0@1\t-\tb" in running.said())
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(20) == 0
        assert running.said() == "0@0\t-\ta\n0@1\t-\tb\n"


def test_a_group_reads_on_where_it_stopped(letters: Operator) -> None:
    common = ("consume", "letters", "--group=readers", "--from-beginning", "-o", "json")
    first = letters.ok(*common, "--max-messages=4", "--timeout-ms=20000")
    assert "pctl: generation 1: partitions of letters: 0, 1, 2" in first.stderr
    second = letters.ok(*common, "--max-messages=26", "--timeout-ms=20000")
    places = [(row["partition"], row["offset"]) for row in rows(first) + rows(second)]
    assert sorted(places) == [(number, n) for number in range(3) for n in range(10)]
    nothing = letters.ok(*common, "--timeout-ms=500")
    assert nothing.stdout == ""


def test_a_group_of_two_shares_the_partitions(letters: Operator, tmp_path: Path) -> None:
    command = [
        str(BIN / "pctl"),
        f"--zookeeper={letters.cluster.connect}",
        "consume",
        "letters",
        "--group=two",
    ]
    with program(command, tmp_path, name="one") as one:
        one.until(lambda: "partitions of letters: 0, 1, 2" in one.said())
        with program(command, tmp_path, name="two") as two:
            two.until(lambda: "generation 2" in two.said())
            one.until(lambda: "generation 2" in one.said())
            shares = sorted(
                p.said().split("generation 2: partitions of letters: ")[1].splitlines()[0] for p in (one, two)
            )
            assert shares == ["0, 1", "2"]
            assert two.terminate() == 0
        # It has left: the other one need not wait for its session to end.
        one.until(lambda: "generation 3: partitions of letters: 0, 1, 2" in one.said())
        assert one.terminate() == 0


# --- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("produce", "nope", "x"), 1, "pctl: no topic 'nope'"),
        (("consume", "nope"), 1, "pctl: no topic 'nope'"),
        (
            ("produce", "letters", "x", "--partition=3"),
            1,
            "pctl: topic letters has no partition 3: it has 0, 1, 2",
        ),
        (("consume", "letters", "--partition=9"), 1, "no partition 9"),
        (("produce", "letters", "x", "--partition=-1"), 2, "--partition"),
        (("produce", "letters", "x", "--acks=2"), 2, "'all', '1', '0'"),
        (("produce", "letters", "x", "--key=a", "--key-separator=:"), 2, "only one of them"),
        (("produce", "letters", "x", "--key-separator="), 2, "at least one character"),
        (("produce", "letters", "x", "--key-separator=:"), 2, "must be KEY:VALUE"),
        (("produce",), 2, "Missing argument 'TOPIC'"),
        (("consume", "letters", "--offset=1"), 2, "needs --partition"),
        (("consume", "letters", "--offset=1", "--partition=0", "--from-beginning"), 2, "only one of them"),
        (("consume", "letters", "--group=g", "--partition=0"), 2, "leave out --partition"),
        (("consume", "letters", "--group="), 2, "at least one character"),
        (("consume", "letters", "--max-messages=0"), 2, "--max-messages"),
        (("consume", "letters", "--timeout-ms=0"), 2, "--timeout-ms"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_bad_input(letters: Operator, arguments: tuple[str, ...], code: int, says: str) -> None:
    result = letters.run(*arguments)
    assert (result.exit_code, says in result.stderr) == (code, True), result.output
    assert result.stdout == ""


def test_a_cluster_without_brokers(zookeeper: str) -> None:
    hands = KazooClient(zookeeper)
    hands.start(20)
    try:
        hands.create("/brokers/topics/t", b'{"version":3,"partitions":{"0":[1]}}', makepath=True)
    finally:
        hands.stop()
        hands.close()
    result = CliRunner().invoke(main, [f"--zookeeper={zookeeper}", "produce", "t", "x"])
    assert result.exit_code == 1
    assert result.stderr == "pctl: no broker is registered\n"
