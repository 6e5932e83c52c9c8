"""Parts of the console without a cluster: parameters, patience, sessions, counts, and moments of the past."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import example, given
from hypothesis import strategies as st

from controller.core.model import (
    Attribution,
    Cluster,
    Flapping,
    Maintenance,
    Partition,
    PartitionState,
    StopApproval,
    Topic,
)
from controller.core.reasons import StateGone
from controller.core.records import (
    AuditFinding,
    BrokerChange,
    FailoverPhase,
    LeadershipChange,
    LogBatch,
    PartitionTransition,
    ReassignmentStep,
    Rejection,
    RequestRecord,
    StateRecord,
    TopicChange,
)
from controller.core.requests.errors import ErrorCode
from controller.core.topics.reasons import CreatedAnew
from controller.planning.cluster_health import Told
from controller.runtime.http.access import CALLER
from controller.runtime.http.connections import ANSWERING, FIRST_REQUEST_S, IDLE_S, REQUEST_S
from controller.runtime.http.console import (
    asking,
    changes,
    events,
    replay,
    survey,
    views,
    whatif,
    work,
)
from controller.runtime.http.console.asking import RefusedError, number_in, number_of
from controller.runtime.http.console.changes import BODY_MAX
from controller.runtime.http.console.replay import PARTS, Replay, Then
from controller.runtime.http.console.sessions import TICKET_S, TOKEN, TOKEN_S, Sessions
from controller.runtime.http.console.survey import Counts, Survey, Surveyor, total
from controller.runtime.http.min_isr import MinIsr
from controller.runtime.http.server import STUCK_AFTER_S
from controller.runtime.observe.history import Recent
from controller.runtime.push.status import SenderStatus
from proto.gen import inspection_pb2
from proto.security.authorization import AllowAll, Principal
from tests.provers.sim.environment import loop
from tests.support.core.world import a_broker, state

# --- parameters ----------------------------------------------------------------------------------------------


@given(st.one_of(st.text(max_size=25), st.integers().map(str)), st.integers(-5, 5), st.integers(0, 2**70))
@example("٣", 0, 9)
@example("²", 0, 9)
@example("--1", -1, 9)
@example("9" * 5000, 0, 9)
@example("100000000000000000000", 0, 2**70)
@example("10000000000000000000", 0, 2**70)
def test_a_number_is_one_within_its_bounds(text: str, least: int, most: int) -> None:
    digits = text[1:] if text.startswith("-") else text
    plain = set(digits) <= set("0123456789") and 0 < len(digits) <= 20
    if plain and least <= int(text) <= most:
        assert number_of(text, "limit", least, most) == int(text)
        return
    with pytest.raises(RefusedError, match=f"must be from {least} to {most}$") as refused:
        number_of(text, "limit", least, most)
    assert refused.value.error is ErrorCode.INVALID_REQUEST
    assert len(str(refused.value)) < 4000


def test_what_is_left_out_has_its_default_or_is_refused() -> None:
    request = make_mocked_request("GET", "/?a=7")
    assert (number_in(request, "a", 0, 9, 1), number_in(request, "b", 0, 9, 1)) == (7, 1)
    assert number_in(request, "b", 0, 9, 0) == 0
    with pytest.raises(RefusedError, match="b = ''"):
        number_in(request, "b", 0, 9)


# --- patience ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("takes_s", "went_on"), [(1.0, 0), (asking.GO_ON_S * 2.5, 2), (asking.WORK_S + 1, None)]
)
def test_long_work_goes_on_until_its_time_is_up(takes_s: float, went_on: int | None) -> None:
    parts: list[float] = []
    request: Any = {ANSWERING: SimpleNamespace(goes_on=lambda: parts.append(1))}

    async def run() -> None:
        task = asyncio.ensure_future(asyncio.sleep(takes_s, "done"))
        if went_on is None:
            with pytest.raises(RefusedError, match="takes more than 300 s: use pctl") as refused:
                await asking._patiently(request, task)
            assert refused.value.error is ErrorCode.OPERATION_NOT_ATTEMPTED
            await asyncio.wait([task])
            assert task.cancelled()
            return
        assert await asking._patiently(request, task) == "done"
        assert len(parts) == went_on
        assert await asking._patiently({}, asyncio.sleep(takes_s, "also")) == "also"  # type: ignore[arg-type]

    loop.run(run())


# --- sessions ------------------------------------------------------------------------------------------------


class Browser:
    """Sends requests to one process, whose clock the test sets."""

    def __init__(self, own_name: str = "ours.example:8080") -> None:
        self.now_s, self.denied = 1000.0, list[tuple[Any, ...]]()
        daemon: Any = SimpleNamespace(
            http_endpoint=own_name,
            epoch=7,
            audit_log=SimpleNamespace(denied=lambda *given: self.denied.append(given)),
        )
        self.sessions = Sessions(daemon, lambda: self.now_s)

    def request(self, host: str = "ours.example:8080", *, tls: bool = False, **headers: str) -> web.Request:
        extra = {"sockname": ("127.0.0.1", 8080), "ssl_object": object() if tls else None}
        transport: Any = SimpleNamespace(get_extra_info=lambda name, default=None: extra.get(name, default))
        sent = {"Host": host, "Origin": f"http://{host}"} | {
            k.replace("_", "-"): v for k, v in headers.items()
        }
        # A real one of TLS has a context, too, which aiohttp's mock asks for.
        extra["sslcontext"] = extra["ssl_object"]
        made = make_mocked_request("POST", "/ui/api/try", headers=sent, transport=transport)
        made[CALLER] = Principal("ann", "ipv4:192.0.2.1:4")
        return made

    def logged_in(self) -> dict[str, Any]:
        """Headers of the page's session."""
        token, set_cookie = self.sessions.begin(self.request())
        response = web.Response()
        set_cookie(response)
        ((name, cookie),) = response.cookies.items()
        assert (name, cookie["path"], cookie["samesite"], cookie["httponly"], cookie["secure"]) == (
            "console-8080",
            "/ui/api",
            "Strict",
            True,
            False,
        )
        return {TOKEN: token, "Cookie": f"{name}={cookie.value}"}


