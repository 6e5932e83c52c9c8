"""Every way in which a call to a peer has no answer, without a network; over real connections: ``test_peers``."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import grpc
import pytest

from broker_stub.rpc.peers import Peers, PeerUnavailable
from proto.gen import broker_data_pb2 as data

ADDRESS = ("host", 9092)
FETCHED = data.FetchResponse(partitions=[data.FetchedPartition(topic="t")])


class Channels:
    """In the place of gRPC's: what a call raises, or the bytes that it answers."""

    tls = None

    def __init__(self, outcome: BaseException | bytes) -> None:
        self._outcome = outcome
        self.opened: list[str] = []
        self.timeouts: list[float] = []
        self.retained: list[str] = []

    def to(self, address: str) -> Any:
        self.opened.append(address)
        return self

    def unary_unary(self, path: str) -> Any:
        assert path == "/partition_controller.v1.BrokerData/Fetch"

        async def call(_request: bytes, timeout: float) -> bytes:
            self.timeouts.append(timeout)
            if isinstance(self._outcome, BaseException):
                raise self._outcome
            return self._outcome

        return call

    async def retain(self, addresses: Collection[str]) -> None:
        self.retained = sorted(addresses)

    async def close(self) -> None:
        pass


def peers_of(outcome: BaseException | bytes) -> tuple[Peers, Channels]:
    peers, channels = Peers(None), Channels(outcome)
    peers._channels = channels  # type: ignore[assignment]
    return peers, channels


async def test_an_answer_comes_in_time_or_not_at_all() -> None:
    peers, channels = peers_of(FETCHED.SerializeToString())
    assert await peers.fetch(ADDRESS, data.FetchRequest(), 3.0) == FETCHED
    assert (channels.opened, channels.timeouts) == (["host:9092"], [3.0])


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, None, None, "refused"), "UNAVAILABLE"),
        (b"\xff", "INTERNAL"),
        # Closing a connection cancels its calls: the caller lives on.
        (asyncio.CancelledError(), "CANCELLED"),
    ],
)
async def test_no_answer_is_one_kind_of_error(outcome: Any, status: str) -> None:
    peers, _ = peers_of(outcome)
    with pytest.raises(PeerUnavailable) as caught:
        await peers.fetch(ADDRESS, data.FetchRequest(), 3.0)
    assert (caught.value.status, caught.value.address, caught.value.method) == (status, ADDRESS, "Fetch")


async def test_a_caller_that_is_cancelled_ends() -> None:
    peers, channels = peers_of(b"")
    began = asyncio.Event()

    async def forever(_request: bytes, timeout: float) -> bytes:
        began.set()
        return await asyncio.Future()

    channels.unary_unary = lambda path: forever  # type: ignore[method-assign]
    task = asyncio.create_task(peers.fetch(ADDRESS, data.FetchRequest(), 3.0))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_who_stops_calls_nobody() -> None:
    peers, channels = peers_of(FETCHED.SerializeToString())
    await peers.close()
    with pytest.raises(PeerUnavailable, match="this broker is stopping"):
        await peers.fetch(ADDRESS, data.FetchRequest(), 3.0)
    assert channels.opened == []


async def test_channels_to_brokers_that_are_still_there_are_kept() -> None:
    peers, channels = peers_of(FETCHED.SerializeToString())
    for address in (ADDRESS, ("gone", 1)):
        await peers.fetch(address, data.FetchRequest(), 3.0)
    await peers.retain([ADDRESS, ("::1", 2)])
    assert channels.retained == ["[::1]:2", "host:9092"]
