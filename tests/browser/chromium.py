"""Debian's Chromium, driven by Playwright, which has an environment of its own."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.runtime.sessions import until
from tests.tools.installation import REQUIREMENTS, Tool, install

#: Without a sandbox, as root in a container needs; without services that look for their maker's hosts.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--force-color-profile=srgb",
)  # fmt: skip
#: How long a page may take to show what a test waits for.
PATIENCE_MS = 40_000


def program() -> str | None:
    """The browser; None: it is not installed (Debian: ``apt-get install chromium``)."""
    return shutil.which("chromium")


def on_path(tool: Tool) -> None:
    """Make the packages of a tool's environment importable."""
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = str(tool.bin.parent / "lib" / python / "site-packages")
    if packages not in sys.path:
        # At the end: what both environments have is ours.
        sys.path.append(packages)


def playwright() -> Any:
    """Its module. Raises IndexOutOfReachError, InstallationError."""
    on_path(install(REQUIREMENTS / "playwright.txt"))
    from playwright import async_api

    return async_api


@asynccontextmanager
async def browser(executable: str) -> AsyncIterator[Any]:
    """A started browser; each page of it begins without cookies and cache."""
    async with playwright().async_playwright() as driver:
        started = await driver.chromium.launch(executable_path=executable, args=list(FLAGS))
        try:
            yield started
        finally:
            await started.close()


class Window:
    """One page, and what went wrong on it: scripts that fail, and what the policy forbids."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._said)
        page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))

    def _said(self, message: Any) -> None:
        # A request that is refused, or not answered, is no error of the page.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.errors.append(message.text)

    async def open(self, address: str) -> None:
        """Wait until it is shown: a change behind # loads nothing."""
        await self.page.goto(address)
        await until(self._is_shown, f"the page {address}")

    async def _is_shown(self) -> bool:
        shown: bool = await self.page.evaluate(
            "document.getElementById('main').dataset.shown === location.hash"
        )
        return shown


@asynccontextmanager
async def window(started: Any, **options: Any) -> AsyncIterator[Window]:
    """``options``: of Playwright's new_context."""
    context = await started.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    try:
        made = Window(await context.new_page())
        yield made
        assert not made.errors
    finally:
        await context.close()


async def text(view: Window, selector: str, wanted: str) -> Any:
    """Wait until an element has this text."""
    found = view.page.locator(selector, has_text=wanted).first
    await found.wait_for(timeout=PATIENCE_MS)
    return found
