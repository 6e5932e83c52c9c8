"""Makes the pictures of the console in docs/images: ``python -m tests.browser.screenshots`` (``make screenshots``).

A cluster of two controllers and six brokers in three racks; then a rack loses a broker: a recording, then pictures.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from controller.playground.cluster import Playground
from controller.runtime.zookeeper.session import Session
from tests.browser import chromium
from tests.browser.cluster import pages, populate, running
from tests.browser.recording import recorded
from tests.support.paths import DOCS

IMAGES = DOCS / "images"
#: File, page, height in pixels, scheme.
AFTER_A_LOSS = (
    ("console.png", "", 1060, "light"),
    ("console-dark.png", "#/partitions", 860, "dark"),
    ("console-partition.png", "#/topic/sessions/2", 1190, "light"),
    ("console-what-if.png", "#/what-if/broker-loss/1", 980, "light"),
    ("console-replay.png", "#/replay", 860, "light"),
)
#: The recording of the loss: its page is as large as this, and it goes on for so long after the broker is back.
RECORDING, RECORDED, AFTERWARDS_S = "console.gif", {"width": 1000, "height": 640}, 2.0


async def record(cluster: Playground, session: Session, started: Any, address: str) -> None:
    """A broker is killed and comes back, as the overview shows it."""
    async with chromium.window(started, viewport=RECORDED) as view:
        await view.open(address)
        async with recorded(view.page) as made:
            await view.page.locator(".verdict.good").wait_for()
            await asyncio.sleep(1)
            cluster.members["broker-3"].kill()
            await view.page.locator(".verdict.bad").wait_for()
            await cluster.until(session, "gone", lambda s: 3 not in s.brokers)
            await asyncio.sleep(3)
            cluster.members["broker-3"].start()
            await view.page.locator(".verdict.good").wait_for()
            await asyncio.sleep(AFTERWARDS_S)
    await asyncio.to_thread(made.write, IMAGES / RECORDING)
    print(IMAGES / RECORDING)


async def main() -> int:
    executable = chromium.program()
    if executable is None:
        print("Chromium is not installed (Debian: apt-get install chromium)", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        async with running(Path(directory)) as (cluster, session), chromium.browser(executable) as started:
            await populate(cluster, session)
            address = next(iter((await pages(session)).values()))
            await record(cluster, session, started, address)
            cluster.members["broker-3"].kill()
            await cluster.until(session, "gone", lambda s: 3 not in s.brokers)
            await cluster.until(
                session,
                "led",
                lambda s: sum(p.state.leader < 0 for p in s.partitions if p.state) == 1,
                ("broker-3",),
            )
            for name, page, height, scheme in AFTER_A_LOSS:
                size = {"width": 1240, "height": height}
                async with chromium.window(started, viewport=size, color_scheme=scheme) as view:
                    await view.open(f"{address}{page}")
                    await view.page.screenshot(path=str(IMAGES / name))
                    print(IMAGES / name)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
