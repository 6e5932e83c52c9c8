"""What a candidate does from one attempt to the next, and how a term begins and ends; ZooKeeper is played."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.cluster.quarantine import Quarantine, SubjectKind, Suspect
from controller.core.model import Cluster
from controller.errors import ControllerError, MalformedError, SessionLostError
from controller.runtime import daemon as module
from controller.runtime import lease, quarantine
from controller.runtime.config import Settings, Takeover
from controller.runtime.daemon import Daemon, Resigned, Role, StopRequested
from controller.runtime.election import controller_election, succession, term_history
from controller.runtime.election.controller_election import Lost, Won
from controller.runtime.zookeeper.session import ConnectionLossError, ConnectionState, NoNodeError
from controller.runtime.zookeeper.state_mirror import LET_GO_MAX

SESSION: Any = SimpleNamespace(over=False, connected=False)
WON = Won(7, 3)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Any]:
    made = Daemon(Settings(controller_id=1, state_log_dir=tmp_path))
    yield made
    made.state_log.close()


def returning(value: Any = None) -> Any:
    """A coroutine function that returns it, whatever it is given; its calls are in ``calls``."""

    async def function(*args: Any, **named: Any) -> Any:
        calls.append((args, named))
        return value

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    function.calls = calls  # type: ignore[attr-defined]
    return function


async def tried(daemon: Any, *outcomes: Any) -> list[float | None]:
    """How long it waits after attempts with these outcomes; then it stops."""
    left, waited = list(outcomes), []

    async def attempt(_: Any) -> Any:
        if not left:
            daemon._stopping.set()
            return None
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def wait(timeout_s: float | None) -> None:
        waited.append(timeout_s)

    daemon._attempt, daemon._wait_for_change = attempt, wait
    daemon._patience = SimpleNamespace(learn=returning())
    await daemon._candidate(SESSION)
    return waited


# --- from attempt to attempt -----------------------------------------------------------------------------------


async def test_who_leads_is_waited_for_unless_elections_are_held_back(daemon: Any) -> None:
    assert await tried(daemon, Lost(7, "h:7"), Lost(-1)) == [None, lease.ELECTION_RETRY_S]
    daemon._stopping.clear()
    daemon._brokers_first_until = float("inf")
    assert await tried(daemon, Lost(7, "h:7")) == [lease.ELECTION_RETRY_S]


async def test_that_nobody_can_be_elected_is_recorded_once_and_forgotten_with_the_next_answer(
    daemon: Any,
) -> None:
    rejected, known = [], []
    daemon._reject = lambda error, _: rejected.append(error)
    daemon._follow = lambda _: known.append(daemon.cannot_elect)
    odd, other = MalformedError("/controller_epoch", "odd"), MalformedError("/controller_epoch", "odder")
    waited = await tried(daemon, odd, odd, other, Lost(7, "h:7"), other)
    assert waited == [lease.ELECTION_RETRY_S] * 3 + [None, lease.ELECTION_RETRY_S]
    assert rejected == ["MALFORMED"] * 3
    assert known == [""]


async def test_a_standby_keeps_in_memory_what_it_may_lead(daemon: Any) -> None:
    followed = []
    daemon.standby = SimpleNamespace(follow=lambda: followed.append(1))
    await tried(daemon, Lost(7, "h:7"), Lost(-1))
    assert followed == [1, 1]


@pytest.mark.parametrize("withdrawn", [True, False])
async def test_who_handed_over_registers_again_after_its_term(daemon: Any, withdrawn: bool) -> None:
    create = returning()
    daemon._registration = SimpleNamespace(withdrawn=withdrawn, create=create)
    daemon._lead = returning()
    await tried(daemon, WON)
    assert len(create.calls) == withdrawn


@pytest.fixture
def election(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is asked of ZooKeeper in an attempt: ``elected`` is the answer."""
    made = SimpleNamespace(elected=WON, asked=[], first=False, patient=False)

    async def look(*_: Any) -> Lost:
        made.asked.append("look")
        return Lost(7)

    async def elect(*_: Any, leave_to_brokers: bool) -> Any:
        made.asked.append(f"elect{' or brokers' if leave_to_brokers else ''}")
        return made.elected

    async def end(_: Any) -> None:
        made.asked.append("end of the succession")

    async def succession_leaves(_: Any) -> bool:
        return bool(made.first)

    async def patience_leaves(_: Any) -> bool:
        return bool(made.patient)

    monkeypatch.setattr(controller_election, "look", look)
    monkeypatch.setattr(controller_election, "elect", elect)
    monkeypatch.setattr(succession, "end_quietly", end)
    daemon._succession = SimpleNamespace(leaves_to_another=succession_leaves)
    daemon._patience = SimpleNamespace(leaves_to_another=patience_leaves)
    return made