def test_the_numbers_are_the_documented_ones() -> None:
    """docs/console.md: seconds, bytes and streams; docs/operations.md: of connections, and what is stuck."""
    assert (TOKEN_S, TICKET_S, BODY_MAX) == (600, 300, 512 * 1024)
    assert (events.STREAMS_MAX, events.STREAM_S) == (32, 600.0)
    assert (FIRST_REQUEST_S, IDLE_S, REQUEST_S) == (10.0, 75.0, 30.0)
    assert STUCK_AFTER_S == 60.0
    # At most once a second, and a tenth of the time of one processor.
    assert (survey.COUNT_EVERY_S, survey.SHARE) == (1.0, 10.0)
    assert (survey.TILES_MAX, changes.PARTITIONS_MAX) == (1200, 1000)


def test_a_wall_clock_that_is_put_back_makes_no_ticket_last_longer() -> None:
    browser = Browser()
    ticket = Sessions(browser.sessions._daemon).ticket(browser.request(), b"change")
    assert int(ticket.partition(".")[0]) <= time.monotonic() + TICKET_S


def test_a_token_and_a_ticket_count_for_their_time() -> None:
    browser = Browser()
    headers = browser.logged_in()
    ticket = browser.sessions.ticket(browser.request(**headers), b"change")
    browser.now_s += TICKET_S
    browser.sessions.require_ticket(browser.request(**headers), b"change", ticket)
    for change, shown in ((b"other", ticket), (b"change", ""), (b"change", f"9{ticket}")):
        with pytest.raises(RefusedError, match="must be of a dry run of the same change") as refused:
            browser.sessions.require_ticket(browser.request(**headers), change, shown)
        assert refused.value.error is ErrorCode.INVALID_REQUEST
    browser.now_s += 1
    with pytest.raises(RefusedError):
        browser.sessions.require_ticket(browser.request(**headers), b"change", ticket)
    browser.now_s += TOKEN_S - TICKET_S - 1
    browser.sessions.require(browser.request(**headers))
    assert not browser.denied
    browser.now_s += 1
    with pytest.raises(RefusedError, match="without a valid token") as refused:
        browser.sessions.require(browser.request(**headers))
    assert refused.value.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert browser.denied == [("DryRun", ("User:ann", "192.0.2.1"), "CROSS_SITE", None, 7)]


