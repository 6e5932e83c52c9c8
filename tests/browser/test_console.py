"""The console in a real browser, on a cluster of real processes: live, keyboard, phone, dark, and hostile names."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from controller.client import admin
from controller.core import znode_paths
from proto.gen import maintenance_pb2
from proto.security.tokens import new_token
from tests.browser.chromium import text, window
from tests.browser.cluster import guarded, pages, running, some_topics

pytestmark = pytest.mark.slow

#: A name that is markup, and one that turns what follows it around.
MARKUP, TURNING = "<img src=x onerror=document.title='hit'>", "a\u202etxt.exe"


async def test_a_broker_that_is_killed_is_seen_without_a_reload(
    started: Any, zookeeper: str, tmp_path: Path
) -> None:
    async with running(tmp_path, controllers=1, brokers=3, zookeeper=zookeeper) as (cluster, session):
        await some_topics(cluster, session)
        (address,) = (await pages(session)).values()
        async with window(started) as view:
            await view.open(address)
            await text(view, ".verdict.good h1", "Well")
            await view.page.evaluate("window.before = 1")
            cluster.members["broker-3"].kill()
            await text(view, ".verdict.bad h1", "things are wrong")
            await text(view, ".findings", "broker 3 is gone: 5 partitions lack it")
            await text(view, ".findings", "1 partition without a leader that is alive: alone-0")
            await text(view, ".heat .tile.offline", "alone")
            await text(view, ".heat .tile.behind", "orders")
            await text(view, ".broker.offline", "gone")
            await view.page.locator(".heat .tile.offline").click()
            await text(view, "h1", "alone")
            await view.page.locator("table a", has_text="0").first.click()
            await text(view, ".rules", "3 is not online")
            await text(view, ".card", "the return of any of [3]")
            await text(view, ".command code", "pctl explain partition alone 0")
            cluster.members["broker-3"].start()
            await text(view, ".lead", "3 leads it")
            await view.page.locator("nav a", has_text="Overview").click()
            await text(view, ".verdict.good h1", "Well")
            assert await view.page.evaluate("window.before") == 1


async def test_a_standby_says_who_leads_and_takes_over_on_the_page(
    started: Any, zookeeper: str, tmp_path: Path
) -> None:
    async with running(tmp_path, controllers=2, brokers=3, zookeeper=zookeeper) as (cluster, session):
        await some_topics(cluster, session)
        (active, leading), (standby, waiting) = (await pages(session)).items()
        async with window(started) as view:
            await view.open(waiting)
            await text(view, "h1", f"Controller {standby} is standby")
            link = await text(view, "main a", f"Console of controller {active}")
            assert await link.get_attribute("href") == leading
            cluster.members[f"controller-{active}"].kill()
            await text(view, ".verdict.good h1", "Well")
            await text(view, "#who", f"active · controller {standby}")
            cluster.members[f"controller-{standby}"].kill()
            await text(view, "#who", "no line")


async def test_who_leads_is_not_known_while_zookeeper_is_frozen(started: Any, tmp_path: Path) -> None:
    async with running(tmp_path, controllers=2, brokers=1) as (cluster, session):
        assert cluster.embedded is not None
        _, (standby, waiting) = (await pages(session)).items()
        async with window(started) as view:
            await view.open(waiting)
            await text(view, "h1", f"Controller {standby} is standby")
            cluster.embedded.servers[0].kill(signal.SIGSTOP)
            try:
                await text(view, ".verdict", "ZooKeeper does not answer: who is active is not known here.")
                await view.open(f"{waiting}#/controllers")
                await text(view, "main", "ZooKeeper names none, or does not answer")
            finally:
                cluster.embedded.servers[0].kill(signal.SIGCONT)
            await text(view, "main", "open")


async def test_hostile_names_stay_text(started: Any, zookeeper: str, tmp_path: Path) -> None:
    async with running(tmp_path, controllers=1, brokers=3, zookeeper=zookeeper) as (cluster, session):
        await some_topics(cluster, session)
        for name in (MARKUP, TURNING):
            data = {"version": 3, "partitions": {"0": [1]}}
            await session.create(znode_paths.topic_path(name), json.dumps(data).encode())
        cluster.members["broker-2"].kill()
        await cluster.until(session, "gone", lambda s: 2 not in s.brokers)
        cluster.members["broker-2"].command.append(f"--rack={MARKUP}")
        cluster.members["broker-2"].start()
        state = await cluster.until(session, "back", lambda s: 2 in s.brokers)
        paused = maintenance_pb2.SetPauseRequest(paused=True, reason=MARKUP, author=TURNING)
        await admin.ask(state[0].controller_endpoint, "SetPause", paused, 20)
        (address,) = (await pages(session)).values()
        async with window(started) as view:
            await view.open(address)
            await text(view, ".findings", f"paused by a\\u202etxt.exe: {MARKUP}")
            await text(view, ".findings", f"/brokers/topics/{MARKUP}")
            await text(view, ".rack h3", f"rack {MARKUP}")
            for hash_ in (
                f"#/topic/{MARKUP}",
                f"#/topic/{TURNING}/0",
                f"#/broker/{MARKUP}",
                "#/topic/%",
                "#/history",
            ):
                await view.open(f"{address}{hash_}")
            await text(view, "table", MARKUP)
            assert await view.page.locator("main img, main script, [onerror]").count() == 0
            assert await view.page.title() == "History · Partition Controller"
            body = await view.page.locator("body").inner_text()
            assert "\u202e" not in body


async def test_keyboard_alone(started: Any, zookeeper: str, tmp_path: Path) -> None:
    async with running(tmp_path, controllers=1, brokers=3, zookeeper=zookeeper) as (cluster, session):
        await some_topics(cluster, session)
        (address,) = (await pages(session)).values()
        async with window(started) as view:
            keys = view.page.keyboard
            await view.open(f"{address}#/partitions")
            await keys.press("Tab")
            assert await view.page.evaluate("document.activeElement.className") == "skip"
            while await view.page.evaluate("!document.activeElement.classList.contains('tile')"):
                await keys.press("Tab")
            await keys.press("ArrowRight")
            focused = "document.activeElement.getAttribute('aria-label')"
            assert await view.page.evaluate(focused) == "orders: 4 partitions, well"
            await keys.press("Tab")
            assert await view.page.evaluate("document.activeElement.id") == "match"
            await keys.type("alo")
            await text(view, "table", "alone")
            await view.page.locator("table a", has_text="orders").wait_for(state="detached")
            await keys.press("Shift+Tab")
            await keys.press("Enter")
            await text(view, "h1", "orders")
            nameless = (
                "[...document.querySelectorAll('a,button,input,select')].filter((e) =>"
                " !(e.textContent.trim() || e.getAttribute('aria-label') || (e.labels && e.labels.length))).length"
            )
            assert await view.page.evaluate(nameless) == 0


#: The ratio of WCAG 2 between the colours of a text and of what is behind it.
CONTRAST = """() => {
  const box = document.createElement("div");
  document.body.append(box);
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g)
      .map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (ink, ground) => {
    box.style.color = `var(--${ink})`;
    box.style.backgroundColor = `var(--${ground})`;
    const style = getComputedStyle(box);
    const [a, b] = [light(style.color), light(style.backgroundColor)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const pairs = ["well", "behind", "short", "offline", "plain"].map((name) => [`${name}-ink`, name]);
  pairs.push(["quiet", "card"], ["quiet", "ground"], ["link", "card"], ["ink", "card"], ["ink", "good"]);
  pairs.push(["short", "card"]);
  return Object.fromEntries(pairs.map(([ink, ground]) => [`${ink} on ${ground}`, ratio(ink, ground)]));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_and_both_schemes(started: Any, zookeeper: str, tmp_path: Path, scheme: str) -> None:
    async with running(tmp_path, controllers=1, brokers=3, zookeeper=zookeeper) as (cluster, session):
        await some_topics(cluster, session)
        (address,) = (await pages(session)).values()
        size = {"width": 360, "height": 740}
        async with window(started, viewport=size, color_scheme=scheme) as view:
            for page in ("", "#/brokers", "#/broker/1", "#/partitions", "#/topic/orders", "#/topic/orders/1",
                "#/what-if", "#/what-if/broker-loss/1", "#/work", "#/replay", "#/history", "#/audit",
                "#/controllers"):  # fmt: skip
                await view.open(f"{address}{page}")
                assert await view.page.evaluate("document.documentElement.scrollWidth") <= 360, page
            contrasts = await view.page.evaluate(CONTRAST)
            assert {pair: ratio for pair, ratio in contrasts.items() if ratio < 4.5} == {}
            ground = await view.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, ground[4:-1].split(","))) < 200) == (scheme == "dark")


async def test_who_has_no_certificate_gives_a_token(started: Any, zookeeper: str, tmp_path: Path) -> None:
    """The page is open, what it asks is not; the token is forgotten with the page."""
    token = new_token()
    rules = '[[allow]]\nprincipals = ["User:ann"]\noperations = ["DESCRIBE"]\nresources = ["cluster"]\n'
    with guarded(zookeeper, tmp_path, rules, {"ann": token}) as address:
        async with window(started) as view:
            await view.open(address)
            await text(view, ".login h2", "Who are you?")
            field = view.page.locator("#token")
            await field.fill("nobody's")
            await field.press("Enter")
            await text(view, ".login", "the token is nobody's")
            await field.fill(token)
            await field.press("Enter")
            await text(view, ".verdict h1", "Well")
            await text(view, "#who", "live")
            await view.page.reload()
            await text(view, ".login h2", "Who are you?")
