"""What a standby keeps in memory, without a server: when it begins, what it takes a path for, and what it lets go."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.runtime.observe.metrics import StandbyMetrics
from controller.runtime.zookeeper import state_mirror
from controller.runtime.zookeeper.acl_migration import NAMED_MAX, Migrated
from controller.runtime.zookeeper.standby import Standby
from controller.runtime.zookeeper.state_mirror import StateMirror, Warmth


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/brokers/topics/t", "t"),
        ("/brokers/topics/t/partitions/7/state", ("t", 7)),
        ("/brokers/topics/t/partitions/2147483647/state", ("t", 2147483647)),
        ("/brokers/topics/t/partitions/10000000000/state", None),
        ("/brokers/topics/t/partitions/x/state", None),
        ("/brokers/topics/t/partitions/\u0663/state", None),
        ("/brokers/topics/t/partitions/-1/state", None),
        ("/brokers/topics/t/partitions/7/other", None),
        ("/brokers/topics/t/partitions/7", None),
        ("/brokers/topics/t/partitions", None),
        ("/brokers/topics", None),
        ("/brokers/ids/1", None),
    ],
)
def test_what_a_path_is_the_place_of(path: str, place: object) -> None:
    assert state_mirror._place_of(path) == place


def metrics() -> StandbyMetrics:
    return StandbyMetrics(CollectorRegistry())


class Old:
    """A session with a server that has no persistent watches."""

    over, connections = False, 1

    def __init__(self) -> None:
        self.asked = 0

    async def watch_tree(self, _: str) -> bool:
        self.asked += 1
        return False


@pytest.mark.parametrize("let_go", [state_mirror.LET_GO_MAX - 1, state_mirror.LET_GO_MAX])
async def test_much_that_was_let_go_is_collected_before_all_is_read_again(
    monkeypatch: pytest.MonkeyPatch, let_go: int
) -> None:
    collected: list[None] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(None))
    session: Any = Old()
    mirror = StateMirror(session, metrics())
    mirror.let_go = let_go
    assert not await mirror._begin()
    much = let_go == state_mirror.LET_GO_MAX
    assert (len(collected), mirror.let_go) == ((1, 0) if much else (0, let_go))
    assert mirror.warmth is Warmth.OFF


async def test_it_begins_once_and_not_where_it_is_of_no_use() -> None:
    session: Any = Old()

    async def digest(*_: object) -> None:
        raise AssertionError("there is no topic")

    standby = Standby(session, metrics(), digest)
    standby.follow()
    standby.follow()
    tasks = [task for task in asyncio.all_tasks() if task.get_name() == "standby"]
    assert len(tasks) == 1
    await asyncio.wait(tasks)
    assert session.asked == 1
    standby.follow()
    await asyncio.sleep(0)
    assert session.asked == 1
    assert standby.bug is None


class Kept:
    """A mirror of which it is said whether it is proved; it reads until it is told to stop."""

    warmth, news = Warmth.WARM, dict[str, None]()

    def __init__(self, proved: bool) -> None:
        self.proved, self.happened = proved, list[str]()

    async def run(self) -> None:
        self.happened.append("run")
        try:
            await asyncio.Event().wait()
        finally:
            self.happened.append("stopped")

    async def settle(self) -> bool:
        self.happened.append("settled")
        return self.proved

    async def end(self) -> None:
        self.happened.append("ended")


async def _no_digest(*_: object) -> None: ...


@pytest.mark.parametrize(
    ("proved", "failed", "happened"),
    [
        (True, False, ["run", "stopped", "settled"]),
        (False, False, ["run", "stopped", "settled", "ended"]),
        (True, True, ["run", "stopped", "ended"]),
    ],
)
async def test_only_what_is_proved_is_used_and_nothing_is_read_any_more(
    proved: bool, failed: bool, happened: list[str]
) -> None:
    session: Any = Old()
    standby, kept = Standby(session, metrics(), _no_digest), Kept(proved)
    standby.mirror = kept  # type: ignore[assignment]
    standby.follow()
    for _ in range(3):
        await asyncio.sleep(0)
    if failed:
        standby._failed(ZeroDivisionError())
    settled: Any = await standby.settled()
    assert settled is (kept if happened[-1] == "settled" else None)
    assert kept.happened == happened


async def test_who_did_not_follow_has_nothing_in_memory() -> None:
    session: Any = Old()
    standby, kept = Standby(session, metrics(), _no_digest), Kept(proved=True)
    standby.mirror = kept  # type: ignore[assignment]
    assert await standby.settled() is None
    standby._failed(ZeroDivisionError())
    standby.follow()
    assert (standby._task, kept.happened) == (None, []), "after a bug it does not begin again"


def test_what_is_dropped_is_let_go() -> None:
    session: Any = Old()
    mirror = StateMirror(session, metrics())
    for size in (5, 7):
        mirror.size = size
        mirror._drop()
    assert (mirror.let_go, mirror.size) == (12, 0)


def test_while_nobody_leads_nobody_is_told_of_topics() -> None:
    session: Any = Old()
    StateMirror(session, metrics())._topic_changed("changed", "/brokers/topics/t")


def test_of_many_znodes_that_cannot_be_changed_the_first_are_named() -> None:
    done = Migrated()
    for number in range(NAMED_MAX + 2):
        done.fail(f"/{number}")
    assert (done.failures, done.failed) == (NAMED_MAX + 2, [f"/{n}" for n in range(NAMED_MAX)])


async def test_no_read_is_of_more_states_than_there_may_be_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many a few topics have; and none is left out."""
    monkeypatch.setattr(state_mirror, "READ_MAX", 10)
    monkeypatch.setattr(state_mirror, "TOPICS_MAX", 2)
    session: Any = Old()
    mirror, read = StateMirror(session, metrics()), list[list[Any]]()
    sizes = {"t0": 3, "t1": 42, "t2": 0, "t3": 7, "t4": 4}

    async def names() -> list[str]:
        return list(sizes)

    async def topics(these: Sequence[str]) -> list[Any]:
        return [(name, n) for name in these for n in range(sizes[name])]

    async def states(keys: Sequence[Any]) -> None:
        read.append(list(keys))

    for name, does in (("_names", names), ("_read_topics", topics), ("_read", states)):
        monkeypatch.setattr(mirror, name, does)
    await mirror._read_all()
    assert [len(keys) for keys in read] == [10, 10, 10, 10, 10, 6]
    assert sorted(key for keys in read for key in keys) == [(t, n) for t in sizes for n in range(sizes[t])]
