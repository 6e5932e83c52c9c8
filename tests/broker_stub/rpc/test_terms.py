"""Looks at who the controller is, shared by the requests that wait for one."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from broker_stub.control.gates import ControllerTerm
from broker_stub.errors import BrokerError
from broker_stub.rpc import terms as module
from broker_stub.rpc.terms import Terms, TermUnavailable
from tests.provers.sim.environment import loop


class ZooKeeper:
    """Each look waits for ``release``; it finds the epoch that stood when it began."""

    def __init__(self) -> None:
        self.epoch, self.looks = 1, 0
        self.release = asyncio.Event()
        self.away = False

    async def read(self, look: int) -> ControllerTerm:
        self.looks += 1
        epoch = self.epoch
        await self.release.wait()
        if self.away:
            raise BrokerError("away")
        return ControllerTerm(look, epoch, epoch, 1)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_who_asks_during_a_look_gets_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The running one may have passed /controller_epoch before it was written."""
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    zookeeper = ZooKeeper()
    terms = Terms(zookeeper.read)
    first = [asyncio.create_task(terms.look()) for _ in range(3)]
    await turns()
    zookeeper.epoch = 2
    later = [asyncio.create_task(terms.look()) for _ in range(30)]
    await turns()
    assert zookeeper.looks == 1
    zookeeper.release.set()
    assert [term.controller_epoch for term in await asyncio.gather(*first, *later)] == [1] * 3 + [2] * 30
    assert zookeeper.looks == 2


async def test_a_failed_look_fails_all_who_wait_and_not_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    zookeeper = ZooKeeper()
    zookeeper.away = True
    zookeeper.release.set()
    terms = Terms(zookeeper.read)
    found = await asyncio.gather(*(terms.look() for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in found] == [TermUnavailable] * 3
    assert zookeeper.looks == 1
    zookeeper.away = False
    assert (await terms.look()).look == 2


def test_looks_are_a_pause_apart() -> None:
    """However many requests name a made-up epoch, ZooKeeper is asked only so often."""
    began: list[float] = []

    async def read(look: int) -> ControllerTerm:
        began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.25)
        return ControllerTerm(look, 1, 1, 1)

    async def run() -> None:
        terms = Terms(read)
        for _ in range(3):
            await terms.look()

    loop.run(run())
    assert [later - earlier for earlier, later in pairwise(began)] == pytest.approx(
        [0.25 + module.PAUSE_S] * 2
    )


async def test_few_wait() -> None:
    zookeeper = ZooKeeper()
    terms = Terms(zookeeper.read)
    waiting = [asyncio.create_task(terms.look()) for _ in range(module.WAITING_MAX)]
    await turns()
    with pytest.raises(TermUnavailable, match="100 requests wait"):
        await terms.look()
    zookeeper.release.set()
    await asyncio.gather(*waiting)
    assert (await terms.look()).controller_epoch == 1