@pytest.mark.parametrize(
    ("host", "headers", "let_in"),
    [
        ("ours.example:8080", {}, True),
        ("OURS.example", {}, True),
        ("localhost:1", {}, True),
        ("127.0.0.1:8080", {}, True),
        ("[::1]:8080", {}, True),
        ("evil.example:8080", {}, False),
        ("ours.example.evil:8080", {}, False),
        ("evil.example:8080", {"Authorization": "Bearer x"}, True),
        ("evil.example:8080", {"tls": True}, True),
    ],
)
def test_names_by_which_a_browser_may_come(host: str, headers: Any, let_in: bool) -> None:
    browser = Browser()
    request = browser.request(host, **headers)
    if let_in:
        assert browser.sessions.begin(request)[0]
        return
    with pytest.raises(RefusedError, match="not known to be this controller's"):
        browser.sessions.begin(request)


def test_a_request_names_one_host() -> None:
    request = Browser().request(tls=True)
    for hosts in ([], ["ours.example", "evil.example"]):
        asked: Any = SimpleNamespace(
            headers=SimpleNamespace(getall=lambda _, default=None, hosts=hosts: hosts or default),
            transport=request.transport,
            cookies={},
        )
        with pytest.raises(RefusedError, match="without one Host header"):
            Browser().sessions.begin(asked)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    ("origin", "site", "ours"),
    [
        ("http://ours.example:8080", "same-origin", "plain"),
        ("https://OURS.example:8080", "same-origin", "both"),
        ("https://ours.example", "same-origin", ""),
        ("http://ours.example:8080.evil.example", "same-origin", ""),
        ("https://ours.example:80800", "same-origin", ""),
        ("null", "same-origin", ""),
        ("https://ours.example:8080", "same-site", ""),
        ("https://ours.example:8080", "cross-site", ""),
    ],
)
def test_origins_from_which_a_change_may_come(origin: str, site: str, ours: str, tls: bool) -> None:
    browser = Browser()
    headers = browser.logged_in() | {"Origin": origin, "Sec-Fetch-Site": site}
    request = browser.request(tls=tls, **headers)
    if ours == "both" or (ours and not tls):
        browser.sessions.require(request)
        assert not browser.denied
        return
    with pytest.raises(RefusedError, match="from a page of another site"):
        browser.sessions.require(request)
    assert len(browser.denied) == 1


# --- counts --------------------------------------------------------------------------------------------------


def cluster_of(*topics: str, partitions: int = 2) -> Cluster:
    cluster = Cluster(1, 7)
    cluster.brokers.update({b: a_broker(b, 50 + b) for b in (1, 2)})
    for name in topics:
        topic = Topic(name)
        for number in range(partitions):
            partition = topic.partitions[number] = Partition(topic, number, (1, 2))
            partition.leadership, partition.state = state(1, (1, 2), 3, 5), PartitionState.ONLINE
        cluster.add_topic(topic)
    return cluster


class Settings(MinIsr):
    """Of no topic, and read from nowhere."""

    async def refresh(self, term: Any) -> None:
        del term


def term_of(cluster: Any, epoch: int = 7) -> Any:
    return SimpleNamespace(
        machine=SimpleNamespace(cluster=cluster), changes=3, won=SimpleNamespace(epoch=epoch)
    )


