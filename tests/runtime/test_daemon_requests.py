"""What a daemon does by itself when a term ends, and when an operator asks it to resign; ZooKeeper is played."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from controller.core.cluster.quarantine import Quarantine, Subject, SubjectKind, Suspect
from controller.core.model import Cluster
from controller.core.records import ControllerChange
from controller.errors import OutrankedError, SessionLostError
from controller.runtime import crash_files, leadership_requests, quarantine
from controller.runtime import daemon as module
from controller.runtime.config import Settings, Takeover
from controller.runtime.daemon import Daemon, Released, Resigned, Role, StopRequested
from controller.runtime.election import controller_election, succession, term_history
from controller.runtime.election.controller_election import Won
from controller.runtime.rpc.leadership_service import LeadershipService
from controller.runtime.zookeeper import jute
from controller.runtime.zookeeper.single_codecs import RESIGNATION
from proto.gen import common_pb2
from proto.gen import maintenance_pb2 as pb
from proto.reload import Reloads

WON: Any = SimpleNamespace(epoch=7, epoch_version=3)


class FakeSession:
    """Keeps what is committed; ``error``: of the next commit."""

    def __init__(self) -> None:
        self.committed: list[list[Any]] = []
        self.deleted: list[Any] = []
        self.error = 0
        self.connected = False

    def packed_path(self, path: Any) -> bytes:
        return str(path).encode()

    def op_create(self, path: Any, data: bytes) -> Any:
        return "create", path, data

    async def multi(self, ops: list[Any]) -> None:
        self.committed.append(ops)
        if self.error:
            raise jute.MultiError([0, self.error])

    async def delete(self, path: Any) -> None:
        self.deleted.append(path)


class FakeTerm:
    def __init__(self, session: FakeSession) -> None:
        self.session, self.won = session, WON
        self.machine = SimpleNamespace(cluster=Cluster(1), current_event=None)
        self.quarantine = Quarantine()
        self.ended: list[Exception] = []

    def end(self, why: Exception) -> None:
        self.ended.append(why)


class Rig:
    """A daemon that leads term 7."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.daemon = Daemon(Settings(controller_id=1, state_log_dir=directory))
        self.session = FakeSession()
        self.term = FakeTerm(self.session)
        lead(self.daemon, self.term, self.session)
        self.calls: list[tuple[str, Any]] = []
        for owner, name in (
            (controller_election, "raise_epoch"),
            (controller_election, "resign"),
            (term_history, "end"),
        ):
            monkeypatch.setattr(owner, name, self.noting(name))
        self.appointed: list[int] = []

        async def appoint(session: Any, version: int, successor: int) -> None:
            assert (session, version) == (self.session, 3)
            self.appointed.append(successor)

        monkeypatch.setattr(succession, "appoint", appoint)

    def noting(self, name: str) -> Any:
        async def note(*args: Any, **named: Any) -> None:
            self.calls.append((name, named.get("requested", args[2] if len(args) > 2 else None)))

        return note

    def standbys(self, *names: str) -> None:
        async def found(_: Any) -> tuple[str, ...]:
            return names

        self.daemon.claimant.standbys = found  # type: ignore[method-assign, assignment]


def lead(daemon: Any, term: FakeTerm, session: FakeSession) -> None:
    daemon.term, daemon.session = term, session


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    made = Rig(tmp_path, monkeypatch)
    yield made
    made.daemon.state_log.close()


# --- after a bug ---------------------------------------------------------------------------------------------------


def test_bugs_in_a_row_are_counted_until_none_came_for_a_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon: Any = rig.daemon
    counted = []
    for now_s in (1.0, 2.0, 2.0 + module.BUGS_FORGOTTEN_S - 0.5, 2.0 + 3 * module.BUGS_FORGOTTEN_S):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda at=now_s: at))
        daemon._note_bug(rig.term, KeyError("x"))
        counted.append(daemon._bugs)
    assert counted == [1, 2, 3, 1]


async def test_the_pause_doubles_up_to_a_bound_and_ends_with_a_stop(rig: Rig) -> None:
    daemon: Any = rig.daemon
    stops = []

    async def stop() -> None:
        stops.append(True)

    daemon._stopping = SimpleNamespace(wait=stop)
    with capture_logs() as logs:
        for bugs in (1, 2, 3, 30):
            daemon._bugs = bugs
            await daemon._pause_after_bug()
    first, most = module.BUG_PAUSE_S, module.BUG_PAUSE_MAX_S
    assert [entry["seconds"] for entry in logs] == [first, 2 * first, 4 * first, most]
    assert len(stops) == 4


