"""Controlled shutdown: requested until granted; a failure never prevents the stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_stub.rpc.peers import Peers
from broker_stub.shutdown import controlled_shutdown
from broker_stub.zookeeper.client import StoreUnavailable
from broker_stub.zookeeper.codecs import MalformedZnode
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as wire
from tests.support.broker.fake_peer import FakePeer, always, hang

LET_GO = wire.ControlledShutdownResponse()
REFUSED = wire.ControlledShutdownResponse(error_code=codes.STALE_CONTROLLER_EPOCH)
LEADING = wire.ControlledShutdownResponse(
    remaining_partitions=[wire.RemainingPartition(topic="foo", partition=n) for n in range(12)]
)
Found = tuple[str, int] | Exception | None


class Finder:
    """What looking for the controller brings, one time after the other; the last for ever."""

    def __init__(self, *found: Found) -> None:
        self.found: Sequence[Found] = found
        self.asked = 0

    async def controller_endpoint(self) -> tuple[str, int] | None:
        found = self.found[min(self.asked, len(self.found) - 1)]
        self.asked += 1
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
async def controller() -> AsyncIterator[FakePeer]:
    async with FakePeer(always(LET_GO)) as peer:
        yield peer


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    peers = Peers(None)
    yield peers
    await peers.close()


async def shut_down(peers: Peers, finder: Finder, **more: Any) -> tuple[bool, list[str]]:
    """The outcome and what was logged of it. Broker 2, three attempts without a pause."""
    arguments: dict[str, Any] = {
        "broker_epoch": lambda: 41,
        "max_retries": 3,
        "backoff_ms": 0,
        "timeout_s": 60.0,
        "stop_now": asyncio.Event(),
        **more,
    }
    with capture_logs() as logs:
        done = await controlled_shutdown(peers, finder, 2, **arguments)
    return done, [f"{line['event']} {line.get('why', '')}" for line in logs]


def answers(*messages: Any) -> Any:
    """One after the other, the last for ever."""
    left = list(messages)

    async def answer(_method: str, _request: Any) -> Any:
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


async def test_let_go_at_once(peers: Peers, controller: FakePeer) -> None:
    done, logs = await shut_down(peers, Finder(controller.address))
    assert done is True
    assert controller.received == [
        ("ControlledShutdown", wire.ControlledShutdownRequest(broker_id=2, broker_epoch=41))
    ]
    assert len(logs) == 1
    assert "this broker leads no partition" in logs[0]


@pytest.mark.parametrize("first", [LEADING, REFUSED, b"\xff"])
async def test_who_is_not_let_go_at_first_asks_again(peers: Peers, controller: FakePeer, first: Any) -> None:
    controller.answer = answers(first, LET_GO)
    finder = Finder(controller.address)
    epochs = iter([41, 42])
    done, _ = await shut_down(peers, finder, broker_epoch=lambda: next(epochs))
    assert done is True
    assert finder.asked == 2
    assert [request.broker_epoch for _, request in controller.received] == [41, 42]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (LEADING, "still leader of 12 partitions: foo-0, foo-1, "),
        (LEADING, "foo-9 and 2 more"),
        (REFUSED, "responded with STALE_CONTROLLER_EPOCH"),
        (
            wire.ControlledShutdownResponse(error_code=codes.STALE_BROKER_EPOCH),
            "responded with STALE_BROKER_EPOCH",
        ),
        (b"\xff", "unreadable response"),
    ],
)
async def test_never_let_go(peers: Peers, controller: FakePeer, answer: Any, words: str) -> None:
    controller.answer = always(answer)
    done, logs = await shut_down(peers, Finder(controller.address))
    assert done is False
    assert len(controller.received) == 3
    assert len(logs) == 4
    assert all(words in line for line in logs[:3])
    assert "given up" in logs[3]


async def test_the_controller_comes_back_elsewhere(peers: Peers, controller: FakePeer) -> None:
    malformed = MalformedZnode("/controller", "endpoint = '': must be HOST:PORT")
    done, logs = await shut_down(peers, Finder(None, malformed, controller.address))
    assert done is True
    assert "there is no active controller" in logs[0]
    assert "/controller: endpoint = ''" in logs[1]


async def test_without_zookeeper_it_goes(peers: Peers) -> None:
    finder = Finder(StoreUnavailable("no ZooKeeper session"))
    done, logs = await shut_down(peers, finder)
    assert done is False
    assert finder.asked == 1
    assert logs == [
        "controlled shutdown impossible: the controller cannot be found no ZooKeeper session",
    ]


async def test_a_controller_that_hangs_is_not_waited_for(peers: Peers, controller: FakePeer) -> None:
    controller.answer = hang
    done, logs = await shut_down(peers, Finder(controller.address), timeout_s=0.2)
    assert done is False
    assert "not done within 0.2 s" in logs[-1]


async def test_told_to_stop_at_once(peers: Peers, controller: FakePeer) -> None:
    stop_now = asyncio.Event()
    controller.answer = hang
    ending = asyncio.create_task(shut_down(peers, Finder(controller.address), stop_now=stop_now))
    await controller.arrived.wait()
    stop_now.set()
    done, logs = await ending
    assert done is False
    assert "told to stop at once" in logs[-1]


async def test_told_to_stop_at_once_in_a_pause(peers: Peers, controller: FakePeer) -> None:
    stop_now = asyncio.Event()

    async def refuse(_method: str, _request: Any) -> Any:
        stop_now.set()
        return REFUSED

    controller.answer = refuse
    done, _ = await shut_down(peers, Finder(controller.address), stop_now=stop_now, backoff_ms=3_600_000)
    assert done is False
    assert len(controller.received) == 1


async def test_no_pause_after_the_last_attempt(peers: Peers, controller: FakePeer) -> None:
    controller.answer = always(REFUSED)
    finder = Finder(controller.address)
    _, logs = await shut_down(peers, finder, max_retries=1, backoff_ms=3_600_000, timeout_s=20.0)
    assert "not done within" not in logs[-1]


async def test_a_shutdown_can_be_cancelled_while_the_controller_is_asked(
    peers: Peers, controller: FakePeer
) -> None:
    controller.answer = hang
    ending = asyncio.create_task(shut_down(peers, Finder(controller.address)))
    await controller.arrived.wait()
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending


async def test_a_bug_is_not_hidden(peers: Peers) -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        await shut_down(peers, Finder(RuntimeError("a bug")))
