"""Changes from the page: tried first, with a reason, offered to who may; and what pages of other sites can do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session
from proto.security.tokens import new_token
from tests.browser.chromium import PATIENCE_MS, Window, text, window
from tests.browser.cluster import guarded, pages, running, some_topics

pytestmark = pytest.mark.slow


async def tried(view: Window, button: str, **fields: str) -> None:
    """Open the dialog of a change, fill it in by keyboard alone, and see its dry run."""
    await view.page.locator(".act", has_text=button).first.focus()
    await view.page.keyboard.press("Enter")
    for name, value in {**fields, "reason": "new disks", "author": "ann"}.items():
        field = view.page.locator(f"#change-{name}")
        if await field.count():
            await field.fill(value)
    await view.page.locator("dialog .act", has_text="try it").press("Enter")
    await text(view, ".trial h3", "The dry run")


async def confirmed(view: Window) -> None:
    go = view.page.locator("dialog .act.grave", has_text="do it")
    await go.wait_for(timeout=PATIENCE_MS)
    await go.press("Enter")
    await text(view, ".trial .well-done", "Done.")
    assert await view.page.evaluate("document.activeElement.textContent") == "close"
    await view.page.keyboard.press("Enter")
    await view.page.locator("dialog").wait_for(state="detached")


async def maintenance_of(session: Session) -> Any:
    return (await cluster_reader.look(session, topics=())).maintenance


async def test_changes_are_tried_asked_for_and_made(started: Any, zookeeper: str, tmp_path: Path) -> None:
    async with running(tmp_path, controllers=1, brokers=3, zookeeper=zookeeper) as (cluster, session):
        await some_topics(cluster, session)
        (address,) = (await pages(session)).values()
        async with window(started) as view:
            await view.open(f"{address}#/broker/1")
            await tried(view, "drain")
            await text(view, ".trial", "to ZooKeeper, pushes to")
            assert not (await maintenance_of(session)).drained
            # Escape leaves everything as it is, and the focus where it was.
            await view.page.keyboard.press("Escape")
            assert await view.page.evaluate("document.activeElement.textContent") == "drain"
            await tried(view, "drain")
            await confirmed(view)
            (drained,) = (await maintenance_of(session)).drained.items()
            assert (drained[0], drained[1].author, drained[1].reason) == (1, "ann", "new disks")
            await text(view, ".act", "undrain")
            await view.open(f"{address}#/topic/alone/0")
            await tried(view, "move", replicas="2")
            await confirmed(view)
            await text(view, ".lead", "2 leads it")
            await tried(view, "move", replicas="2,9")
            await text(view, ".trial .note", "refused")
            assert await view.page.locator("dialog .act.grave").count() == 0
            await view.page.keyboard.press("Escape")
            await view.open(address)
            await tried(view, "pause")
            await confirmed(view)
            await text(view, ".findings", "paused by ann: new disks")
            await view.open(f"{address}#/history")
            for method in ("SetDrain", "AlterPartitionReassignments", "SetPause"):
                await text(view, "table", method)


#: What takes the keyboard and has no name that can be read aloud, and fields whose label is a placeholder only.
NAMELESS = """[...document.querySelectorAll('a,button,input,select,summary,progress,[role=region]')].filter((e) =>
  !(e.textContent.trim() || e.getAttribute('aria-label') || (e.labels && e.labels.length))).map((e) => e.outerHTML)"""
#: By how many pixels a dialog is wider than it is seen, or beyond the window.
BEYOND = """(() => {
  const dialog = document.querySelector('dialog'), box = dialog.getBoundingClientRect();
  return Math.max(dialog.scrollWidth - dialog.clientWidth, -box.left, box.right - innerWidth, -box.top);
})()"""


@pytest.mark.browser_long
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_changes_on_a_phone_read_aloud(
    started: Any, zookeeper: str, tmp_path: Path, scheme: str
) -> None:
    async with running(tmp_path, controllers=1, brokers=3, zookeeper=zookeeper) as (cluster, session):
        await some_topics(cluster, session)
        (address,) = (await pages(session)).values()
        size = {"width": 360, "height": 640}
        async with window(started, viewport=size, color_scheme=scheme) as view:
            for page, shown in (("#/what-if/broker-loss/3", ".answer table"), ("#/replay", ".moment table"),
                ("#/work", "table, .quiet"), ("#/controllers", "table"), ("#/topic/orders/0", ".acts")):  # fmt: skip
                await view.open(f"{address}{page}")
                await view.page.locator(shown).first.wait_for(timeout=PATIENCE_MS)
                assert await view.page.evaluate(NAMELESS) == [], page
                assert await view.page.evaluate("document.documentElement.scrollWidth") <= 360, page
                assert await view.page.locator("h1").count() == 1, page
            await tried(view, "move", replicas="3,2,1")
            assert await view.page.evaluate(NAMELESS) == []
            assert await view.page.evaluate(BEYOND) <= 0
            # A dialog keeps the keyboard, and says its name and what is tried.
            assert await view.page.get_by_role("dialog", name="Move orders-0").count() == 1
            assert await view.page.locator(".trial").get_attribute("aria-live") == "polite"
            for _ in range(12):
                await view.page.keyboard.press("Tab")
                inside = (
                    "document.activeElement === document.body || document.activeElement.closest('dialog')"
                )
                assert await view.page.evaluate(f"!!({inside})")


#: Everything that a page may try without a reader's help: forms, and requests whose answer it may not see.
EVIL = """<!doctype html><meta charset="utf-8"><title>kittens</title>
<iframe name="a"></iframe>
<form id="f" method="post" enctype="text/plain" target="a" action="%(ui)s/api/change">
<input name='%(body)s' value=''></form>
<script>
f.submit();
const body = '%(body)s', blob = new Blob([body], { type: "text/plain" });
const headers = { "Content-Type": "application/json", "Console-Token": "x" };
const ways = [
  { method: "POST", mode: "no-cors", credentials: "include", body },
  { method: "POST", mode: "no-cors", credentials: "include", body: blob },
  { method: "POST", mode: "cors", credentials: "include", headers, body },
  { method: "GET", mode: "cors", credentials: "include" },
];
const ask = (way) => fetch("%(ui)s/api/" + (way.method === "GET" ? "session" : "change"), way);
const told = (one) => (one.status === "fulfilled" ? one.value.type : "refused");
Promise.allSettled(ways.map(ask)).then((all) => { document.title = all.map(told).join(); });
</script>"""


@asynccontextmanager
async def another_site(page: str) -> AsyncIterator[str]:
    async def serve(_: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/html")

    app = web.Application()
    app.add_routes([web.get("/", serve)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        # Another site than 127.0.0.1, which is where the console is.
        yield f"http://localhost:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def test_a_page_of_another_site_changes_nothing(started: Any, zookeeper: str, tmp_path: Path) -> None:
    body = '{"change":{"kind":"pause","paused":true},"reason":"a test","author":"eve"}'
    async with running(tmp_path, controllers=1, brokers=1, zookeeper=zookeeper) as (_, session):
        (address,) = (await pages(session)).values()
        async with another_site(EVIL % {"ui": address, "body": body}) as evil:
            context = await started.new_context()
            page = await context.new_page()
            await page.goto(address)
            await page.locator("#who", has_text="live").wait_for(timeout=PATIENCE_MS)
            await page.goto(evil)
            await page.wait_for_function("document.title !== 'kittens'", timeout=PATIENCE_MS)
            assert await page.title() == "refused,refused,refused,refused"
            # What the browser let through was refused by the controller.
            await page.goto(f"{address}#/history")
            await page.locator("table", has_text="CROSS_SITE").wait_for(timeout=PATIENCE_MS)
            await context.close()
        assert (await maintenance_of(session)).paused is None


async def test_who_may_not_change_sees_no_buttons(started: Any, zookeeper: str, tmp_path: Path) -> None:
    tokens = {"reader": new_token(), "changer": new_token()}
    rules = (
        '[[allow]]\nprincipals = ["User:*"]\noperations = ["DESCRIBE"]\nresources = ["cluster"]\n'
        '[[allow]]\nprincipals = ["User:changer"]\noperations = ["ALTER"]\nresources = ["cluster"]\n'
    )
    with guarded(zookeeper, tmp_path, rules, tokens) as address:
        async with window(started) as view:
            await view.open(address)
            await text(view, "#mode", "Read-only: User:ANONYMOUS may not ALTER the cluster")
            assert await view.page.locator(".act").count() == 0
            for who, buttons in (("reader", 0), ("changer", 3)):
                await view.page.locator("#login").click()
                field = view.page.locator("#token")
                await field.fill(tokens[who])
                await field.press("Enter")
                await text(view, "#mode", f"User:{who}")
                assert await view.page.locator(".act").count() == buttons
            await tried(view, "enter maintenance")
            await text(view, "dialog", "It is recorded as done by User:changer.")
            await confirmed(view)
            await text(view, ".findings", "maintenance by User:changer: new disks")
