"""``pctl produce`` and ``pctl consume``: where to begin, and when it was enough."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.cli.pctl import records
from controller.core.effects import TopicInfo
from controller.exit_codes import EXIT_FAILED, EXIT_USAGE
from tests.support.cli.verbs import Asked, typed


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
