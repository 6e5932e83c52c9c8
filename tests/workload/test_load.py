"""A whole workload on brokers in memory: what is written, what is read of it, and how it ends."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker_stub.client.errors import ClientError, FatalError
from broker_stub.client.producer import Producer
from broker_stub.log import batches
from controller.workload import load as loading
from controller.workload import readers as reading
from controller.workload.history import History, HistoryFile, load, value_of
from controller.workload.load import Load, run
from controller.workload.readers import Reader
from controller.workload.writers import Progress, Writer
from proto.gen import common_pb2 as codes
from tests.support.broker.fake_cluster import TOPIC, FakeCluster, Fault
from tests.support.runtime.sessions import until


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster(partitions=3)
    for module in (loading, reading):
        monkeypatch.setattr(module, "Connections", lambda _: made)
    return made


def fill(cluster: FakeCluster, count: int) -> None:
    """One batch in partition 0."""
    partition = cluster.partitions[TOPIC, 0]
    records = [(None, value_of(4, n, 20)) for n in range(count)]
    partition.log.append_as_leader(batches.encode(records, 1000, partition.log.log_end_offset), 0)


def recorded(plan: Load) -> History:
    """What is in the file so far."""
    return load(plan.history) if plan.history.exists() else History()


async def test_all_that_is_acknowledged_is_read_and_who_goes_on_takes_other_numbers(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    plan = Load(tuple(cluster.bootstrap), TOPIC, tmp_path / "history", 2, 2, 500.0, 40)
    before: set[int] = set()
    for round_ in range(2):
        stop = asyncio.Event()
        told: list[Progress] = []
        running = asyncio.create_task(run(plan, stop, told.append))

        def has_read(new: int = round_) -> bool:
            return any(read.reader == 2 * new and read.writer >= 2 * new for read in recorded(plan).reads)

        await until(has_read, "what was written is read")
        stop.set()
        progress, history = await running, load(plan.history)
        sent = {(write.writer, write.sequence) for write in history.writes}
        assert all(write.offset is not None for write in history.writes)
        assert {write.writer for write in history.writes} == set(range(2 * round_ + 2))
        for reader in (2 * round_, 2 * round_ + 1):
            assert {(r.writer, r.sequence) for r in history.reads if r.reader == reader} == sent
        assert progress.begun == progress.acknowledged == len(history.writes) - len(before)
        before = {*range(len(history.writes))}


async def test_readers_alone_read_until_they_are_stopped(cluster: FakeCluster, tmp_path: Path) -> None:
    plan = Load(tuple(cluster.bootstrap), TOPIC, tmp_path / "history", 0, 1)
    stop = asyncio.Event()
    running = asyncio.create_task(run(plan, stop))
    fill(cluster, 1)
    await until(lambda: len(recorded(plan).reads) == 1, "the first")
    fill(cluster, 1)
    await until(lambda: len(recorded(plan).reads) == 2, "the second")
    assert not running.done()
    stop.set()
    assert (await running).read == 2


async def test_readers_read_what_was_answered_after_the_stop(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one write is on its way when the load is told to stop, and readers find nothing more before its answer."""
    monkeypatch.setattr(reading, "POLL_MS", 1)
    plan = Load(tuple(cluster.bootstrap), TOPIC, tmp_path / "history", 1, 1, 1e-3)
    stop, goes_on = asyncio.Event(), asyncio.Event()
    call = cluster.call

    async def slow(address: str, method: str, *rest: Any) -> Any:
        if method == "Produce":
            stop.set()
            await goes_on.wait()
        return await call(address, method, *rest)

    monkeypatch.setattr(cluster, "call", slow)
    running = asyncio.create_task(run(plan, stop))
    await stop.wait()
    polls = len(cluster.asked("Fetch"))
    await until(lambda: len(cluster.asked("Fetch")) > polls + 3, "readers go on")
    goes_on.set()
    assert (await running).acknowledged == 1
    assert [read.sequence for read in load(plan.history).reads] == [0]


async def test_writers_share_the_rate_and_producers_are_as_asked_for(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []
    producers: list[tuple[Any, ...]] = []

    class Sharing(Writer):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            shares.append(self._rate)

    class Told(Producer):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            producers.append((given[1], more["request_timeout_ms"], more["delivery_timeout_ms"]))

    monkeypatch.setattr(loading, "Writer", Sharing)
    monkeypatch.setattr(loading, "Producer", Told)
    stop = asyncio.Event()
    stop.set()
    bootstrap = tuple(cluster.bootstrap)
    await run(Load(bootstrap, TOPIC, tmp_path / "history", 2, 0, 100.0, 10, 1, 700, 9000), stop)
    assert shares == [50.0, 50.0]
    assert producers == [(1, 700, 9000)] * 2


@pytest.mark.parametrize(("writers", "readers"), [(1, 0), (0, 1), (2, 2)])
async def test_a_topic_that_is_not_there_ends_the_load_with_its_error(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writers: int, readers: int
) -> None:
    async def nowhere(self: Any, topic: str, timeout_s: float) -> list[int]:
        del self, timeout_s
        raise FatalError(codes.UNKNOWN_TOPIC_OR_PARTITION, f"metadata of {topic}")

    monkeypatch.setattr("broker_stub.client.metadata.Metadata.partitions_of", nowhere)
    with pytest.raises(ClientError, match="absent"):
        await run(
            Load(tuple(cluster.bootstrap), "absent", tmp_path / "history", writers, readers), asyncio.Event()
        )


async def test_a_reader_goes_to_the_end_and_says_under_which_high_watermark(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """Though it is told to stop before its first poll, which fails."""
    fill(cluster, 3)
    fill(cluster, 2)
    cluster.partitions[TOPIC, 0].water = 5
    cluster.fail("Fetch", Fault(codes.INVALID_REQUEST))
    stop, progress = asyncio.Event(), Progress()
    stop.set()
    path = tmp_path / "history"
    with closing(HistoryFile(path)) as file:
        await Reader(6, cluster.bootstrap, file, progress, TOPIC, None).run(stop, 30)
    history = load(path)
    assert [(r.reader, r.offset, r.writer, r.sequence, r.high_watermark) for r in history.reads] == [
        (6, n, 4, n if n < 3 else n - 3, 5) for n in range(5)
    ]
    assert progress.read == 5
    assert any(note.text.startswith("reader 6: ") for note in history.notes), "what it was told of errors"
