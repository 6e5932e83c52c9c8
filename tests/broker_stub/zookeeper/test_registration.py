"""What a broker makes of what it finds at its own path; test_process.py registers on a real server."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError, NodeExistsError, RuntimeInconsistency

from broker_stub.errors import RegistrationFault
from broker_stub.zookeeper import registration
from broker_stub.zookeeper.registration import Identity, Registrar, Timeouts, generate_broker_id
from proto.incarnations import new_incarnation

SESSION, OTHER = 77, 78


class Result:
    def __init__(self, value: Any) -> None:
        self.value = value

    def get(self, timeout: float) -> Any:
        assert timeout > 0
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Client:
    """Of a server where our path is there already, of this owner."""

    chroot, problem = "", "it is away"

    def __init__(
        self, owner: int, data: bytes, outcomes: Sequence[Any] = (), negotiated_ms: int = 4000
    ) -> None:
        """``outcomes``: of the first multis; later ones find the znode there."""
        self.stat: Any = SimpleNamespace(ephemeralOwner=owner, czxid=9, version=1)
        self.client_id, self.negotiated_ms = (SESSION, b""), negotiated_ms
        self.data, self.written = data, b""
        self.outcomes = iter(outcomes)
        #: Of those connections that are waited for, how many waits are in vain.
        self.waits = iter(())

    def transaction(self) -> Any:
        outcome = next(self.outcomes, [NodeExistsError(), RuntimeInconsistency()])
        return SimpleNamespace(
            create=lambda *_, **__: None,
            set_data=lambda _path, data, _version: setattr(self, "written", data),
            commit_async=lambda: Result(outcome),
        )

    def ensure_path_async(self, _path: str) -> Result:
        return Result(None)

    def add_listener(self, _listener: Any) -> None: ...

    def start_async(self) -> Any:
        return SimpleNamespace(wait=lambda _: next(self.waits, True))

    def stop(self) -> None: ...

    def close(self) -> None: ...

    def get_async(self, _path: str) -> Result:
        return Result((self.data, self.stat))

    def exists_async(self, _path: str, _watch: Any) -> Result:
        return Result(self.stat)


@pytest.fixture
def registrar() -> Registrar:
    identity = Identity(1, "h", 9092, None, new_incarnation())
    return Registrar(identity, "h:1", Timeouts(4000, 4000), lambda _epoch: None, lambda _error: None)


def test_a_registration_whose_answer_was_lost_is_its_own(registrar: Registrar) -> None:
    own = registrar._identity.encode(0, 4000)
    assert registrar._try_register(Client(SESSION, own), SESSION) == (9, "")
    strangers = Identity(1, "elsewhere", 9092, None, new_incarnation()).encode(0, 4000)
    assert registrar._try_register(Client(OTHER, strangers), SESSION) == (None, "'elsewhere'")


def test_a_registration_of_another_epoch_is_not_the_one_that_was_made(registrar: Registrar) -> None:
    """Somebody removed it, and somebody registered: maybe we ourselves, with an answer that was lost."""
    client = Client(SESSION, b"")
    assert registrar._is_registered(client, 9)
    assert not registrar._is_registered(client, 8)


REGISTERED = ["", SimpleNamespace(czxid=9)]


def told(registrar: Registrar, *names: str, client: Any = None) -> None:
    for name in names:
        registrar._events.put((name, client))


def test_what_is_registered_is_the_timeout_that_was_granted_and_the_time(registrar: Registrar) -> None:
    client, before_ms = Client(SESSION, b"", [REGISTERED], negotiated_ms=6000), time.time_ns() // 1_000_000
    assert registrar._try_register(client, SESSION) == (9, "")
    written = json.loads(client.written)
    assert written["session_timeout_ms"] == 6000
    assert before_ms <= int(written["timestamp"]) <= time.time_ns() // 1_000_000


@pytest.mark.parametrize(
    ("errors", "registers"),
    [
        ([ConnectionLoss()] * 9, True),
        ([NoAuthError(), ConnectionLoss()] * 9, True),
        ([NoAuthError()] * 4, True),
        ([NoAuthError()] * 5, False),
    ],
)
def test_refusals_are_counted_from_one_lost_connection_to_the_next(
    registrar: Registrar, errors: list[Exception], registers: bool
) -> None:
    client: Any = Client(SESSION, b"", [*errors, REGISTERED])
    told(registrar, *["look"] * len(errors))
    if registers:
        assert registrar._register(client, SESSION) == 9
    else:
        with pytest.raises(RegistrationFault, match="refuses to register /brokers/ids/1: NoAuthError"):
            registrar._register(client, SESSION)


def clock(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    """Each look at the clock takes so long."""
    now = itertools.count(0, step_s)
    fake = SimpleNamespace(monotonic=lambda: next(now), time_ns=time.time_ns)
    monkeypatch.setattr(registration, "time", fake)


def test_another_process_is_waited_for_only_so_long(
    registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(monkeypatch, 3)
    strangers = Identity(1, "elsewhere", 9092, None, new_incarnation()).encode(0, 4000)
    told(registrar, *["look"] * 9, "stop")
    with pytest.raises(
        RegistrationFault, match="within 9 s: another broker with id 1 is running on 'elsewhere'"
    ):
        registrar._register(Client(OTHER, strangers), SESSION)


@pytest.mark.parametrize("limited", [True, False])
def test_the_first_connection_has_a_limit(
    registrar: Registrar, monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    clock(monkeypatch, 3)
    client: Any = Client(SESSION, b"")
    client.waits = iter([False] * 5)
    registrar._starting = limited
    if limited:
        with pytest.raises(RegistrationFault, match=r"within 4000 ms .*: it is away"):
            registrar._await_connection(client)
    else:
        registrar._await_connection(client)
        assert next(client.waits, None) is None


def test_the_end_of_a_former_client_s_session_is_not_this_one_s(registrar: Registrar) -> None:
    client: Any = Client(SESSION, b"")
    told(registrar, "lost", client=Client(OTHER, b""))
    assert registrar._next_event(client, 1.0) == "lost"
    told(registrar, "lost", client=client)
    with pytest.raises(registration._Lost):
        registrar._next_event(client, 1.0)


def test_an_event_of_a_directory_that_could_not_be_written_is_written_later(
    registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a look at the registration that is due meanwhile is taken at once."""
    monkeypatch.setattr(registration, "_BURST_QUIET_S", 0)
    client: Any = Client(SESSION, b"")
    outcomes: list[Any] = [ConnectionLoss(), "made", "made twice"]
    looks = iter([client.stat] * 3)

    def exists(_path: str, _watch: Any) -> Result:
        told(registrar, "look")
        return Result(next(looks, None))

    client.exists_async = exists
    client.create_async = lambda *_, **__: Result(outcomes.pop(0))
    registrar.storage_lost()
    registrar._serve_events(client, 9)
    assert outcomes == ["made twice"]


def test_who_uses_the_session_learns_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[Any] = []
    client: Any = Client(SESSION, b"", [REGISTERED])
    monkeypatch.setattr(registration, "Client", lambda *_, **__: client)
    identity = Identity(1, "h", 9092, None, new_incarnation())
    nothing: Any = list[Any]().append
    registrar = Registrar(identity, "h:1", Timeouts(4000, 4000), nothing, nothing, sessions.append)
    told(registrar, "stop")
    with pytest.raises(registration._Stopped):
        registrar._session()
    assert sessions == [client, None]


def test_generated_ids_begin_behind_those_for_manual_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Client(SESSION, b"")
    waits = list[float]()
    client.start, client.ensure_path = waits.append, lambda _: None
    client.set = lambda _path, _data: SimpleNamespace(version=3)
    monkeypatch.setattr(registration, "Client", lambda *_, **__: client)
    assert (generate_broker_id("h:1", 1500), waits) == (1003, [1.5])
