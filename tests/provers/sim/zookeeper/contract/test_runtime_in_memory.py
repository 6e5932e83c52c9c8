"""The runtime's tests on a real ZooKeeper, told again on the one in memory in virtual time: there they take no time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from itertools import product
from types import ModuleType
from typing import Any

import pytest

from tests.provers.sim.environment import loop
from tests.provers.sim.zookeeper.ensemble import Ensemble
from tests.provers.sim.zookeeper.hands import Hands
from tests.provers.sim.zookeeper.network import Network
from tests.provers.sim.zookeeper.session import sessions_on
from tests.runtime.election import test_claimant, test_controller_election
from tests.runtime.zookeeper import (
    test_client_cases,
    test_session,
    test_state_mirror,
    test_store,
    test_store_reassignment,
)
from tests.support.runtime.sessions import opened

CHROOT = "/test"
CONNECT = f"one:1{CHROOT}"
#: By module: what its fixture ``harness`` makes of a session.
MODULES: dict[ModuleType, Callable[[Any], Any]] = {
    test_state_mirror: lambda session: session,
    test_session: lambda session: session,
    test_store: test_store.StoreHarness,
    test_client_cases: test_store.StoreHarness,
    test_store_reassignment: test_store_reassignment.ReassignmentStoreHarness,
    test_controller_election: lambda session: session,
    test_claimant: lambda session: session,
}
GIVEN = {"zookeeper", "chroot", "session", "zk", "harness", "monkeypatch"}
#: What a test uses that is not in memory: proxies, whole controllers, ports, sockets, kazoo's threads, ACLs.
OUTSIDE = {
    "proxied",
    "running",
    "controller",
    "free_port",
    "_socket",
    "expire",
    "until_delivered",
    "get_acls",
    "make_acl",
}
#: Too many znodes for a test that shall take no time.
LARGE = {
    "test_bulk_get_keeps_order_and_says_what_is_missing",
    "test_hundreds_of_absent_nodes_cost_one_look",
}


def _stories() -> Iterator[Any]:
    for module in MODULES:
        for name, test in vars(module).items():
            if not name.startswith("test_") or not inspect.iscoroutinefunction(test) or name in LARGE:
                continue
            code = test.__code__
            if OUTSIDE & {*code.co_names, *code.co_freevars}:
                continue
            for values in _parameters(test):
                if set(inspect.signature(test).parameters) <= GIVEN | values.keys():
                    shown = "-".join(map(str, values.values()))
                    label = f"{module.__name__.rpartition('.')[2]}.{name}" + (f"[{shown}]" if shown else "")
                    yield pytest.param(module, test, values, id=label)


def _parameters(test: Any) -> Iterator[dict[str, Any]]:
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    rows = []
    for mark in marks:
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        many = len(names) > 1
        rows.append([dict(zip(names, row if many else (row,), strict=True)) for row in mark.args[1]])
    for chosen in product(*rows):
        yield {name: value for part in chosen for name, value in part.items()}


@pytest.mark.parametrize(("module", "test", "values"), list(_stories()))
def test_in_memory(
    module: ModuleType, test: Any, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        network = Network(Ensemble())
        async with AsyncExitStack() as stack:
            stack.enter_context(sessions_on(network))
            wanted = inspect.signature(test).parameters
            session, _ = await stack.enter_async_context(opened(CONNECT))
            given: dict[str, Any] = {
                "zookeeper": CONNECT,
                "chroot": CONNECT,
                "session": session,
                "zk": Hands(network, CHROOT),
                "monkeypatch": monkeypatch,
                **values,
            }
            if "harness" in wanted:
                given["harness"] = await MODULES[module](session).prepare()
            await test(**{name: given[name] for name in wanted})

    loop.run(story())
