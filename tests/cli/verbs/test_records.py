"""``pctl produce`` and ``pctl consume``: where to begin, and when it was enough."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import pytest

from broker_stub.client.consumer import EARLIEST, LATEST, ConsumedRecord
from broker_stub.client.errors import DeliveryError
from broker_stub.client.group import Membership
from controller.cli.pctl import records
from controller.core.effects import TopicInfo
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE
from controller.runtime.zookeeper.cluster_reader import ClusterState
from proto.gen import common_pb2 as codes
from tests.support.cli.verbs import Asked, typed
from tests.support.core.world import a_broker


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("consume t --from-beginning --offset 0 --partition 0", "only one of them says where to begin"),
        ("consume t --offset 0", "--offset: needs --partition"),
        ("consume t --group g --partition 0", "the group assigns the partitions"),
        ("consume t --group ''", "--group: must be at least one character"),
        ("produce t v --key k --key-separator :", "only one of them says where keys come from"),
        ("produce t v --key-separator ''", "--key-separator: must be at least one character"),
    ],
)
def test_options_that_contradict_each_other(command: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Asked().install(monkeypatch)
    shown = typed(command)
    assert (shown.exit_code, said in " ".join(shown.stderr.split())) == (EXIT_USAGE, True)


@pytest.mark.parametrize(("came", "code"), [(0, EXIT_FAILED), (2, EXIT_FAILED), (3, 0)])
def test_fewer_records_than_were_asked_for_are_not_enough(
    came: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(*_: Any) -> Any:
        return TopicInfo("t", "id", {0: (1,)}, {}, {}, 0, 1), ["b:1"]

    async def read(*_: Any) -> int:
        return came

    monkeypatch.setattr(records, "_find_topic", find)
    monkeypatch.setattr(records, "read_as_member", read)
    Asked().install(monkeypatch)
    shown = typed("consume t --group g --max-messages 3")
    assert (shown.exit_code, f"{came} of 3 messages came" in shown.stderr) == (code, bool(code))


@pytest.mark.parametrize(
    ("timeout", "delivery_ms", "request_ms"), [("2", 2_000, 2_000), ("30", 30_000, 5_000)]
)
def test_a_record_is_tried_for_as_long_as_the_timeout(
    timeout: str, delivery_ms: int, request_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker waits at most five seconds at a time for its in-sync replicas."""
    given: dict[str, Any] = {}

    class Sender:
        def __init__(self, _: Any, acks: int, **how: Any) -> None:
            given.update(how, acks=acks)

        async def __aenter__(self) -> Any:
            return self

        async def __aexit__(self, *_: Any) -> None:
            pass

        async def send(self, topic: str, partition: int, records: Any) -> int:
            given.update(sent=(topic, partition, records))
            return 7

    async def find(*_: Any, **__: Any) -> Any:
        return TopicInfo("t", "id", {3: (1,)}, {}, {}, 0, 1), ["b:1"]

    monkeypatch.setattr(records, "_find_topic", find)
    monkeypatch.setattr(records, "Producer", Sender)
    Asked().install(monkeypatch)
    shown = typed(f"--timeout {timeout} produce t v --key k --partition 3 --acks 1")
    assert json.loads(shown.stdout) == {"topic": "t", "partition": 3, "offset": 7}
    assert (given["delivery_timeout_ms"], given["request_timeout_ms"]) == (delivery_ms, request_ms)
    assert (given["acks"], given["sent"]) == (1, ("t", 3, [(b"k", b"v")]))
    assert typed("produce t 'v\n' --partition 3").exit_code == 0
    assert given["sent"] == ("t", 3, [(None, b"v\n")]), "only lines of standard input end with one"