async def test_the_first_bug_after_a_long_time_is_followed_by_a_pause_too(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon: Any = rig.daemon
    now, paused = [0.0], list[int]()

    async def attempt(_: Any) -> Won | None:
        now[0] += 2 * module.BUGS_FORGOTTEN_S
        return Won(7, 3) if len(paused) < 2 and now[0] < 10 * module.BUGS_FORGOTTEN_S else None

    async def lead(*_: Any) -> None:
        daemon._note_bug(rig.term, KeyError("x"))

    async def pause() -> None:
        paused.append(daemon._bugs)

    async def learn(_: Any) -> None: ...

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    daemon._attempt, daemon._lead, daemon._pause_after_bug = attempt, lead, pause
    daemon._patience = SimpleNamespace(learn=learn)
    await daemon._candidate(SimpleNamespace(over=False))
    assert paused == [1, 1]


def test_certificates_of_grpc_and_of_http_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def files(name: str) -> Any:
        return SimpleNamespace(reload=lambda: read.append(name))

    monkeypatch.setattr(module, "daemon_tls", lambda _: files("grpc"))
    monkeypatch.setattr(module, "server_contexts", lambda *_: files("http"))
    monkeypatch.setattr(module, "kafka_tls_files", lambda _: None)
    monkeypatch.setattr(module, "Certificates", lambda *_: None)
    settings = SimpleNamespace(
        tls_files=object(), https=True, http_client_auth="none", zookeeper_tls_files=None, sources={}
    )
    daemon: Any = SimpleNamespace(settings=settings, reloads=Reloads())
    Daemon._read_certificates(daemon)
    daemon.reloads.reload()
    assert read == ["grpc", "http"]


def test_the_newest_crash_files_are_kept(rig: Rig) -> None:
    directory = rig.daemon.settings.state_log_dir
    for number in range(crash_files.KEPT_MAX + 2):
        (directory / f"crash-2020010{number // 10}T00000{number % 10}.json").write_text("old")
    newest = crash_files.write(KeyError("x"), rig.daemon.settings, "standby", None)
    left = sorted(directory.glob("crash-*.json"))
    assert (len(left), left[-1]) == (crash_files.KEPT_MAX, newest)


# --- the end of a term ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "requested"),
    [
        (StopRequested("SIGTERM"), True),
        (Resigned(False, "ann"), True),
        (Released("x"), True),
        (OutrankedError(9, 7), False),
        (KeyError("x"), False),
    ],
    ids=lambda given: type(given).__name__,
)
async def test_only_a_term_that_nobody_asked_to_end_has_failed(
    rig: Rig, ended: Exception, requested: bool
) -> None:
    daemon: Any = rig.daemon
    failures = []
    daemon._patience.failed = lambda: failures.append(True)
    await daemon._end_term_record(rig.session, WON, ended)
    assert (bool(failures), rig.calls) == (not requested, [("end", requested)])


async def test_a_term_that_ends_for_want_of_memory_is_recorded_with_that_reason(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon: Any = rig.daemon
    rig.session.connected = True
    whys = []

    class Exhausted(FakeTerm):
        def __init__(self, session: FakeSession, *_: Any, **__: Any) -> None:
            super().__init__(session)

        async def run(self) -> None:
            raise MemoryError

    async def nothing(*_: Any) -> None: ...

    async def end(_: Any, __: Any, why: str, *, requested: bool) -> None:
        whys.append((why, requested))

    monkeypatch.setattr(module, "Term", Exhausted)
    monkeypatch.setattr(term_history, "begin", nothing)
    monkeypatch.setattr(term_history, "end", end)
    daemon._quarantine = nothing
    with pytest.raises(MemoryError):
        await daemon._lead(rig.session, WON, 0.1)
    assert whys == [("MemoryError", False)]


async def test_of_a_term_that_cannot_begin_nothing_is_said(rig: Rig) -> None:
    daemon: Any = rig.daemon
    daemon.term = None

    async def over(*_: Any) -> None:
        raise SessionLostError("the session expired")

    daemon._quarantine = over
    with pytest.raises(SessionLostError):
        await daemon._lead(rig.session, WON, 0.1)
    assert daemon.current_controller == -1
    assert "controller_epoch" not in structlog.contextvars.get_contextvars()


async def test_a_higher_epoch_in_use_is_raised_over_before_it_resigns(rig: Rig) -> None:
    daemon: Any = rig.daemon
    await daemon._give_up(rig.session, WON, OutrankedError(9, 7))
    assert rig.calls == [("raise_epoch", 9), ("resign", None)]
    rig.calls.clear()
    await daemon._give_up(rig.session, WON, StopRequested("SIGTERM"))
    assert rig.calls == [("resign", None)]


def test_records_of_a_life_name_the_role_before_and_the_epoch_of_the_term(rig: Rig) -> None:
    daemon: Any = rig.daemon
    daemon._life(Role.ACTIVE, "elected")
    daemon.term = None
    daemon._life(Role.STANDBY, "it ended", "resigned")
    entries = [daemon.recent._entries[n] for n in sorted(daemon.recent._entries)]
    changes = [record for entry in entries for record in entry.batch.of(ControllerChange)]
    assert [(c.before, c.to) for c in changes] == [("starting", "active"), ("active", "resigned")]
    assert [entry.controller_epoch for entry in entries] == [7, -1]


# --- requests of operators -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("standbys", "successor", "appointed", "refusal"),
    [
        ((), None, None, "no other controller is registered"),
        (("5", "3"), None, 3, ""),
        (("5", "3", "junk", "²", "9" * 5000), 5, 5, ""),
        (("5", "3"), 4, None, r"controller 4 is no standby: there are [3, 5]"),
    ],
)
async def test_a_standby_is_appointed(
    rig: Rig, standbys: tuple[str, ...], successor: int | None, appointed: int | None, refusal: str
) -> None:
    rig.standbys(*standbys)
    answer = await leadership_requests.resign(rig.daemon, "why", "ann", successor=successor)
    assert answer.startswith(refusal)
    assert bool(answer) == bool(refusal)
    assert rig.appointed == ([] if appointed is None else [appointed])
    why = [f"ann asked to resign in favour of controller {id_}" for id_ in rig.appointed]
    assert [str(end) for end in rig.term.ended] == why


