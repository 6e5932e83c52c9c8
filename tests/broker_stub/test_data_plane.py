"""The data plane: its background tasks, what it makes of metadata, and what it tells of the disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_stub import settings
from broker_stub.control.replicas import Replicas, Transition
from broker_stub.control.requests import Key, StopReplica
from broker_stub.data_dirs import DataDirs
from broker_stub.data_plane import DataPlane
from broker_stub.log.directories import LogDirectories
from broker_stub.log.interface import LogConfig
from broker_stub.zookeeper.isr_writers import AlterPartitionWriter, NotificationWriter
from tests.support.broker.builders import BrokerHarness, metadata_state
from tests.support.broker.replication_fakes import batch, fetch_request, leaping, order, run_ready_tasks


async def test_a_checkpoint_under_way_is_ended_before_the_logs_are_closed() -> None:
    """Closing writes the same files: a thread left behind would write into them at the same time."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def checkpoint(*_: object) -> None:
        begun.set()
        may_end.wait(30)
        ended.set()

    plane = SimpleNamespace(
        _logs=SimpleNamespace(own=lambda *_: {}), manager=SimpleNamespace(high_watermarks=dict)
    )
    directory = SimpleNamespace(checkpoint=checkpoint)
    writing = asyncio.create_task(DataPlane._checkpoint(plane, directory, {}))  # type: ignore[arg-type]
    await asyncio.to_thread(begun.wait, 30)
    writing.cancel()
    await asyncio.sleep(0.05)
    assert not writing.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert ended.is_set()


class Peers:
    """Which addresses have a connection, and which calls to keep only some."""

    def __init__(self, *addresses: tuple[str, int]) -> None:
        self.addresses = frozenset(addresses)
        self.retained: list[frozenset[tuple[str, int]]] = []

    async def retain(self, addresses: frozenset[tuple[str, int]]) -> None:
        self.retained.append(addresses)


class Store:
    """ZooKeeper: all topics have this configuration, the offsets topic one partition."""

    def __init__(self) -> None:
        self.of_topics: dict[str, str] = {}

    async def topic_config(self, _topic: str) -> dict[str, str]:
        return dict(self.of_topics)

    async def create_topic(self, *_: object) -> None:
        raise AssertionError

    async def broker_config(self, _name: str) -> dict[str, str]:
        return {}

    async def partition_count(self, _topic: str) -> int:
        return 1

    def watch_config_changes(self, _changed: object) -> None:
        """Nothing changes."""


@asynccontextmanager
async def data_plane(directory: Path, **given: str) -> AsyncIterator[tuple[DataPlane, BrokerHarness]]:
    """That of broker 0 on a real directory."""
    required = {"broker_id": "0", "zookeeper": "h:1", "listen": "h:1", "data_dir": str(directory)}
    harness, dirs = BrokerHarness(), DataDirs([directory], 0)
    logs = LogDirectories([directory], LogConfig(message_max_bytes=10_000), dirs.path_of)
    bugs: list[BaseException] = []
    plane = DataPlane(
        settings.load({**required, **given}, {}),
        logs,
        dirs,
        harness.handlers,
        Store(),  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        bugs.append,
        None,
    )
    plane.start()
    try:
        yield plane, harness
    finally:
        await plane.stop()
        plane.close_logs()
    assert not bugs


def led(plane: DataPlane, isr: tuple[int, ...]) -> list[Transition]:
    """As LeaderAndIsr makes broker 0 the leader of ``foo-3``; its folder is there."""
    replicas = Replicas(0)
    plan = replicas.plan_leader_and_isr([order(0, 1, isr)], lambda _: True)
    assert not plane._data_dirs.apply(plan.steps).failed
    return replicas.complete(plan, {}).transitions


