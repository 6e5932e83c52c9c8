"""What the broker asks of ZooKeeper, and in which order, at moments that a real server does not offer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooState

from broker_stub.control.gates import ControllerTerm
from broker_stub.zookeeper.client import ClusterStore
from broker_stub.zookeeper.codecs import PERSISTENT_PATHS
from tests.support.paths import DOCS


def test_what_brokers_make_before_they_register_is_what_kafka_s_make() -> None:
    line = next(
        line for line in (DOCS / "reference.md").read_text().splitlines() if "Brokers pre-create" in line
    )
    named = {*re.findall(r"`(/[^`]+)`", line)} - {"/config/<type>"}
    assert {*PERSISTENT_PATHS} == named | {
        f"/config/{kind}" for kind in ("topics", "clients", "users", "brokers", "ips")
    }


class Result:
    """A kazoo result that is there at once."""

    exception = None

    def __init__(self, value: Any) -> None:
        self.value = value

    def rawlink(self, done: Callable[[Result], None]) -> None:
        done(self)

    def successful(self) -> bool:
        return True


class Client:
    """Answers as a server does that has a ``/controller_epoch``; before each request ``meanwhile`` may change it."""

    state = KazooState.CONNECTED

    def __init__(self) -> None:
        self.listeners: list[Callable[[str], None]] = []
        self.asked: list[str] = []
        self.epoch, self.mzxid = 7, 70
        self.meanwhile: Callable[[int], None] = lambda _number: None

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.listeners.append(listener)

    def _ask(self, what: str) -> None:
        self.meanwhile(len(self.asked))
        self.asked.append(what)

    def sync_async(self, path: str) -> Result:
        self._ask(f"sync {path}")
        return Result(path)

    def get_async(self, path: str) -> Result:
        self._ask(f"get {path}")
        data = b'{"version":2,"brokerid":%d}' % self.epoch if path == "/controller" else b"%d" % self.epoch
        return Result((data, SimpleNamespace(version=0, mzxid=self.mzxid)))

    def exists_async(self, path: str) -> Result:
        self._ask(f"exists {path}")
        return Result(SimpleNamespace(mzxid=self.mzxid))


@pytest.fixture
async def store() -> AsyncIterator[ClusterStore]:
    made = ClusterStore(lambda _error: None, 30.0)
    yield made
    await made.close()


async def led(store: ClusterStore, client: Client) -> None:
    store.session(client)
    # Taken in one round of the loop, as the store is told from other threads.
    await asyncio.sleep(0)
    assert store._client is client
    await asyncio.wait_for(store._connected.wait(), 30)


async def test_who_leads_is_read_after_a_sync(store: ClusterStore) -> None:
    """The server of the connection may be behind; a broker would follow a controller that is deposed."""
    client = Client()
    await led(store, client)
    assert await store.controller_term(1) == ControllerTerm(1, 7, 70, 7)
    assert client.asked == [
        "sync /controller_epoch",
        "get /controller_epoch",
        "get /controller",
        "exists /controller_epoch",
    ]


@pytest.mark.parametrize("number", range(5))
async def test_epoch_and_controller_are_of_one_term(store: ClusterStore, number: int) -> None:
    """Whenever the next one is elected: here the controller of each epoch has its number as id."""
    client = Client()

    def elect(request: int) -> None:
        if request == number:
            client.epoch, client.mzxid = 8, 80

    client.meanwhile = elect
    await led(store, client)
    found = await store.controller_term(1)
    assert found in (ControllerTerm(1, 7, 70, 7), ControllerTerm(1, 8, 80, 8))


async def test_the_end_of_a_former_session_is_not_that_of_the_present_one(store: ClusterStore) -> None:
    former, present = Client(), Client()
    await led(store, former)
    store.session(None)
    await led(store, present)
    former.listeners[0](KazooState.LOST)
    assert (await store.controller_term(1)).controller_epoch == 7
    assert present.asked