async def test_who_is_elected_ends_the_succession(daemon: Any, election: Any) -> None:
    assert await daemon._attempt(SESSION) is WON
    assert election.asked == ["elect", "end of the succession"]


async def test_an_election_that_is_another_s_is_only_looked_at(daemon: Any, election: Any) -> None:
    for election.first, election.patient in ((True, False), (False, True)):
        assert await daemon._attempt(SESSION) == Lost(7)
    election.first = election.patient = False
    daemon._brokers_first_until = float("inf")
    assert await daemon._attempt(SESSION) == Lost(7)
    assert election.asked == ["look"] * 3


async def test_once_a_broker_was_controller_an_absent_one_is_left_to_brokers(
    daemon: Any, election: Any
) -> None:
    for election.elected in (Lost(-1), Lost(7, "h:7"), Lost(7), Lost(-1)):
        await daemon._attempt(SESSION)
    assert election.asked == ["elect", "elect", "elect", "elect or brokers"]


def test_whom_it_follows_is_recorded_with_each_change(daemon: Any) -> None:
    lived = []

    def life(role: Role, reason: str) -> None:
        daemon.role = role
        lived.append(reason)

    daemon._life = life
    for result in (Lost(7, "h:7"), Lost(7, "h:7"), Lost(8, "h:8"), Lost(-1), Lost(-1, kafka_brokers=(1,))):
        daemon._follow(result)
    assert lived == [
        "controller 7 is active",
        "controller 8 is active",
        "no controller is active",
        "kafka_takeover is off, and brokers [1] are Kafka's",
    ]


# --- the session -----------------------------------------------------------------------------------------------


def test_what_was_missed_is_read_after_a_loss_alone(daemon: Any) -> None:
    happened: list[str] = []
    daemon.acls = SimpleNamespace(reconnected=lambda: happened.append("acls"))
    daemon.term = SimpleNamespace(
        reconnected=lambda: happened.append("term"), end=lambda why: happened.append(type(why).__name__)
    )
    daemon._connection_changed(ConnectionState.CONNECTED)
    assert happened == []
    for _ in range(2):
        daemon._connection_changed(ConnectionState.SUSPENDED)
    assert happened == []
    for _ in range(2):
        daemon._connection_changed(ConnectionState.CONNECTED)
    assert happened == ["acls", "term"]
    daemon._connection_changed(ConnectionState.EXPIRED)
    assert happened == ["acls", "term", "SessionLostError"]


async def test_a_znode_that_is_absent_is_told_from_a_zookeeper_that_is_away(daemon: Any) -> None:
    found: list[Any] = [(b"data", None), NoNodeError(), ConnectionLossError()]

    async def get(_: str) -> Any:
        outcome = found.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with pytest.raises(SessionLostError):
        await daemon.read_node("/x")
    daemon.session = SimpleNamespace(get=get)
    assert [await daemon.read_node("/x"), await daemon.read_node("/x")] == [b"data", None]
    with pytest.raises(ControllerError):
        await daemon.read_node("/x")