@leaping
async def test_checkpoints_are_written_at_their_interval_once_the_roles_are_known(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with data_plane(tmp_path) as (plane, _):
        times: list[float] = []

        async def checkpoint(*_: object) -> None:
            times.append(loop.time())

        plane._checkpoint = checkpoint  # type: ignore[method-assign, assignment]
        roles = led(plane, (0,))
        await plane.apply("StopReplica", [])
        await plane.apply("UpdateMetadata", roles)
        await asyncio.sleep(20.0)
        assert not times
        apply = plane.manager.apply

        async def slowly(transitions: Sequence[Transition]) -> dict[Key, str]:
            await asyncio.sleep(20.0)
            return await apply(transitions)

        plane.manager.apply = slowly  # type: ignore[method-assign]
        await plane.apply("LeaderAndIsr", roles)
        assert not times, "some high watermarks were not taken up yet"
        await asyncio.sleep(15.5)
        assert times == pytest.approx([45.0, 50.0, 55.0])


@leaping
async def test_logs_are_flushed_at_their_interval(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with data_plane(tmp_path, log_flush_interval_ms="200") as (plane, _):
        times: list[float] = []
        plane._logs.flush = lambda: times.append(loop.time()) or {}  # type: ignore[func-returns-value, method-assign]
        await asyncio.sleep(0.7)
    assert times == pytest.approx([0.2, 0.4, 0.6])


@leaping
async def test_a_leader_whose_records_are_not_committed_yet_lags_behind_nobody(tmp_path: Path) -> None:
    async with data_plane(tmp_path) as (plane, _):
        await plane.apply("LeaderAndIsr", led(plane, (0, 1)))
        plane.manager.append(plane.manager.require("foo", 3), batch("a", "b"), 1)
        (found,) = await plane.on_disk([])
        assert (found.topic, found.partition, found.offset_lag) == ("foo", 3, 0)
        assert found.size_bytes == len(batch("a", "b"))
        assert await plane.on_disk(["bar"]) == []


@leaping
async def test_calls_end_to_brokers_that_go_and_to_no_one_else(tmp_path: Path) -> None:
    async with data_plane(tmp_path) as (plane, harness):
        controller = ("controller", 1)
        peers = Peers(("h", 9001), ("h", 9002), controller)
        plane.peers = peers  # type: ignore[assignment]
        for live in ([0, 1, 2], [0, 1, 2], [0, 2]):
            harness.update(brokers=live)
            plane.metadata_changed([])
            await run_ready_tasks()
        assert peers.retained == [{("h", 9002), controller}]
        plane.peers = SimpleNamespace(close=lambda: asyncio.sleep(0))  # type: ignore[assignment]


@leaping
async def test_the_offsets_topic_is_forgotten_when_it_goes_and_looked_up_when_it_comes(
    tmp_path: Path,
) -> None:
    async with data_plane(tmp_path) as (plane, harness):
        coordinator = plane.coordinator
        harness.update(metadata_state("__consumer_offsets", 0))
        plane.metadata_changed([])
        await run_ready_tasks()
        assert coordinator.partition_of("test") == 0
        harness.update(metadata_state("__consumer_offsets", 0, leader=-2))
        plane.metadata_changed([("foo", 0)])
        assert coordinator.partition_of("test") == 0
        plane.metadata_changed([("foo", 0), ("__consumer_offsets", 0)])
        assert coordinator.partition_of("test") == 48, "of as many as it would be made with"


@leaping
async def test_the_next_offsets_topic_has_a_coordinator_whose_leader_epochs_begin_anew(
    tmp_path: Path,
) -> None:
    key = ("__consumer_offsets", 0)
    async with data_plane(tmp_path) as (plane, _):
        replicas = Replicas(0)
        for leader_epoch in (5, 0):
            plan = replicas.plan_leader_and_isr([order(0, leader_epoch, (0,), key=key)], lambda _: True)
            assert not plane._data_dirs.apply(plan.steps).failed
            await plane.apply("LeaderAndIsr", replicas.complete(plan, {}).transitions)
            await run_ready_tasks()
            assert plane.coordinator.describe()["owned"] == [0]
            deletion = replicas.plan_stop_replica([StopReplica(key, -2, True)])
            await plane.apply("StopReplica", replicas.complete(deletion, {}).transitions)
            assert not plane._data_dirs.apply(deletion.steps).failed
            await run_ready_tasks()
            assert plane.coordinator.describe()["owned"] == []


@leaping
async def test_settings_that_were_read_before_a_topic_is_hosted_may_be_those_of_a_former_one(
    tmp_path: Path,
) -> None:
    """A throttled follower asks for what was deleted here just before: is that throttled, too?"""
    async with data_plane(tmp_path) as (plane, _):
        store: Any = plane._store
        store.of_topics = {"min.insync.replicas": "1"}
        plane._quotas.leader.rate_max = 1
        await plane.service.fetch(fetch_request(0, replica=1))
        await run_ready_tasks()
        store.of_topics = {"min.insync.replicas": "2"}
        await plane.apply("LeaderAndIsr", led(plane, (0,)))
        await run_ready_tasks()
        assert plane.manager.require("foo", 3).min_isr == 2


async def test_who_writes_changes_of_an_isr_depends_on_the_release(tmp_path: Path) -> None:
    for release, writer in (("2.6", NotificationWriter), ("2.7", AlterPartitionWriter)):
        (tmp_path / release).mkdir()
        async with data_plane(tmp_path / release, inter_broker_protocol_version=release) as (plane, _):
            assert type(plane._isr_writer) is writer


async def test_of_partitions_that_go_groups_forget_what_they_know(tmp_path: Path) -> None:
    async with data_plane(tmp_path) as (plane, _):
        forgotten: list[Any] = []
        plane.coordinator.forget_partitions = forgotten.append  # type: ignore[method-assign, assignment]
        plane.metadata_changed([])
        plane.metadata_changed([("foo", 3)])
        assert forgotten == [[("foo", 3)]]


async def test_sizes_are_told_of_the_topics_that_were_asked_for(tmp_path: Path) -> None:
    async with data_plane(tmp_path) as (plane, _):
        await plane.apply("LeaderAndIsr", led(plane, (0, 1)))
        assert [[r.topic for r in await plane.on_disk(topics)] for topics in ([], ["foo"], ["bar"])] == [
            ["foo"],
            ["foo"],
            [],
        ]


class Looked:
    """A directory at which checkpoints look: what is lost, what fails, which folders are missing."""

    def __init__(self, name: str, missing: Sequence[Key] = ()) -> None:
        self.path, self._missing = Path(name), missing

    def recovery_points(self) -> dict[Key, int]:
        return {}

    def missing(self) -> Sequence[Key]:
        return self._missing


@leaping
async def test_what_is_wrong_with_one_directory_is_found_and_leaves_the_others_alone(tmp_path: Path) -> None:
    async with data_plane(tmp_path) as (plane, _):
        await plane.apply("LeaderAndIsr", led(plane, (0, 1)))
        happened: list[Any] = []
        given = [Looked("lost"), Looked("fails"), Looked("fine", [("foo", 3), ("former", 0)])]
        made = plane._logs.working

        async def checkpoint(directory: Looked, _: object) -> None:
            if directory.path.name == "fails":
                raise OSError("no space")
            happened.append(directory.path.name)

        plane._logs.working = lambda: given  # type: ignore[method-assign, return-value, assignment]
        plane._data_dirs.lost = lambda path: "gone" if path.name == "lost" else ""  # type: ignore[method-assign]
        plane._checkpoint = checkpoint  # type: ignore[method-assign, assignment]
        plane._directory_failed = lambda path, why: happened.append(f"{path} failed")  # type: ignore[method-assign]
        plane._failed = lambda keys, why: happened.append(keys)  # type: ignore[method-assign]
        plane.manager.take_offline = lambda key: happened.append(key)  # type: ignore[method-assign]
        await asyncio.sleep(5.5)
        plane._logs.working = made  # type: ignore[method-assign]
        assert happened == ["lost failed", "fails failed", "fine", ("foo", 3), [("foo", 3)]]


@leaping
async def test_a_log_that_cannot_be_flushed_fails(tmp_path: Path) -> None:
    async with data_plane(tmp_path, log_flush_interval_ms="200") as (plane, _):
        failed: list[Any] = []
        plane._logs.flush = lambda: {("foo", 3): "no space"}  # type: ignore[method-assign]
        plane.manager.fail = lambda *what: failed.append(what)  # type: ignore[method-assign]
        await asyncio.sleep(0.3)
        plane._logs.flush = dict  # type: ignore[method-assign]
    assert failed == [(("foo", 3), "no space")]


async def test_replicas_of_a_directory_that_failed_go_offline_and_it_is_not_left_cleanly(
    tmp_path: Path,
) -> None:
    async with data_plane(tmp_path) as (plane, _):
        await plane.apply("LeaderAndIsr", led(plane, (0, 1)))
        offline: list[Key] = []
        plane.manager.take_offline = offline.append  # type: ignore[method-assign, assignment]
        plane._drop(tmp_path)
        assert offline == [("foo", 3)]
    assert plane.close_logs() == {}


async def test_a_directory_that_has_failed_is_not_closed_as_if_all_were_on_the_disk(tmp_path: Path) -> None:
    async with data_plane(tmp_path) as (plane, _):
        plane._data_dirs.failed[tmp_path] = "no space"
        assert plane.close_logs() == {}