@pytest.mark.parametrize("troubled", ["offline", "under_min_isr", "under_replicated", "moving", "partitions"])
def test_a_topic_is_well_without_trouble(troubled: str) -> None:
    assert Counts(**{troubled: 1}).well is (troubled in ("moving", "partitions"))


def test_a_count_is_made_once_in_a_while_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Again after a second, or when it has taken long after ten times of that, and for another term at once."""
    worked_s, slow = 0.0, term_of(None, 9)

    async def run() -> None:
        nonlocal worked_s
        clock = asyncio.get_running_loop().time
        monkeypatch.setattr(survey, "time", SimpleNamespace(monotonic=clock, thread_time=lambda: worked_s))
        surveyor, term = Surveyor(Settings()), term_of(cluster_of("a", "b"))
        first = await surveyor.survey(term)
        assert (first.names, first.total, first.changes) == (["a", "b"], Counts(4), 3)
        await asyncio.sleep(survey.COUNT_EVERY_S * 0.9)
        assert await surveyor.survey(term) is first
        other = await surveyor.survey(term_of(cluster_of("c"), 8))
        assert other.names == ["c"]
        again = await surveyor.survey(term)
        assert again is not first
        await asyncio.sleep(survey.COUNT_EVERY_S * 1.1)
        slow.machine.cluster = Slow(cluster_of("a", "b"))
        once = await surveyor.survey(slow)
        assert (once.changes, slow.changes) == (3, 6), "what changed meanwhile is not in the count"
        await asyncio.sleep(survey.SHARE * 0.9)
        assert await surveyor.survey(slow) is once
        await asyncio.sleep(survey.SHARE * 0.2)
        assert await surveyor.survey(slow) is not once

    class Slow:
        """Counting it takes a second of the processor."""

        def __init__(self, cluster: Cluster) -> None:
            self._cluster, self.brokers = cluster, cluster.brokers
            self.deletion_requested = cluster.deletion_requested

        @property
        def topics(self) -> Any:
            nonlocal worked_s
            worked_s += 1 / 3
            slow.changes += 1
            return self._cluster.topics

    loop.run(run())


def test_where_nothing_is_there_is_nothing_to_count() -> None:
    assert total([]) == Survey({1}).total == (0, 0, 0, 0, 0)
    assert total([Counts(3, 1, 0, 1, 2), Counts(2, 0, 1, 0, 0)]) == (5, 1, 1, 1, 2)


async def test_nobody_misses_a_leader_of_a_topic_that_is_being_deleted() -> None:
    cluster = cluster_of("gone", "t", "waiting")
    for name in ("gone", "t", "waiting"):
        cluster.topics[name].partitions[0].leadership = None
    cluster.topics_to_delete, cluster.deletions_waiting = {"gone"}, {"waiting": StateGone()}
    found = await Surveyor(Settings()).survey(term_of(cluster))
    assert found.topics == [Counts(2), Counts(2, offline=1), Counts(2)]
    (finding,) = found.tally.findings()
    assert finding.text == "1 partition without a leader that is alive: t-0"
    # Of the three without a leader only one is missed.
    assert (found.brokers[2].replicas, found.brokers[2].out_of_sync) == (6, 1)


@pytest.mark.parametrize("whose", ["survey", "replay"])
def test_counting_leaves_time_for_others(whose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between portions of all topics, however small each is."""
    module = survey if whose == "survey" else replay
    monkeypatch.setattr(module, "AT_ONCE", 3)
    term, turns = term_of(cluster_of("a", "b", "c", "d")), 0

    async def run() -> int:
        nonlocal turns
        done = asyncio.Event()

        async def other() -> None:
            nonlocal turns
            while not done.is_set():
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        await asyncio.sleep(0)
        before = turns
        if whose == "survey":
            # All of the processor's time is the other's.
            monkeypatch.setattr(survey, "time", SimpleNamespace(thread_time=lambda: float(turns)))
            surveyor = Surveyor(Settings())
            found = await surveyor._counted(survey.Survey({1, 2}), term.machine.cluster)
            assert surveyor._worked_s == 0
        else:
            found = await a_replay(Recent(1, 100))._counted(term, Then({}, set(), frozenset({1, 2})))
        done.set()
        await beside
        assert found.total == total(found.topics) == Counts(8)
        return turns - before

    assert asyncio.run(run()) == 2


