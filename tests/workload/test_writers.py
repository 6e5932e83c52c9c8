"""A writer whose sends are all stuck."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

from broker_stub.client.producer import Producer
from controller.workload.history import HistoryFile
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
