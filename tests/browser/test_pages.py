"""Pages that plan, follow work and look back, in a real browser on a cluster of real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.client import admin
from proto.gen import admin_service_pb2
from tests.browser.chromium import text, window
from tests.browser.cluster import pages, running, some_topics

pytestmark = [pytest.mark.slow, pytest.mark.browser_long]


async def test_what_if_a_broker_fails(started: Any, zookeeper: str, tmp_path: Path) -> None:
    async with running(tmp_path, controllers=1, brokers=3, zookeeper=zookeeper) as (cluster, session):
        await some_topics(cluster, session)
        (address,) = (await pages(session)).values()
        async with window(started) as view:
            await view.open(f"{address}#/what-if")
            field = view.page.locator("#argument")
            await field.fill("3")
            await field.press("Enter")
            await text(view, ".answer .verdict.bad h2", "Not safe")
            await text(view, ".answer table", "alone-0")
            await text(view, ".answer", "would change, with")
            await view.open(f"{address}#/what-if/rolling-restart")
            for broker_id in (1, 2, 3):
                await text(view, ".step h2", f"restart of broker {broker_id}")
            await view.open(f"{address}#/what-if/stoppable/1")
            await text(view, ".answer .verdict.good h2", "They may stop now")
            await view.open(f"{address}#/what-if/broker-loss/99")
            await text(view, ".answer .failure", "broker 99 not registered")
            # Nothing was changed by asking.
            await view.open(address)
            await text(view, ".verdict.good h1", "Well")


async def test_work_and_the_past(started: Any, zookeeper: str, tmp_path: Path) -> None:
    async with running(tmp_path, controllers=2, brokers=3, zookeeper=zookeeper) as (cluster, session):
        await some_topics(cluster, session)
        (active, address), (standby, _) = (await pages(session)).items()
        async with window(started) as view:
            await view.open(f"{address}#/controllers")
            await text(view, f"tr:has(td:text-is('{standby}'))", "warm: 5 partition states")
            await view.open(f"{address}#/work")
            await text(view, "h2", "0 reassignments")
            # Broker 2 gets a replica of what broker 3 cannot give it: it is gone.
            cluster.members["broker-3"].kill()
            state = await cluster.until(session, "gone", lambda s: 3 not in s.brokers)
            moves = admin_service_pb2.AlterPartitionReassignmentsRequest(
                partitions=[{"topic": "alone", "partition": 0, "replicas": {"broker_ids": [2]}}]
            )
            await admin.ask(state[0].controller_endpoint, "AlterPartitionReassignments", moves, 20)
            await text(view, "h2", "1 reassignment")
            await text(view, "table", "alone-0")
            await text(view, "table", "0 of 1")
            await view.open(f"{address}#/replay")
            await text(view, ".moment", "broker 3 was gone")
            slider = view.page.locator("#at")
            await slider.focus()
            await slider.press("Home")
            await text(view, ".moment h2", "0 partitions of 0 topics")
            await slider.fill("500")
            before = await slider.get_attribute("aria-valuetext")
            await slider.press("ArrowRight")
            assert await slider.get_attribute("aria-valuetext") > before
            assert str(active) in await view.page.locator("#who").inner_text()
