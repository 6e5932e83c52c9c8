"""Makes the pictures in docs/images: ``python -m tests.browser.screenshots`` (``make screenshots``).

The console, of a cluster of two controllers and six brokers in three racks; then a rack loses a broker: a recording,
then pictures. The report, of the playground's demo.
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
from tests.support.runtime.programs import BIN, run_to_end

IMAGES = DOCS / "images"
#: File, page, height in pixels, scheme, and what of the page comes last.
AFTER_A_LOSS = (
    ("console.png", "", 1060, "light", ".verdict"),
    ("console-dark.png", "#/partitions", 860, "dark", ".heat"),
    ("console-partition.png", "#/topic/sessions/2", 1190, "light", ".rules"),
    ("console-what-if.png", "#/what-if/broker-loss/1", 980, "light", ".answer .verdict"),
    ("console-replay.png", "#/replay", 860, "light", ".moment h2"),
)
#: The recording of the loss: its page is as large as this, and it goes on for so long after the broker is back.
RECORDING, RECORDED, AFTERWARDS_S = "console.gif", {"width": 1240, "height": 720}, 2.0


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


async def report(started: Any, directory: Path) -> None:
    """The page of the demo's logs."""
    demo = [str(BIN / "partition-controller"), "playground", "--script", "demo", "--data-dir", str(directory)]
    done = await asyncio.to_thread(run_to_end, demo, directory.parent, timeout_s=600)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = await asyncio.to_thread(lambda: list(directory.glob("run-*")))
    # Again: the page names the folder of its logs as it was given.
    again = [str(BIN / "pctl"), "report", "state-logs", "--out=again"]
    done = await asyncio.to_thread(run_to_end, again, run, timeout_s=600)
    assert done.returncode == 0, done.stdout + done.stderr
    page = run / "again" / "report.html"
    async with chromium.window(started, viewport={"width": 1240, "height": 1180}) as view:
        await view.page.goto(page.as_uri())
        await view.page.locator("section").first.wait_for()
        await view.page.screenshot(path=str(IMAGES / "report.png"))
    print(IMAGES / "report.png")


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
            for name, page, height, scheme, last in AFTER_A_LOSS:
                size = {"width": 1240, "height": height}
                async with chromium.window(started, viewport=size, color_scheme=scheme) as view:
                    await view.open(f"{address}{page}")
                    await view.page.locator(last).first.wait_for()
                    await view.page.screenshot(path=str(IMAGES / name))
                    print(IMAGES / name)
        async with chromium.browser(executable) as started:
            await report(started, Path(directory) / "demo")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