async def test_a_stop_ends_the_pause_between_two_sessions(
    daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "SESSION_RETRY_FIRST_S", 3600.0)

    async def one_session() -> None:
        asyncio.get_running_loop().call_soon(daemon._stopping.set)
        raise SessionLostError("over")

    daemon._one_session = one_session
    async with asyncio.timeout(60):
        await daemon._sessions()


def test_what_former_terms_had_is_freed_once_it_is_much(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    for let_go, times in ((LET_GO_MAX - 1, 0), (LET_GO_MAX, 1), (None, 1)):
        daemon._let_go = daemon._let_go if let_go is None else let_go
        daemon._collect()
        assert len(collected) == times


# --- a term ----------------------------------------------------------------------------------------------------


class Led:
    """A term that ends at once. ``expected``: the digests that the last one was made with."""

    expected: Any = None

    def __init__(self, _session: Any, won: Won, *_: Any, expected: Any, **__: Any) -> None:
        Led.expected = expected
        self.won, self.ended = won, list[Exception]()
        self.machine = SimpleNamespace(cluster=Cluster(1))

    def end(self, why: Exception) -> None:
        self.ended.append(why)

    async def run(self) -> None:
        raise self.ended[0] if self.ended else SessionLostError("over")


@pytest.fixture
def term(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "Term", Led)
    monkeypatch.setattr(term_history, "begin", returning())
    daemon._quarantine = returning()
    return daemon


async def test_a_stop_that_came_with_the_election_ends_the_term(term: Any) -> None:
    for stopping in (False, True):
        lived: list[tuple[Any, ...]] = []
        term._life = lambda *args, lived=lived: lived.append(args)
        if stopping:
            term.stop()
        await term._lead(SESSION, WON, 0.0)
        resigned = [reason for role, reason, *_ in lived if role is Role.STANDBY]
        assert resigned == ["stop requested" if stopping else "over"]


async def test_each_term_has_digests_of_its_own(term: Any) -> None:
    prepared = term._expected
    await term._lead(SESSION, WON, 0.0)
    assert Led.expected is prepared
    assert term._expected is not prepared


async def test_what_is_in_quarantine_is_asked_for_until_it_is_known(
    daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "ELECTION_RETRY_S", 0.0)
    suspect = Suspect(SubjectKind.TOPIC, "t", "TopicChange", "KeyError: 1", "d", 1, 2, 3)
    known = Quarantine({"topic/t": suspect})
    outcomes: list[Any] = [ConnectionLossError(), ConnectionLossError(), known]
    leased: list[int] = []

    async def read(_: Any) -> Quarantine:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, Quarantine)
        return outcome

    monkeypatch.setattr(quarantine, "read", read)
    session = SimpleNamespace(require_lease=lambda: leased.append(1))
    assert await daemon._quarantine(session) is known
    assert leased == [1, 1], "as long as the lease holds"


@pytest.mark.parametrize(
    ("ended", "handed_over"),
    [(Resigned(False, "ann"), True), (Resigned(True, "ann"), False), (StopRequested("stop"), False)],
    ids=["to a standby", "to brokers", "stopped"],
)
async def test_a_leader_of_kafka_brokers_hands_over_to_standbys_alone(
    daemon: Any, ended: Any, handed_over: bool
) -> None:
    hand_over = returning()
    daemon.claimant = SimpleNamespace(mode=Takeover.FALLBACK, hand_over=hand_over)
    daemon._registration = SimpleNamespace(withdrawn=False)
    await daemon._give_up(SESSION, WON, ended)
    assert (len(hand_over.calls), daemon._registration.withdrawn) == (handed_over, handed_over)


def test_in_whose_favour_a_controller_resigns_is_said() -> None:
    assert [str(Resigned(*args)) for args in ((False, "ann"), (False, "ann", 3), (True, "ann"))] == [
        "ann asked to resign",
        "ann asked to resign in favour of controller 3",
        "ann asked to resign in favour of Kafka's brokers",
    ]
