"""The console over 100,000 partitions: how soon a page is there, and how late it tells of a change."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from controller.core import znode_paths
from controller.runtime.zookeeper import cluster_reader
from tests.bench.cluster import BROKERS, populate
from tests.browser.chromium import Window, window
from tests.browser.cluster import pages
from tests.support.runtime.clusters import controller, http
from tests.support.runtime.programs import Program

pytestmark = [pytest.mark.slow, pytest.mark.browser_long]

PATIENCE_MS = 120_000
TOPICS, PARTITIONS = 5000, 20


async def text(view: Window, selector: str, wanted: str) -> None:
    await view.page.locator(selector, has_text=wanted).first.wait_for(timeout=PATIENCE_MS)


def lag(running: Program) -> str:
    lines = http(running, "/metrics").splitlines()
    return next(
        line.split()[1] for line in lines if line.startswith("partition_controller_event_loop_lag_max")
    )


async def test_a_hundred_thousand_partitions(started: Any, zookeeper: str, tmp_path: Path) -> None:
    async with cluster_reader.connected(zookeeper, 60_000) as session:
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
        with controller(zookeeper, tmp_path) as running:
            running.until(lambda: "ready: active" in http(running, "/ready"), 120)
            before = lag(running)
            (address,) = (await pages(session)).values()
            async with window(started) as view:
                began = time.monotonic()
                await view.open(address)
                shown_s = time.monotonic() - began
                await text(view, ".figures", "100,000")
                tiles = await view.page.locator(".heat .tile").count()
                assert 200 < tiles <= 480
                began = time.monotonic()
                await session.create(
                    znode_paths.topic_path("aaa"), b'{"version":3,"partitions":{"0":[77,78]}}'
                )
                await text(view, ".findings", "1 partition without a leader that is alive: aaa-0")
                told_s = time.monotonic() - began
                await view.page.locator(".heat .tile.offline").click()
                await text(view, "main", "all topics")
                await view.page.locator(".heat .tile.offline").click()
                await text(view, "h1", "aaa")
                await view.open(f"{address}#/partitions")
                began = time.monotonic()
                await view.page.locator("#match").fill("topic-04999")
                await text(view, "table", "topic-04999")
                found_s = time.monotonic() - began
            after = lag(running)
    print(f"overview after {shown_s:.2f} s, a change told after {told_s:.2f} s")
    print(
        f"a topic found after {found_s:.2f} s; longest lag of the loop, seconds: {before} before, {after} with pages"
    )
