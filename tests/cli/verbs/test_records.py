"""``pctl produce`` and ``pctl consume``: where to begin, and when it was enough."""

from __future__ import annotations

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
