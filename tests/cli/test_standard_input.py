"""Lines of standard input: what is read ahead, and where it ends."""

from __future__ import annotations

import asyncio
import io
import threading

import pytest

from controller.cli.common import standard_input
from controller.cli.common.standard_input import StandardInput


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        (b"ab\ncd", [b"ab\n", b"cd", b""]),
        # What is longer is cut, and is the last.
        (b"ab\nlonger\nmore\n", [b"ab\n", b"longe"]),
    ],
)
async def test_lines_come_in_their_order_up_to_one_that_is_too_long(
    given: bytes, lines: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.BytesIO(given)
    monkeypatch.setattr(standard_input, "LINE_BYTES_MAX", 4)
    monkeypatch.setattr(standard_input, "_stream", lambda: stream)
    read = StandardInput()
    async with asyncio.timeout(60):
        assert [await read.line() for _ in lines] == lines
    for thread in threading.enumerate():
        if thread.name == "standard-input":
            thread.join()
    assert given[stream.tell() :] == given[len(b"".join(lines)) :]
