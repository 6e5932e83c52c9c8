"""Calls to peers: what goes over the wire, and every way in which no answer comes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from broker_stub.rpc.peers import Peers, PeerUnavailable
from proto.gen import broker_data_pb2 as data
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as control
from proto.limits import MESSAGE_BYTES_MAX
from tests.support.broker.fake_peer import FakePeer, always, hang

pytestmark = pytest.mark.slow

#: Long enough never to be what ends a call.
LONG_S = 60.0
FETCHED = data.FetchResponse(partitions=[data.FetchedPartition(topic="foo", records=b"x")])


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    made = Peers(None)
    yield made
    await made.close()


@pytest.fixture
async def peer() -> AsyncIterator[FakePeer]:
    async with FakePeer(always(FETCHED)) as started:
        yield started


async def test_each_method_goes_to_its_service(peers: Peers, peer: FakePeer) -> None:
    epochs = data.OffsetsForLeaderEpochResponse(partitions=[data.OffsetForLeaderEpoch(end_offset=7)])
    altered = control.AlterPartitionResponse(error_code=codes.STALE_BROKER_EPOCH)
    shutdown = control.ControlledShutdownResponse(error_code=codes.NOT_CONTROLLER)
    answers: dict[str, Any] = {
        "Fetch": FETCHED,
        "OffsetsForLeaderEpoch": epochs,
        "AlterPartition": altered,
        "ControlledShutdown": shutdown,
    }

    async def answer(method: str, _request: Any) -> Any:
        return answers[method]

    peer.answer = answer
    requests: dict[str, Any] = {
        "Fetch": data.FetchRequest(replica_id=2, max_wait_ms=5),
        "OffsetsForLeaderEpoch": data.OffsetsForLeaderEpochRequest(replica_id=2),
        "AlterPartition": control.AlterPartitionRequest(broker_id=2),
        "ControlledShutdown": control.ControlledShutdownRequest(broker_id=2),
    }
    at = peer.address
    assert await peers.fetch(at, requests["Fetch"], LONG_S) == FETCHED
    assert await peers.offsets_for_leader_epoch(at, requests["OffsetsForLeaderEpoch"], LONG_S) == epochs
    assert await peers.alter_partition(at, requests["AlterPartition"], LONG_S) == altered
    assert await peers.controlled_shutdown(at, requests["ControlledShutdown"], LONG_S) == shutdown
    assert peer.received == list(requests.items())
    assert len(peer.connections) == 1


async def test_nobody_listens(peers: Peers) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(PeerUnavailable) as caught:
            await peers.fetch(("127.0.0.1", port), data.FetchRequest(), LONG_S)
    assert caught.value.status == "UNAVAILABLE"
    assert str(caught.value).startswith(f"Fetch to 127.0.0.1:{port}: UNAVAILABLE: ")
    assert "refused" in str(caught.value)


async def test_no_answer_in_time(peers: Peers, peer: FakePeer) -> None:
    peer.answer = hang
    with pytest.raises(PeerUnavailable, match="DEADLINE_EXCEEDED") as caught:
        await peers.fetch(peer.address, data.FetchRequest(), 0.2)
    assert caught.value.address == peer.address


async def test_the_peer_dies_in_mid_call_and_comes_back(peers: Peers, peer: FakePeer) -> None:
    peer.answer = hang
    call = asyncio.create_task(peers.fetch(peer.address, data.FetchRequest(), LONG_S))
    await peer.arrived.wait()
    await peer.stop()
    with pytest.raises(PeerUnavailable) as caught:
        await call
    assert caught.value.status in ("UNAVAILABLE", "CANCELLED", "UNKNOWN")
    peer.answer = always(FETCHED)
    await peer.start()
    while True:
        try:
            assert await peers.fetch(peer.address, data.FetchRequest(), LONG_S) == FETCHED
            break
        except PeerUnavailable:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (b"\xff\xff\xff", "INTERNAL", "unreadable response"),
        ((grpc.StatusCode.UNIMPLEMENTED, "never heard of it"), "UNIMPLEMENTED", "never heard of it"),
        ((grpc.StatusCode.INTERNAL, ""), "INTERNAL", "no details"),
        (bytes(MESSAGE_BYTES_MAX + 1), "RESOURCE_EXHAUSTED", "larger than max"),
    ],
)
async def test_an_answer_that_is_none(
    peers: Peers, peer: FakePeer, answer: Any, status: str, words: str
) -> None:
    peer.answer = always(answer)
    with pytest.raises(PeerUnavailable, match=words) as caught:
        await peers.fetch(peer.address, data.FetchRequest(), LONG_S)
    assert (caught.value.status, caught.value.method) == (status, "Fetch")


async def test_a_large_answer_arrives(peers: Peers, peer: FakePeer) -> None:
    records = bytes(MESSAGE_BYTES_MAX - 1000)
    peer.answer = always(data.FetchResponse(partitions=[data.FetchedPartition(records=records)]))
    response = await peers.fetch(peer.address, data.FetchRequest(), LONG_S)
    assert len(response.partitions[0].records) == len(records)


async def test_a_request_too_large_is_refused_here(peers: Peers, peer: FakePeer) -> None:
    states = [control.AlterPartitionState(topic="x" * (MESSAGE_BYTES_MAX + 1))]
    with pytest.raises(PeerUnavailable, match="RESOURCE_EXHAUSTED"):
        await peers.alter_partition(peer.address, control.AlterPartitionRequest(partitions=states), LONG_S)
    assert peer.received == []


async def test_a_channel_given_up_ends_its_calls_but_not_their_callers(peers: Peers, peer: FakePeer) -> None:
    async with FakePeer(always(FETCHED)) as other:
        await peers.fetch(other.address, data.FetchRequest(), LONG_S)
        peer.answer = hang
        call = asyncio.create_task(peers.fetch(peer.address, data.FetchRequest(), LONG_S))
        await peer.arrived.wait()
        assert peers.addresses == {peer.address, other.address}
        await peers.retain([other.address, ("127.0.0.1", 1)])
        assert peers.addresses == {other.address}
        with pytest.raises(PeerUnavailable, match="CANCELLED: the connection was closed"):
            await call
        await peers.fetch(other.address, data.FetchRequest(), LONG_S)
        assert len(other.connections) == 1
    peer.answer = always(FETCHED)
    assert await peers.fetch(peer.address, data.FetchRequest(), LONG_S) == FETCHED
    assert len(peer.connections) == 2


async def test_a_cancelled_caller_stays_cancelled(peers: Peers, peer: FakePeer) -> None:
    peer.answer = hang
    call = asyncio.create_task(peers.fetch(peer.address, data.FetchRequest(), LONG_S))
    await peer.arrived.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await peers.fetch(peer.address, data.FetchRequest(), LONG_S)


async def test_no_calls_after_the_end(peer: FakePeer) -> None:
    peers = Peers(None)
    await peers.fetch(peer.address, data.FetchRequest(), LONG_S)
    await peers.close()
    with pytest.raises(PeerUnavailable, match="stopping"):
        await peers.fetch(peer.address, data.FetchRequest(), LONG_S)
    assert peers.addresses == frozenset()
