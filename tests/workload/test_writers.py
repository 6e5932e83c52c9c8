"""What a writer stores of its sends, and how it ends while they are stuck."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

from broker_stub.client.errors import DeliveryError
from broker_stub.client.producer import Delivery, Producer
from controller.workload.history import Begun, HistoryFile, Tail, load
from controller.workload.writers import OUTSTANDING_MAX, Progress, Writer
from tests.support.runtime.sessions import until


async def test_it_ends_when_told_though_there_is_no_room(tmp_path: Path) -> None:
    class Stuck(Producer):
        async def deliver(self, *_: object, **__: object) -> object:  # type: ignore[override]
            return await asyncio.Event().wait()

    progress, stop = Progress(), asyncio.Event()
    with closing(HistoryFile(tmp_path / "history.jsonl")) as history:
        writer = Writer(0, Stuck(["127.0.0.1:1"]), history, progress, "t", 1e6, 1)
        writing = asyncio.create_task(writer._write([0], stop))
        await until(lambda: progress.begun == OUTSTANDING_MAX, "no room")
        await asyncio.sleep(0.01)
        assert not writing.done()
        stop.set()
        await writing
        assert progress.begun == OUTSTANDING_MAX
        for send in writer._outstanding:
            send.cancel()
        await asyncio.gather(*writer._outstanding, return_exceptions=True)


async def test_each_send_is_in_the_history_before_it_leaves_and_gives_its_slot_back(tmp_path: Path) -> None:
    """Two of three sends are given up: the second request of such a one may have landed."""
    path = tmp_path / "history.jsonl"
    sends = 2 * OUTSTANDING_MAX
    seen: dict[int, int] = {}
    tail = Tail(path)

    class Lossy(Producer):
        async def deliver(self, topic: str, partition: int, *_: object, **__: object) -> Delivery:
            begun = tail.new_lines()[-1]
            assert isinstance(begun, Begun)
            assert (begun.topic, begun.partition) == (topic, partition)
            seen[begun.sequence] = partition
            if begun.sequence + 1 >= sends:
                stop.set()
            if begun.sequence % 3 != 1:
                raise DeliveryError(7, "REQUEST_TIMED_OUT", "gone", attempts=2)
            return Delivery(begun.sequence, 1)

    progress, stop = Progress(), asyncio.Event()
    with closing(HistoryFile(path)) as history:
        writer = Writer(1, Lossy(["127.0.0.1:1"]), history, progress, "t", 1e6, 1)
        await writer._write([0, 1], stop)
        await asyncio.gather(*writer._outstanding)
    found = load(path)
    assert progress.acknowledged + progress.given_up == progress.begun >= sends
    assert [w.sequence for w in found.writes] == list(range(progress.begun))
    assert [(w.attempts, w.offset) for w in found.writes[:4]] == [(2, None), (1, 1), (2, None), (2, None)]
    assert [seen[n] for n in range(4)] == [1, 0, 1, 0], "writers begin at different partitions"