@pytest.mark.parametrize(
    ("unreachable", "refused", "shown"),
    [
        ("asleep", {}, "asleep"),
        ("", {1: "STALE"}, "refuses LeaderAndIsr of 1 partition: STALE x1"),
        ("asleep", {1: "STALE"}, "asleep"),
        ("", {}, ""),
    ],
)
def test_what_a_broker_takes_no_pushes_for(unreachable: str, refused: Any, shown: str) -> None:
    status = SenderStatus(7, unreachable=unreachable, not_led=refused)
    term: Any = SimpleNamespace(senders=SimpleNamespace(status={1: status}))
    assert (views._push_problem(term, 1), views._push_problem(term, 2)) == (shown, "")


def test_brokers_are_shown_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "_push_problem", lambda _, id_: "asleep" if id_ == 2 else "")
    cluster = cluster_of("t")
    cluster.topics["t"].partitions[0].assign((1, 9))
    cluster.approvals = {1: StopApproval(51, "w", "a", 1), 2: StopApproval(1, "of a former life", "a", 1)}
    cluster.flapping = {2: Flapping(3, 0, 300_000_000)}
    term = term_of(cluster)
    term.auditor = SimpleNamespace(brokers={}, newer_states=lambda id_: (7 * id_ - 7, ""))
    term.machine.outbox = SimpleNamespace(pending=lambda _: 4)
    counted = survey.Survey(cluster.brokers)
    for partition in cluster.partitions():
        counted.count(partition, 1)
    names = ("id", "gone", "may_stop", "replicas", "led", "problem")
    shown = [[row[name] for name in names] for row in views._brokers(term, counted)]
    assert shown == [
        [1, False, True, 2, 2, ""],
        [2, False, False, 1, 0, "asleep"],
        [9, True, False, 1, 0, ""],
    ]
    assert [views._told(term, id_) for id_ in (1, 2)] == [
        Told(),
        Told("asleep", 3, 300, 7),
    ]


# --- moments of the past -------------------------------------------------------------------------------------


def a_replay(recent: Recent) -> Replay:
    daemon = SimpleNamespace(recent=recent, authorizer=AllowAll())
    return Replay(SimpleNamespace(daemon=daemon), Settings())  # type: ignore[arg-type]


def batch(*records: StateRecord) -> LogBatch:
    return LogBatch(records, "why", "BrokerChange", 12)


def test_what_changes_during_the_count_is_undone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "AT_ONCE", 1)
    cluster, recent = cluster_of("a", "b", "c"), Recent(1, 1000)
    changed, created = (cluster.topics[name].partitions[0] for name in ("b", "c"))
    led, lost, later = state(1, (1, 2), 3, 5), state(-1, (2,), 4, 6), state(-1, (2,), 5, 7)
    recent.add(batch(BrokerChange(3, "online", "offline")), 7, 10)

    async def run() -> list[Counts]:
        replayed, term = a_replay(recent), term_of(cluster)
        counting = asyncio.create_task(replayed._counted(term, await replayed._then(term, 15)))
        for record in (
            LeadershipChange(changed, led, lost),
            PartitionTransition(created, PartitionState.NON_EXISTENT, PartitionState.NEW, None),
            LeadershipChange(changed, lost, later),
        ):
            changed.leadership = later
            recent.add(batch(record), 7, 20)
            await asyncio.sleep(0)
        return (await counting).topics

    assert asyncio.run(run()) == [Counts(2), Counts(2), Counts(1)]


