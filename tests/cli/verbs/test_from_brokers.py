"""``pctl --bootstrap``: brokers are asked one after the other."""

from __future__ import annotations

import re
from typing import Any

import pytest

from broker_stub.client.connection import Connections
from broker_stub.client.errors import UnreachableError
from controller.cli.common.options import Options
from controller.cli.computed import from_brokers


async def test_each_broker_that_did_not_answer_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def away(_self: Connections, address: str, method: str, *_: Any) -> None:
        raise UnreachableError(f"{method} at {address}", "away", sent=False)

    monkeypatch.setattr(Connections, "call", away)
    with pytest.raises(SystemExit):
        await from_brokers._asked(Options("", "table", 1.0, bootstrap=["a:1", "b:2"]), ())
    assert re.findall(r"[ab]:\d", capsys.readouterr().err) == ["a:1", "b:2"]