@pytest.mark.parametrize(
    ("error", "refused"), [(0, False), (jute.NODE_EXISTS, False), (jute.BAD_VERSION, True)]
)
async def test_a_resignation_to_brokers_is_written_fenced_with_its_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: int, refused: bool
) -> None:
    rig.daemon.claimant.mode = Takeover.FALLBACK
    monkeypatch.setattr(leadership_requests, "time", SimpleNamespace(time_ns=lambda: 5_000_000_000))
    rig.session.error = error
    answer = await leadership_requests.resign(rig.daemon, "why", "ann", to_kafka=True)
    assert (bool(answer), len(rig.term.ended)) == (refused, not refused)
    ((fence, (_, path, data)),) = rig.session.committed
    assert fence == jute.op_check(b"/controller_epoch", 3)
    assert path == RESIGNATION
    assert b"5000" in data
    assert b"5000000" not in data


async def test_who_claims_again_does_so_at_once(rig: Rig) -> None:
    forgotten = []
    rig.daemon.claimant.mode = Takeover.FALLBACK
    rig.daemon.claimant.forget_claims = lambda: forgotten.append(True)  # type: ignore[method-assign]
    assert await leadership_requests.claim_again(rig.daemon) == ""
    assert (forgotten, rig.session.deleted) == ([True], [RESIGNATION])


@pytest.mark.parametrize("left_out", [True, False])
async def test_a_release_begins_a_new_term_if_anything_was_left_out(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, left_out: bool
) -> None:
    raised = [
        Suspect(SubjectKind.TOPIC, "t", "TopicChange", "KeyError", "d", 7, epoch, 0) for epoch in (1, 2)
    ]
    known = Quarantine().remember(raised[0])
    rig.term.quarantine = known.remember(raised[1]) if left_out else known
    assert rig.term.quarantine.skips(Subject(SubjectKind.TOPIC, "t")) == left_out

    async def release(_session: Any, _won: Any, name: str) -> Suspect | None:
        return known.suspects.get(name)

    monkeypatch.setattr(quarantine, "release", release)
    assert not await leadership_requests.release(rig.daemon, "topic/absent", "why", "ann")
    assert await leadership_requests.release(rig.daemon, "topic/t", "why", "ann")
    assert [type(why) for why in rig.term.ended] == ([Released] if left_out else [])
    assert rig.term.quarantine.suspects == {}


SIGNED: dict[str, Any] = {"reason": "r", "author": "ann"}


@pytest.mark.parametrize(
    ("request_", "leads", "why", "answer"),
    [
        (pb.ResignControllerRequest(**SIGNED), True, "", ("NONE", "")),
        (pb.ResignControllerRequest(**SIGNED), True, "not now", ("OPERATION_NOT_ATTEMPTED", "not now")),
        (pb.ResignControllerRequest(**SIGNED), False, "", ("NOT_CONTROLLER", "")),
        (
            pb.ResignControllerRequest(author="ann"),
            True,
            "",
            ("INVALID_REQUEST", "reason: must be a text of 1 to 1000 characters"),
        ),
        (
            pb.ResignControllerRequest(reason="r", author="a" * 201),
            False,
            "",
            ("INVALID_REQUEST", "author: must be a text of 1 to 200 characters"),
        ),
        (
            pb.ResignControllerRequest(**SIGNED, successor=2, to_kafka=True),
            True,
            "",
            ("INVALID_REQUEST", "successor: only without to_kafka"),
        ),
        (pb.ResignControllerRequest(**SIGNED, successor=0), True, "", ("NONE", "")),
    ],
)
async def test_what_an_operator_who_asks_it_to_resign_is_answered(
    monkeypatch: pytest.MonkeyPatch, request_: Any, leads: bool, why: str, answer: tuple[str, str]
) -> None:
    asked: list[dict[str, Any]] = []

    async def resign(_daemon: Any, reason: str, author: str, **how: Any) -> str:
        asked.append({"reason": reason, "author": author, **how})
        return why

    monkeypatch.setattr(leadership_requests, "resign", resign)
    daemon: Any = SimpleNamespace(active=leads)
    found = await LeadershipService(daemon).methods()["ResignController"](request_)
    error = common_pb2.ErrorCode.Name(found.error_code)
    assert (error, found.error_message) == answer
    successor = request_.successor if request_.HasField("successor") else None
    carried_out = error in ("NONE", "OPERATION_NOT_ATTEMPTED")
    assert asked == [{**SIGNED, "to_kafka": False, "successor": successor}] * carried_out