def test_changes_are_undone_newest_first() -> None:
    cluster = cluster_of("t", partitions=3)
    one, two, three = cluster.topics["t"].partitions.values()
    old, between, now = state(1, (1, 2), 1, 1), state(2, (2,), 2, 2), state(2, (1, 2), 3, 3)
    gone, new, online = PartitionState.NON_EXISTENT, PartitionState.NEW, PartitionState.ONLINE
    history: list[tuple[int, LogBatch]] = [
        (10, batch(LeadershipChange(one, old, between), LeadershipChange(one, between, now))),
        (20, batch(PartitionTransition(two, gone, new, None), PartitionTransition(two, new, online, old))),
        (30, batch(PartitionTransition(three, online, gone, None))),
        (40, batch(PartitionTransition(three, gone, new, None))),
        (50, batch(BrokerChange(1, "offline", "online"), BrokerChange(2, "online", "offline"))),
        # Neither came nor went.
        (60, batch(BrokerChange(3, "online", "online"), BrokerChange(4, "offline", "offline"))),
        (60, batch(BrokerChange(5, "online", "shutting_down"), BrokerChange(6, "shutting_down", "online"))),
    ]
    recent = Recent(1, 1000)
    for ts_us, entry in history:
        recent.add(entry, 7, ts_us)
    recent.add(batch(LeadershipChange(one, now, old)), 8, 70)

    def then(at_us: int) -> Then:
        return asyncio.run(a_replay(recent)._then(term_of(cluster), at_us))

    t = "t"
    assert then(60) == Then({}, set(), frozenset({1, 2}))
    assert then(50) == Then({}, set(), frozenset({1, 2}))
    assert then(49) == Then({}, set(), frozenset({1}))
    assert then(39) == Then({}, {(t, 2)}, frozenset({1}))
    assert then(29) == Then({}, set(), frozenset({1}))
    assert then(19) == Then({}, {(t, 1)}, frozenset({1}))
    assert then(9) == Then({(t, 0): old}, {(t, 1)}, frozenset({1}))


def test_the_scale_has_each_record_in_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    now_us = 1000 + PARTS * 10 - 1
    monkeypatch.setattr(replay, "_now_us", lambda: now_us)
    recent = Recent(1, 1000)
    recent.add(batch(FailoverPhase("x", 1, 1)), 7, 1000)
    for ts_us in (999, 1000, 1009, 1010, now_us, now_us + 1_000_000):
        recent.add(batch(BrokerChange(1, "online"), BrokerChange(2, "online")), 7, ts_us)
    recent.add(batch(RequestRecord("M", "p", "a", "s", "r")), 7, 1020)
    cluster = cluster_of("t")
    one = cluster.topics["t"].partitions[0]
    kinds: tuple[StateRecord, ...] = (
        LeadershipChange(one, None, state(1, (1,))),
        TopicChange("t", "", "created"),
        ReassignmentStep(one, "ongoing", "r"),
        Rejection("CONFLICT", "r"),
        AuditFinding(one, 1, "differs", "r"),
    )
    for part, record in enumerate(kinds, 3):
        recent.add(batch(record), 7, 1000 + part * 10)

    def scale_of(term: Any, replayed: Replay) -> dict[str, Any]:
        return asyncio.run(replayed._made_scale(term))

    found = scale_of(term_of(cluster), a_replay(recent))
    assert (found["from_us"], found["until_us"], found["parts"]) == ("1000", str(now_us), PARTS)
    shown = {name: {n: c for n, c in enumerate(column) if c} for name, column in found["counts"].items()}
    assert shown == {
        "brokers": {0: 6, 1: 2, PARTS - 1: 4},
        "requests": {2: 1},
        **{name: {n: 1} for n, name in enumerate(("leaders", "topics", "moves", "refusals", "audit"), 3)},
    }
    page = (Path(replay.__file__).parent / "static" / "replay.js").read_text()
    assert all(f'["{name}", ' in page for name in shown)


