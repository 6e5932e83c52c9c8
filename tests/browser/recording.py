"""A short recording of a page as a GIF: pictures of it, one after the other, each for as long as it was so."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.browser.chromium import on_path
from tests.tools.installation import REQUIREMENTS, install

#: Between two pictures; the longest that one of them is shown; colours of a picture.
EVERY_S, SHOWN_MAX_MS, COLOURS = 0.25, 2500, 48


class Recording:
    """Pictures and how long each was seen, ms."""

    def __init__(self) -> None:
        self.pictures: list[bytes] = []
        self.shown_ms: list[int] = []

    def write(self, path: Path) -> None:
        """As a GIF that is played again and again. Raises IndexOutOfReachError, InstallationError."""
        on_path(install(REQUIREMENTS / "pillow.txt"))
        # Not imported above: it is in an environment of its own.
        from PIL import Image

        frames: list[Any] = [Image.open(io.BytesIO(data)).convert("RGB") for data in self.pictures]
        # One palette for all of them: what does not change takes no bytes then.
        height = sum(frame.height for frame in frames[:: max(len(frames) // 8, 1)])
        sheet, top = Image.new("RGB", (frames[0].width, height)), 0
        for frame in frames[:: max(len(frames) // 8, 1)]:
            sheet.paste(frame, (0, top))
            top += frame.height
        palette = sheet.quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
        drawn = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
        shown = [min(ms, SHOWN_MAX_MS) for ms in self.shown_ms]
        drawn[0].save(path, save_all=True, append_images=drawn[1:], duration=shown, loop=0, optimize=True)


@asynccontextmanager
async def recorded(page: Any) -> AsyncIterator[Recording]:
    """Record a page while the block runs."""
    made, since = Recording(), time.monotonic()

    async def watch() -> None:
        nonlocal since
        while True:
            picture = await page.screenshot()
            now = time.monotonic()
            if made.pictures:
                made.shown_ms[-1] += round((now - since) * 1000)
            if not made.pictures or picture != made.pictures[-1]:
                made.pictures.append(picture)
                made.shown_ms.append(0)
            since = now
            await asyncio.sleep(EVERY_S)

    watching = asyncio.create_task(watch())
    try:
        yield made
        await asyncio.sleep(2 * EVERY_S)
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    made.shown_ms[-1] = SHOWN_MAX_MS
