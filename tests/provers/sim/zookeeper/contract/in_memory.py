"""Tests on an ensemble in memory, in virtual time."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import Any

from controller.runtime.zookeeper.session import Session
from tests.provers.sim.environment import loop
from tests.provers.sim.zookeeper.ensemble import Ensemble
from tests.provers.sim.zookeeper.hands import Hands
from tests.provers.sim.zookeeper.network import Network
from tests.provers.sim.zookeeper.session import sessions_on
from tests.support.runtime.sessions import opened

CHROOT = "/test"
CONNECT = f"one:1{CHROOT}"
TIMEOUT_MS = 20_000
Test = Callable[..., Awaitable[None]]


@asynccontextmanager
async def a_session(timeout_ms: int = TIMEOUT_MS) -> AsyncIterator[tuple[Network, Session, Hands]]:
    network = Network(Ensemble())
    with sessions_on(network):
        async with opened(CONNECT, timeout_ms) as (session, _):
            yield network, session, Hands(network, CHROOT)


def told_in(
    place: Callable[[], AbstractAsyncContextManager[Any]], *names: str
) -> Callable[[Test], Callable[..., None]]:
    """A decorator of tests: parameters of these names are what ``place`` gives, the others are fixtures."""

    def told(test: Test) -> Callable[..., None]:
        wanted = inspect.signature(test)

        @wraps(test)
        def plain(**fixtures: Any) -> None:
            async def run() -> None:
                async with place() as given:
                    known = dict(zip(names, given, strict=True))
                    await test(**fixtures, **{n: known[n] for n in names if n in wanted.parameters})

            loop.run(run())

        fixtures = [p for name, p in wanted.parameters.items() if name not in names]
        plain.__signature__ = wanted.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return plain

    return told