async def test_an_offset_that_nobody_tells_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Who wants no acknowledgement gets none."""

    async def sent(offset: int) -> tuple[int, int]:
        return 3, offset

    for style in ("table", "json"):
        results: asyncio.Queue[Any] = asyncio.Queue()
        for offset in (0, -1):
            results.put_nowait(asyncio.ensure_future(sent(offset)))
        results.put_nowait(None)
        await records._print_sent(results, "t", style)
    lines = capsys.readouterr().out.splitlines()
    assert (lines[:2], [json.loads(line)["offset"] for line in lines[2:]]) == (["3@0", "3@?"], [0, None])


@pytest.mark.parametrize(("attempts", "there"), [(0, False), (2, True)])
async def test_what_may_be_in_the_log_is_said_to_be(
    attempts: int, there: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        async with records._client_errors_fail():
            raise DeliveryError(codes.REQUEST_TIMED_OUT, "t-0", "nobody answers", attempts)
    assert ("it may be in the log nevertheless" in capsys.readouterr().err) == there


@pytest.mark.parametrize(("option", "start"), [("", LATEST), ("--from-beginning", EARLIEST)])
def test_where_a_new_group_begins(option: str, start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []

    async def read(_: Any, __: str, ___: str, given: int, *____: Any) -> int:
        starts.append(given)
        return 0

    info = TopicInfo("t", "id", {0: (1,)}, {}, {}, 0, 1)
    now = ClusterState(100, "c:1", 7, brokers={1: a_broker(1, 1)}, topics={"t": info})
    now.problems["/brokers/topics/odd"] = "junk"
    monkeypatch.setattr(records, "read_as_member", read)
    Asked(now).install(monkeypatch)
    assert (typed(f"consume t --group g {option}").exit_code, starts) == (0, [start])
    shown = typed(f"consume odd --group g {option}")
    assert (shown.exit_code, "/brokers/topics/odd: junk" in shown.stderr) == (EXIT_FAILED, True)


def test_what_was_read_before_a_bad_line_is_said_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [b"k:v\n", b"no key\n", b"l:w\n", b""]

    class Sender:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        async def __aenter__(self) -> Any:
            return self

        async def __aexit__(self, *_: Any) -> None: ...

        async def send(self, *_: Any) -> int:
            for _turn in range(9):
                await asyncio.sleep(0)
            return 7

    class Input:
        async def line(self) -> bytes:
            return lines.pop(0)

    async def find(*_: Any, **__: Any) -> Any:
        return TopicInfo("t", "id", {3: (1,)}, {}, {}, 0, 1), ["b:1"]

    monkeypatch.setattr(records, "_find_topic", find)
    monkeypatch.setattr(records, "Producer", Sender)
    monkeypatch.setattr(records, "StandardInput", Input)
    Asked().install(monkeypatch)
    shown = typed("produce t --key-separator : --partition 3", "table")
    assert (shown.exit_code, shown.stdout, len(lines)) == (EXIT_USAGE, "3@7\n", 2)
    assert "must be KEY:VALUE" in shown.stderr


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ("", None),
        ("--from-beginning", {("t", 0): 9, ("t", 1): 9}),
        ("--offset 0 --partition 0", {("t", 0): 9}),
        ("--from-beginning --follow", None),
    ],
)
def test_reading_ends_at_the_present_end_unless_new_records_are_wanted(
    options: str, ends: dict[Any, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    class Log:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        async def __aenter__(self) -> Any:
            return self

        async def __aexit__(self, *_: Any) -> None: ...

        async def assign(self, positions: dict[Any, int], _: float) -> None:
            self.positions = positions

        def assignment(self) -> list[Any]:
            return list(self.positions)

        async def list_offset(self, *_: Any) -> int:
            return 9

    async def read(*arguments: Any) -> int:
        given.append(arguments[-1])
        return 0

    info = TopicInfo("t", "id", {0: (1,), 1: (1,)}, {}, {}, 0, 1)
    monkeypatch.setattr(records, "Consumer", Log)
    monkeypatch.setattr(records, "_read", read)
    Asked(ClusterState(100, "c:1", 7, brokers={1: a_broker(1, 1)}, topics={"t": info})).install(monkeypatch)
    assert (typed(f"consume t {options}").exit_code, given) == (0, [ends])


def test_a_topic_in_deletion_can_still_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    info = TopicInfo("t", "id", {0: (1,), 3: (1,)}, {}, {}, 0, 1)
    now = ClusterState(100, "c:1", 7, brokers={1: a_broker(1, 1)}, topics={"t": info}, deleting=["t"])
    Asked(now).install(monkeypatch)
    session: Any = None

    async def find(number: int | None, deleting: bool) -> Any:
        return await records._find_topic(session, "t", number, deleting=deleting)

    assert asyncio.run(find(3, True)) == (info, ["host1:9000"])
    for number, deleting, code in ((None, False, EXIT_REFUSED), (1, True, EXIT_FAILED)):
        with pytest.raises(SystemExit) as ended:
            asyncio.run(find(number, deleting))
        assert ended.value.code == code


def test_an_empty_key_is_not_none_and_what_is_no_text_stays_readable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for key, value in ((None, b"v"), (b"", b"\xff\x1b[2J"), (b"k", None)):
        record = ConsumedRecord("t", 3, 7, 2, 1_000, key, value, 8)
        records._print_record(record, "table")
        records._print_record(record, "json")
    shown = capsys.readouterr().out.splitlines()
    assert [line.split("\t") for line in shown[::2]] == [
        ["3@7", "-", "v"],
        ["3@7", "", "\\xff\\x1b[2J"],
        ["3@7", "k", "-"],
    ]
    told = [json.loads(line) for line in shown[1::2]]
    assert [(row["key"], row["value"]) for row in told] == [(None, "v"), ("", "\\xff\x1b[2J"), ("k", None)]
    assert [(row["offset"], row["leader_epoch"], row["timestamp"]) for row in told] == [(7, 2, 1_000)] * 3


async def test_a_member_begins_where_its_group_has_read_to_and_else_where_it_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assigned: list[dict[Any, int]] = []
    own = records._Member(["b:1"], "t", "g", LATEST, None)

    async def committed(_: Any) -> dict[Any, int]:
        return {("t", 0): 5}

    async def assign(positions: dict[Any, int]) -> None:
        assigned.append(positions)

    monkeypatch.setattr(own.member, "committed", committed)
    monkeypatch.setattr(own.consumer, "assign", assign)
    await own._assigned(Membership("m", 4, partitions=(("t", 0), ("t", 1))))
    await own._lost(Membership("m", 4))
    assert assigned == [{("t", 0): 5, ("t", 1): LATEST}, {}]
    assert "generation 4: partitions of t: 0, 1" in capsys.readouterr().err
    await own.consumer.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_who_is_told_to_end_commits_first(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    async with records._interruptible() as stop:
        assert signal.getsignal(number) is not before
        signal.raise_signal(number)
        async with asyncio.timeout(60):
            await stop.wait()
