"""``/admin/reassign_partitions`` on a real server: its watch, its version, and what tools write into it."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from controller.core import znode_paths
from controller.core.effects import (
    Committed,
    Problem,
    ReadReassignment,
    ReassignmentRequest,
    SetReassignment,
    Unconfirmed,
)
from controller.core.events import Event, EventKind
from controller.errors import FencedError
from controller.runtime.zookeeper.session import Session
from tests.runtime.zookeeper.test_store import StoreHarness
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

PATH = znode_paths.REASSIGN_PARTITIONS
WRITTEN = (
    b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[3,2],"log_dirs":["any","any"]}]}'
)


class ReassignmentStoreHarness(StoreHarness):
    async def listed(self) -> object:
        return await self.read(ReadReassignment())

    async def trim(self, entries: list[tuple[str, int, tuple[int, ...]]], version: int) -> object:
        return await self.commit(SetReassignment(entries, version))


@pytest.fixture
async def harness(session: Session) -> ReassignmentStoreHarness:
    return await ReassignmentStoreHarness(session).prepare()


async def test_it_is_watched_read_trimmed_and_deleted(
    harness: ReassignmentStoreHarness, zk: KazooClient
) -> None:
    assert await harness.listed() is None
    zk.create(PATH, WRITTEN)
    await until(lambda: harness.events == [Event(EventKind.REASSIGNMENT)], "the event of its creation")
    assert await harness.listed() == ReassignmentRequest((("t", 0, (3, 2)),), 0)
    assert await harness.trim([("t", 1, (1,))], 0) == Committed(1)
    await until(lambda: len(harness.events) == 2, "event 2")
    assert zk.get(PATH)[0] == b'{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[1]}]}'
    assert await harness.listed() == ReassignmentRequest((("t", 1, (1,)),), 1)
    assert await harness.trim([], 1) == Committed(1)
    await until(lambda: len(harness.events) == 3, "event 3")
    assert await harness.listed() is None
    zk.create(PATH, WRITTEN)
    await until(lambda: len(harness.events) == 4, "event 4")


@pytest.mark.parametrize("entries", [[], [("t", 0, (1,))]])
async def test_what_a_tool_wrote_meanwhile_stays(
    harness: ReassignmentStoreHarness, zk: KazooClient, entries: list[tuple[str, int, tuple[int, ...]]]
) -> None:
    zk.create(PATH, WRITTEN)
    zk.set(PATH, WRITTEN)
    assert isinstance(await harness.trim(entries, 0), Unconfirmed)
    assert zk.get(PATH)[0] == WRITTEN


async def test_a_former_controller_trims_nothing(harness: ReassignmentStoreHarness, zk: KazooClient) -> None:
    zk.create(PATH, WRITTEN)
    await harness.depose()
    with pytest.raises(FencedError):
        await harness.trim([], 0)
    assert zk.get(PATH)[0] == WRITTEN


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"not json", "malformed"),
        (b"", "is empty"),
        (b'{"version":1,"partitions":[{"topic":"t","partition":"x","replicas":[1]}]}', "partition"),
        (b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":["x"]}]}', "replicas"),
        (b'{"version":1}', "partitions"),
    ],
)
async def test_what_does_not_decode_is_named(
    harness: ReassignmentStoreHarness, zk: KazooClient, data: bytes, problem: str
) -> None:
    zk.create(PATH, data)
    found = await harness.listed()
    assert isinstance(found, Problem)
    assert found.path == PATH
    assert problem in found.problem


async def test_of_a_partition_listed_twice_the_last_entry_counts(
    harness: ReassignmentStoreHarness, zk: KazooClient
) -> None:
    entries = ",".join(f'{{"topic":"t","partition":0,"replicas":[{b}]}}' for b in (1, -2))
    zk.create(PATH, f'{{"partitions":[{entries}]}}'.encode())
    assert await harness.listed() == ReassignmentRequest((("t", 0, (-2,)),), 0)
