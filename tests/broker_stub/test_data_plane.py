"""The end of the data plane's background tasks."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from broker_stub.data_plane import DataPlane


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