def test_the_scale_is_made_again_after_a_while_and_for_another_term(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    async def run() -> None:
        monkeypatch.setattr(replay, "time", SimpleNamespace(monotonic=asyncio.get_running_loop().time))
        replayed = a_replay(Recent(1, 10))
        terms = [term_of(cluster_of("t")), term_of(cluster_of("t"), 8)]
        asking_: Any = replayed._asking

        async def counting(_: Any) -> dict[str, Any]:
            nonlocal made
            made += 1
            return {"made": made}

        monkeypatch.setattr(replayed, "_made_scale", counting)

        async def asked(term: Any) -> Any:
            asking_.leading = lambda: term
            return (await replayed._timeline(make_mocked_request("GET", "/")))["made"]

        assert [await asked(terms[0]), await asked(terms[0]), await asked(terms[1])] == [1, 1, 2]
        await asyncio.sleep(replay.SCALE_EVERY_S * 0.9)
        assert await asked(terms[1]) == 2
        await asyncio.sleep(replay.SCALE_EVERY_S * 0.2)
        assert await asked(terms[1]) == 3

    loop.run(run())


def test_no_former_term_is_kept_in_memory() -> None:
    """With it would be its topics and partitions, until the pages are looked at in another term."""

    async def run() -> None:
        replayed, surveyor = a_replay(Recent(1, 10)), Surveyor(Settings())
        term: Any = type("Term", (), vars(term_of(cluster_of("t"))))()
        former, asking_ = weakref.ref(term), cast("Any", replayed._asking)
        asking_.leading = former
        await surveyor.survey(term)
        await replayed._timeline(make_mocked_request("GET", "/"))
        await replayed._survey(term, 1)
        del term
        gc.collect()
        assert former() is None

    asyncio.run(run())


def test_of_many_who_ask_for_a_moment_only_some_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        clock = asyncio.get_running_loop().time
        monkeypatch.setattr(replay, "time", SimpleNamespace(monotonic=clock, thread_time=lambda: 0.0))
        replayed, term = a_replay(Recent(1, 10)), term_of(cluster_of("t"))
        for _ in range(2):
            results = await asyncio.gather(
                *(replayed._survey(term, at_us) for at_us in range(replay.WAITING_MAX + 2)),
                return_exceptions=True,
            )
            refused = [r for r in results if isinstance(r, RefusedError)]
            assert [r.error for r in refused] == [ErrorCode.OPERATION_NOT_ATTEMPTED] * 2
            assert results[-2:] == refused
        assert await replayed._survey(term, 3) is results[3], "the last one is kept"
        assert await replayed._survey(term, 2) is not results[2]
        kept = await replayed._survey(term, 3)
        assert await replayed._survey(term_of(cluster_of("t"), 8), 3) is not kept, "another term's past"

    loop.run(run())


# --- moves, plans and changes -------------------------------------------------------------------------------


def test_of_a_move_it_is_counted_what_has_caught_up() -> None:
    move: Any = SimpleNamespace(
        topic="t",
        partition=0,
        replicas=[1, 2, 9],
        adding_replicas=[2, 9],
        removing_replicas=[7],
        queued=True,
        reasons=["a", "b"],
    )
    shown = work._move(term_of(cluster_of("t")), move)
    assert shown == {
        "topic": "t",
        "partition": 0,
        "replicas": [1, 2, 9],
        "adding": [2, 9],
        "removing": [7],
        "queued": True,
        "synced": 1,
        "why": "a; b",
    }
    move.topic = "gone"
    assert work._move(term_of(cluster_of("t")), move)["synced"] == 0


async def test_replicas_leave_a_broker_for_where_they_are_to_be_and_who_asks_may_see() -> None:
    cluster = cluster_of("hidden", "t")
    cluster.brokers[3] = a_broker(3, 53)
    first, second = cluster.topics["t"].partitions.values()
    cluster.reassignments.queued[second] = (2, 3)
    assert (await work._targets(term_of(cluster), 1, lambda _: True))["t", 1] == (2, 3)
    # No move begins of a topic that is to be deleted, whatever that waits for.
    cluster.deletions_waiting["hidden"] = CreatedAnew()
    assert {topic for topic, _ in await work._targets(term_of(cluster), 1, lambda _: True)} == {"t"}
    cluster.deletions_waiting.clear()
    asked: Any = SimpleNamespace(leading=lambda: term_of(cluster), may_see=lambda _, name: name == "t")
    found = await work.Work(asked)._vacate(request := make_mocked_request("GET", "/?broker=1"))
    assert found == {"moves": [{"topic": "t", "partition": first.number, "replicas": (3, 2)}], "of": 1}
    # Who is drained gets nothing, though it has nothing yet.
    cluster.brokers[4] = a_broker(4, 54)
    cluster.maintenance = Maintenance(drained={4: Attribution("r", "a")})
    (moved,) = (await work.Work(asked)._vacate(request))["moves"]
    assert moved["replicas"] == (3, 2)
    del cluster.brokers[4]
    cluster.maintenance = Maintenance()
    # Not even that a hidden topic is in the way.
    del cluster.brokers[3]
    cluster.reassignments.queued[first] = (2,)
    assert await work.Work(asked)._vacate(request) == {"moves": [], "of": 0}


def test_lists_of_a_plan_are_cut_and_counted_whole() -> None:
    step = {name: [0] * whatif.NAMED_MAX for name in whatif._LISTS} | {"offline": [0] * 99, "step": "s"}
    cut = whatif._cut(step)
    assert (len(cut["offline"]), cut["counts"]["offline"], cut["step"]) == (whatif.NAMED_MAX, 99, "s")
    assert cut["counts"]["moved"] == whatif.NAMED_MAX


@pytest.mark.parametrize(
    ("asked", "named", "everything"),
    [
        (changes.Elect(), 0, True),
        (changes.Elect(topic="t"), 2, False),
        (changes.Elect(topic="bare"), 0, False),
        (changes.Elect(partitions=[changes.Named("t", 1)]), 1, False),
    ],
    ids=["of all", "of a topic", "of a topic without partitions", "of one"],
)
def test_an_election_is_of_all_only_where_nothing_is_named(
    asked: changes.Elect, named: int, everything: bool
) -> None:
    cluster = cluster_of("t")
    cluster.add_topic(Topic("bare"))
    leading: Any = SimpleNamespace(leading=lambda: term_of(cluster), daemon=None)
    request = changes.Changes(leading, None)._election(asked, "why")  # type: ignore[arg-type]
    assert (len(request.topic_partitions), request.all_partitions) == (named, everything)


async def test_a_dry_run_counts_all_writes_and_shows_some(monkeypatch: pytest.MonkeyPatch) -> None:
    made = changes.Changes(SimpleNamespace(daemon=None), None)  # type: ignore[arg-type]
    written = {"writes": [{"path": "/x" * 400}] * (changes.WRITES_MAX + 1), "pushes": {}, "notes": ["n"] * 99}
    answer = inspection_pb2.DryRunResponse(dry_run=msgspec.json.encode(written).decode())

    async def given(*_: Any) -> Any:
        return answer

    monkeypatch.setattr(made, "_read", given)
    monkeypatch.setattr(made, "_rpc", given)
    monkeypatch.setattr(made, "_steps", lambda *_: [])
    monkeypatch.setattr(made, "_sessions", SimpleNamespace(ticket=lambda *_: "ticket"))
    monkeypatch.setattr(changes, "_digested", lambda _: b"")
    found = await made._try(make_mocked_request("POST", "/"))
    assert (len(found["writes"]), found["writes_count"]) == (changes.WRITES_MAX, changes.WRITES_MAX + 1)
    assert len(found["writes"][0]["path"]) == changes.SHOWN_MAX + len("...")
    assert (len(found["notes"]), found["ticket"]) == (changes.NAMED_MAX, "ticket")
