"""A member whose membership has ended by itself."""

from __future__ import annotations

import asyncio

import pytest

from broker_stub.client.consumer import Consumer
from broker_stub.client.errors import FatalError
from controller.cli.pctl.records import Limits, _Member, _read
from proto.gen import common_pb2 as codes


async def test_it_says_so_though_no_record_comes() -> None:
    member = _Member(["127.0.0.1:1"], "t", "g", 0, None)

    class Empty(Consumer):
        async def poll(self, timeout_ms: int) -> list[object]:  # type: ignore[override]
            member.member.failure = FatalError(codes.TOPIC_AUTHORIZATION_FAILED, "membership", "refused")
            return []

    limits = Limits(None, None)
    with pytest.raises(FatalError, match="refused"):
        await _read(asyncio.Event(), limits, lambda _: None, Empty(["127.0.0.1:1"]), after=member.commit)
    await member.consumer.close()
