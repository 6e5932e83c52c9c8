"""The ZooKeeper in memory equals the real one: the same requests to both, every reply and event the same.

Random operations (``ZOOKEEPER_CONTRACT_EXAMPLES`` says how many histories, and then they are new ones); explicit cases
are in test_zookeeper_contract_cases.py. Compared are error codes, each operation's in a multi too, all of a Stat but
its times, zxids as they are, and the place of each event among the replies.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.provers.sim.zookeeper.contract import strategies
from tests.provers.sim.zookeeper.contract.pair import BASE, Client, Pair, paired
from tests.provers.sim.zookeeper.ensemble import Options
from tests.provers.sim.zookeeper.messages import (
    CloseSession,
    Create,
    Multi,
    Operation,
    Ping,
    SetPerms,
    Unknown,
)

pytestmark = pytest.mark.slow

EXAMPLES = os.environ.get("ZOOKEEPER_CONTRACT_EXAMPLES")
CLIENTS_MAX = 4

which = st.integers(0, CLIENTS_MAX - 1)
#: What happens to a session, besides what it asks.
TROUBLES = (
    "drop",
    "attach",
    "attach, password forgotten",
    "attach, ahead",
    "close",
    "end by another",
    "unknown",
)


class Comparison(RuleBasedStateMachine):
    """Random operations of a few sessions. One that is over, or whose connection is away, is replaced or comes back
    when it is its turn again, so that most of what is asked is heard."""

    port: int
    options: Options

    def __init__(self) -> None:
        super().__init__()
        self._context = paired(self.port, self.options)
        self.pair: Pair = self._context.__enter__()
        self.current = [self.pair.clients[0], *(self.pair.open() for _ in range(CLIENTS_MAX - 1))]

    def client(self, number: int) -> Client:
        client = self.current[number]
        if client.over:
            client = self.current[number] = self.pair.open()
        elif not client.connected:
            assert self.pair.attach(client) == "attached"
        return client

    @initialize()
    def some_nodes(self) -> None:
        names = ("a", "b", "a/a", "a/a/a")
        self.pair.ask(self.client(0), Multi(tuple(Create(f"{BASE}/{name}", b"0") for name in names)))

    @rule(number=which, ops=st.lists(strategies.operations(), min_size=1, max_size=8))
    def ask(self, number: int, ops: list[Operation]) -> None:
        """One after another."""
        for op in ops:
            self.pair.ask(self.client(number), op)

    @rule(number=which, ops=st.lists(strategies.operations(), min_size=2, max_size=8))
    def ask_at_once(self, number: int, ops: list[Operation]) -> None:
        """What follows a change of permissions waits for it: until that is applied, the real server (3.9.5) may
        still go by the old ones for what it prepares meanwhile."""
        together: list[Operation] = []
        for op in ops:
            together.append(op)
            if isinstance(op, SetPerms):
                self.pair.ask(self.client(number), *together)
                together.clear()
        if together:
            self.pair.ask(self.client(number), *together)

    @rule(number=which, op=strategies.likely_multis())
    def ask_for_several(self, number: int, op: Operation) -> None:
        self.pair.ask(self.client(number), op)

    @rule(
        asked=st.lists(
            st.tuples(which, st.one_of(strategies.watching, strategies.watching, strategies.changing)),
            min_size=3,
            max_size=10,
        )
    )
    def watch_and_change(self, asked: list[tuple[int, Operation]]) -> None:
        for number, op in asked:
            self.pair.ask(self.client(number), op)

    @rule(number=which, op=strategies.set_watches(), back=st.integers(0, 12))
    def set_watches(self, number: int, op: strategies.Rearm, back: int) -> None:
        self.pair.ask(self.client(number), op(self.pair.zxid - back))

    @rule()
    def hear(self) -> None:
        self.pair.compare_what_is_left()

    @rule(number=which, trouble=st.sampled_from(TROUBLES))
    def trouble(self, number: int, trouble: str) -> None:
        client, pair = self.current[number], self.pair
        match trouble:
            case "drop":
                pair.drop(client)
            case "attach":
                pair.attach(client)
            case "attach, password forgotten":
                pair.attach(client, forget_password=True)
            case "attach, ahead":
                pair.attach(client, last_zxid=pair.zxid + 1)
            case "close":
                pair.ask(client, CloseSession())
            case "end by another":
                pair.attach(client)
                pair.ask(client, CloseSession())
            case "unknown":
                pair.ask(client, Unknown())

    @invariant()
    def same_zxid(self) -> None:
        self.pair.ask(self.current[0], Ping())

    def teardown(self) -> None:
        try:
            self.pair.compare_what_is_left()
        finally:
            self._context.__exit__(None, None, None)


def test_random_operations(real_port: int, real_options: Options) -> None:
    class AtThisServer(Comparison):
        port = real_port
        options = real_options

    run_state_machine_as_test(
        AtThisServer,
        settings=settings(
            max_examples=int(EXAMPLES or 40),
            stateful_step_count=40,
            derandomize=EXAMPLES is None,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
