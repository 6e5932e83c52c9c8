"""Makes the pictures of the console in docs/images: ``python -m tests.browser.screenshots`` (``make screenshots``).

A cluster of two controllers and six brokers in three racks; then a rack loses a broker.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.browser import chromium
from tests.browser.cluster import pages, populate, running
from tests.support.paths import DOCS

IMAGES = DOCS / "images"
#: File, page, height in pixels, scheme.
AFTER_A_LOSS = (
    ("console.png", "", 1020, "light"),
    ("console-dark.png", "#/partitions", 860, "dark"),
    ("console-partition.png", "#/topic/sessions/2", 1090, "light"),
)


async def main() -> int:
    executable = chromium.program()
    if executable is None:
        print("Chromium is not installed (Debian: apt-get install chromium)", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        async with running(Path(directory)) as (cluster, session), chromium.browser(executable) as started:
            await populate(cluster, session)
            cluster.members["broker-3"].kill()
            await cluster.until(session, "gone", lambda s: 3 not in s.brokers)
            await cluster.until(
                session,
                "led",
                lambda s: sum(p.state.leader < 0 for p in s.partitions if p.state) == 1,
                ("broker-3",),
            )
            address = next(iter((await pages(session)).values()))
            for name, page, height, scheme in AFTER_A_LOSS:
                size = {"width": 1240, "height": height}
                async with chromium.window(started, viewport=size, color_scheme=scheme) as view:
                    await view.open(f"{address}{page}")
                    await view.page.screenshot(path=str(IMAGES / name))
                    print(IMAGES / name)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
