"""The console over 100,000 partitions: how soon a page is there, and how late it tells of a change."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from controller.core import znode_paths
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from controller.runtime.zookeeper import cluster_reader
from tests.bench.cluster import BROKERS, populate
from tests.browser.chromium import Window, window
from tests.browser.cluster import pages
from tests.support.runtime.clusters import controller, http
from tests.support.runtime.programs import Program

pytestmark = [pytest.mark.slow, pytest.mark.browser_long]

PATIENCE_MS = 120_000
#: 10: a million partitions.
SCALE = int(os.environ.get("SCALE", "1"))
TOPICS, PARTITIONS = 5000 * SCALE, 20
#: They come one after the other, without a broker that could lead them; neighbours in the map.
NEW_TOPICS = ("aaa", "aab", "aac", "aad", "aae")
#: Milliseconds from the beginning of the navigation to the first content.
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


async def text(view: Window, selector: str, wanted: str) -> None:
    await view.page.locator(selector, has_text=wanted).first.wait_for(timeout=PATIENCE_MS)


def lag(running: Program) -> str:
    lines = http(running, "/metrics").splitlines()
    return next(
        line.split()[1] for line in lines if line.startswith("partition_controller_event_loop_lag_max")
    )


@pytest.fixture
def large_zookeeper(tmp_path: Path) -> Iterator[str]:
    with EmbeddedZooKeeper(tmp_path / "zookeeper", heap_mb=1024 + 300 * SCALE) as server:
        yield f"{server.connect_string}/large"


async def test_a_hundred_thousand_partitions(started: Any, large_zookeeper: str, tmp_path: Path) -> None:
    async with cluster_reader.connected(large_zookeeper, 60_000) as session:
        await populate(session, "topic", TOPICS, PARTITIONS)
        for id_ in range(BROKERS):
            # Nobody listens there: what is measured are the pages, not the pushes.
            data = {
                "version": 5,
                "host": "127.0.0.1",
                "port": 1,
                "endpoints": ["GRPC://127.0.0.1:1"],
                "rack": f"r{id_ % 3}",
                "listener_security_protocol_map": {"GRPC": "PLAINTEXT"},
                "jmx_port": -1,
                "timestamp": "1",
            }
            await session.create(znode_paths.broker_path(id_), json.dumps(data).encode(), ephemeral=True)
        with controller(large_zookeeper, tmp_path) as running:
            running.until(lambda: "ready: active" in http(running, "/ready"), 120)
            before = lag(running)
            (address,) = (await pages(session)).values()
            async with window(started) as view:
                began = time.monotonic()
                await view.open(address)
                shown_s = time.monotonic() - began
                painted_s = await view.page.evaluate(PAINTED) / 1000
                await text(view, ".figures", f"{TOPICS * PARTITIONS:,}")
                tiles = await view.page.locator(".heat .tile").count()
                assert 200 < tiles <= 480
                told_s = []
                for name in NEW_TOPICS:
                    began = time.monotonic()
                    await session.create(
                        znode_paths.topic_path(name), b'{"version":3,"partitions":{"0":[77,78]}}'
                    )
                    await text(view, ".findings", f"{name}-0")
                    told_s.append(time.monotonic() - began)
                await view.page.locator(".heat .tile.offline").click()
                await text(view, "main", "all topics")
                await view.page.locator(".heat .tile.offline").first.click()
                await text(view, "h1", "aaa")
                await view.open(f"{address}#/partitions")
                began = time.monotonic()
                await view.page.locator("#match").fill(f"topic-{TOPICS - 1:05}")
                await text(view, "table", f"topic-{TOPICS - 1:05}")
                found_s = time.monotonic() - began
                began = time.monotonic()
                await view.open(f"{address}#/what-if/broker-loss/1")
                await text(view, ".answer .verdict", "afe")
                planned_s = time.monotonic() - began
                began = time.monotonic()
                await view.open(f"{address}#/replay")
                await text(view, ".moment h2", f"{TOPICS * PARTITIONS:,}"[:-1])
                replayed_s = time.monotonic() - began
            after = lag(running)
    figures = {
        "first paint": painted_s,
        "the overview is shown": shown_s,
        "a change is told, median of five": median(told_s),
        "a change is told, longest of five": max(told_s),
        "a topic is found by a part of its name": found_s,
        "what if a broker fails": planned_s,
        "a moment of the past": replayed_s,
    }
    print("\n".join(f"| {name} | {seconds:.2f} |" for name, seconds in figures.items()))
    lags = f"{float(before):.2f}, {float(after):.2f}"
    print(f"| longest lag of the controller's event loop, before and with pages | {lags} |")
