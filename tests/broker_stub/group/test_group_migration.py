"""Coordinators move: loading, unloading, and their races, gated by leader epochs (reference, section 10.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_stub.group.coordinator import Commit
from broker_stub.group.messages import GroupKey, encode
from broker_stub.group.replay import PROBLEMS_MAX, RECORDS_PER_TURN, replay_log
from broker_stub.group.settings import GroupSettings
from broker_stub.log import batches
from proto.gen import common_pb2 as codes
from tests.support.broker.group_fakes import (
    GROUP,
    NEIGHBOUR,
    OTHER,
    CoordinatorHarness,
    MemoryLog,
    begin,
    offset_record,
    run_ready_tasks,
)

T0, T1 = ("t", 0), ("t", 1)


@pytest.fixture
async def bench() -> AsyncIterator[CoordinatorHarness]:
    """Owner of nothing yet; offset 7 of GROUP is in the log of partition 1."""
    bench = CoordinatorHarness()
    bench.log.write(1, [offset_record(GROUP, 0, 7)])
    yield bench
    await bench.coordinator.stop()
    assert bench.bugs == []


def owned(bench: CoordinatorHarness) -> list[int]:
    found: list[int] = bench.coordinator.describe()["owned"]
    return found


async def test_from_election_to_loaded(bench: CoordinatorHarness) -> None:
    """Before the load starts clients are sent elsewhere, then told to wait, then served."""
    coordinator = bench.coordinator
    coordinator.on_election(1, 5)
    seen = [coordinator.fetch_offsets(GROUP, None)[0]]
    while seen[-1] != codes.NONE:
        await asyncio.sleep(0)
        if (error := coordinator.fetch_offsets(GROUP, None)[0]) != seen[-1]:
            seen.append(error)
    assert seen == [codes.NOT_COORDINATOR, codes.COORDINATOR_LOAD_IN_PROGRESS, codes.NONE]
    assert bench.group()["offsets"] == [{"topic": "t", "partition": 0, "offset": 7}]


async def test_until_the_unload_runs_the_old_coordinator_answers(bench: CoordinatorHarness) -> None:
    await bench.elect(1, epoch=5)
    bench.coordinator.on_resignation(1, 6)
    assert bench.coordinator.fetch_offsets(GROUP, None)[0] == codes.NONE
    await run_ready_tasks()
    assert bench.coordinator.fetch_offsets(GROUP, None)[0] == codes.NOT_COORDINATOR


async def test_unloading_tells_those_who_wait(bench: CoordinatorHarness) -> None:
    await bench.elect(1, 2, epoch=5)
    join = await bench.join()
    joining = [await bench.join(NEIGHBOUR), await bench.join(NEIGHBOUR)]
    stays = await bench.join(OTHER)
    await bench.pass_ms(3_000)
    await bench.pass_ms(3_000)
    assert join.done()
    late = await bench.join(GROUP)
    follower = (await joining[1]).member_id
    sync = await begin(bench.coordinator.sync_group(NEIGHBOUR, follower, 1, {}))
    bench.coordinator.on_resignation(1, 6)
    await run_ready_tasks()
    assert (await late).error == codes.NOT_COORDINATOR
    assert (await sync).error == codes.NOT_COORDINATOR
    assert bench.coordinator.heartbeat(NEIGHBOUR, follower, 1) == codes.NOT_COORDINATOR
    assert owned(bench) == [2]
    assert bench.coordinator.heartbeat(OTHER, (await stays).member_id, 1) == codes.NONE


async def test_an_assignment_on_its_way_is_told_not_coordinator(bench: CoordinatorHarness) -> None:
    await bench.elect(1, epoch=5)
    join = await bench.join()
    await bench.pass_ms(3_000)
    member = (await join).member_id
    bench.log.acknowledge.clear()
    sync = await begin(bench.coordinator.sync_group(GROUP, member, 1, {member: b"0"}))
    bench.coordinator.on_resignation(1, 6)
    await run_ready_tasks()
    assert (await sync).error == codes.NOT_COORDINATOR
    bench.log.acknowledge.set()
    await run_ready_tasks()
    assert bench.coordinator.describe()["groups"] == {}


ELECTED, RESIGNED = True, False


@pytest.mark.parametrize(
    ("events", "is_owned"),
    [
        ([(ELECTED, 5), (RESIGNED, 6)], False),
        ([(ELECTED, 5), (RESIGNED, 5)], False),
        ([(ELECTED, 5), (RESIGNED, 4)], True),
        ([(ELECTED, 5), (RESIGNED, None)], False),
        ([(RESIGNED, 6), (ELECTED, 5)], False),
        ([(RESIGNED, 5), (ELECTED, 5)], True),
        ([(RESIGNED, None), (ELECTED, 0)], True),
        ([(ELECTED, 5), (RESIGNED, None), (ELECTED, 0)], True),
        ([(ELECTED, 5), (RESIGNED, 6), (ELECTED, 7)], True),
        ([(ELECTED, 7), (RESIGNED, 6), (ELECTED, 5)], True),
        ([(ELECTED, 5), (ELECTED, 6), (RESIGNED, 5)], True),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_older_epochs_are_ignored(
    bench: CoordinatorHarness, events: list[tuple[bool, int | None]], is_owned: bool, at_once: bool
) -> None:
    for elected, epoch in events:
        if elected:
            assert epoch is not None
            bench.coordinator.on_election(1, epoch)
        else:
            bench.coordinator.on_resignation(1, epoch)
        if not at_once:
            await run_ready_tasks()
    await run_ready_tasks()
    assert owned(bench) == ([1] if is_owned else [])
    assert bench.coordinator.describe()["loading"] == []


async def test_a_new_epoch_without_a_new_leader_does_not_load_again(bench: CoordinatorHarness) -> None:
    await bench.elect(1, epoch=5)
    [member] = await bench.stable()
    reads = bench.log.reads
    await bench.elect(1, epoch=6)
    assert bench.log.reads == reads
    assert bench.coordinator.heartbeat(GROUP, member, 1) == codes.NONE
    bench.coordinator.on_resignation(1, 5)
    await run_ready_tasks()
    assert owned(bench) == [1]


async def test_members_go_on_at_the_next_coordinator(bench: CoordinatorHarness) -> None:
    """Another broker leads the partition: same generation, same assignments, sessions from the load's end on."""
    await bench.elect(1, epoch=5)
    leader, follower = await bench.stable(size=2)
    await bench.coordinator.commit_offsets(GROUP, leader, 1, {T1: Commit(3, 1, "note")})
    before = bench.group()
    successor = CoordinatorHarness(bench.log)
    successor.now_ms = 1_000_000
    await successor.elect(1, epoch=6)
    assert successor.group() == before
    assert (await successor.coordinator.sync_group(GROUP, follower, 1, {})).assignment == b"a1"
    await successor.pass_ms(9_999)
    assert successor.coordinator.heartbeat(GROUP, leader, 1) == codes.NONE
    await successor.pass_ms(1)
    assert list(successor.group()["members"]) == [leader]
    await successor.coordinator.stop()


async def test_loaded_members_must_show_that_they_are_there(bench: CoordinatorHarness) -> None:
    await bench.elect(1, epoch=5)
    await bench.stable(size=2)
    successor = CoordinatorHarness(bench.log)
    await successor.elect(1, epoch=6)
    await successor.pass_ms(9_999)
    assert successor.group()["state"] == "Stable"
    await successor.pass_ms(1)
    assert successor.group()["state"] == "Empty"
    await successor.coordinator.stop()


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("what", ["commit", "assignment", "tombstone"])
async def test_nothing_is_appended_once_the_groups_are_gone(
    bench: CoordinatorHarness, what: str, turns: int
) -> None:
    """A pending append of an unloaded partition would land after the records that a later load reads."""
    await bench.elect(1, epoch=5)
    join = await bench.join(NEIGHBOUR)
    await bench.pass_ms(3_000)
    member = (await join).member_id
    coordinator, append = bench.coordinator, bench.log.append

    async def append_while_owned(partition: int, records: bytes) -> codes.ErrorCode:
        assert owned(bench) == [1]
        return await append(partition, records)

    bench.log.append = append_while_owned  # type: ignore[method-assign]
    coordinator.on_resignation(1, 6)
    for _ in range(turns):
        await asyncio.sleep(0)
    if what == "commit":
        await coordinator.commit_offsets(GROUP, "", -1, {T0: Commit(5, -1, "")})
    elif what == "assignment":
        await coordinator.sync_group(NEIGHBOUR, member, 1, {member: b"0"})
    else:
        coordinator.forget_partitions([T0])
    await run_ready_tasks()
    assert owned(bench) == []


async def test_a_long_load_lets_others_work(bench: CoordinatorHarness) -> None:
    await bench.elect(1)
    for start in range(0, 20_000, 1_000):
        bench.log.write(2, [offset_record(OTHER, p, p) for p in range(start, start + 1_000)])
    bench.coordinator.on_election(2, 0)
    turns = 0
    while 2 not in owned(bench):
        assert bench.coordinator.fetch_offsets(GROUP, None)[0] == codes.NONE
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 20_000 / RECORDS_PER_TURN
    assert len(bench.coordinator.fetch_offsets(OTHER, None)[1]) == 20_000


async def test_a_resignation_waits_for_the_load_before_it(bench: CoordinatorHarness) -> None:
    for start in range(0, 2_000, 500):
        bench.log.write(2, [offset_record(OTHER, p, p) for p in range(start, start + 500)])
    bench.coordinator.on_election(2, 5)
    bench.coordinator.on_resignation(2, 6)
    bench.coordinator.on_election(1, 3)
    await run_ready_tasks()
    assert owned(bench) == [1]
    assert bench.coordinator.describe()["loading"] == []


async def test_partitions_deleted_during_a_load_are_forgotten(bench: CoordinatorHarness) -> None:
    bench.log.write(1, [offset_record(GROUP, 1, 8), offset_record(NEIGHBOUR, 0, 9)])
    bench.coordinator.on_election(1, 5)
    bench.coordinator.forget_partitions([T0])
    await run_ready_tasks()
    assert list(bench.coordinator.describe()["groups"]) == [GROUP]
    assert [key for key, _ in bench.coordinator.fetch_offsets(GROUP, None)[1]] == [T1]
    replay = await replay_log(bench.log, 1)
    assert replay.group_ids() == [GROUP]


async def test_partitions_deleted_while_another_load_is_under_way_are_forgotten(
    bench: CoordinatorHarness,
) -> None:
    bench.log.write(1, [offset_record(GROUP, 1, 8)])
    bench.log.write(2, [offset_record("other", 0, 9)])
    for partition in (1, 2):
        bench.coordinator.on_election(partition, 5)
    bench.coordinator.forget_partitions([T0])
    await run_ready_tasks()
    assert list(bench.coordinator.describe()["groups"]) == [GROUP]


async def test_tombstones_end_groups_and_offsets(bench: CoordinatorHarness) -> None:
    await bench.elect(1)
    await bench.stable()
    bench.log.write(1, [(encode(GroupKey(group=GROUP)), None), (offset_record(GROUP, 0, 0)[0], None)])
    replay = await replay_log(bench.log, 1)
    assert (replay.group_ids(), replay.problem_count) == ([], 0)
    bench.log.write(1, [(encode(GroupKey(group=GROUP)), None), (offset_record(GROUP, 0, 0)[0], None)])
    assert (await replay_log(bench.log, 1)).problems == []


async def test_bad_records_are_skipped_and_shown(bench: CoordinatorHarness) -> None:
    bench.log.write(1, [(None, b"x"), (b"{", None), offset_record(GROUP, 1, 8), (b"[]", b"[]")])
    bench.log.write(1, [(encode(GroupKey(group=GROUP)), b'{"kind":"group"}'), offset_record(GROUP, 2, 9)])
    await bench.elect(1, 2)
    assert [o["offset"] for o in bench.group()["offsets"]] == [7, 8, 9]
    assert list(bench.coordinator.describe()["load_problems"]) == ["1"], "of the other there are none"
    problems = bench.coordinator.describe()["load_problems"]["1"]
    assert (problems["records"], problems["problem_count"]) == (7, 4)
    assert problems["problems"][0] == "offset 1: key is absent"
    assert problems["problems"][3].startswith('offset 5: value of b\'{"kind":"group"')
    bench.coordinator.on_resignation(1, None)
    await run_ready_tasks()
    assert bench.coordinator.describe()["load_problems"] == {}


async def test_problems_are_counted_not_hoarded(bench: CoordinatorHarness) -> None:
    bench.log.write(1, [(b"bad", b"")] * 1_000)
    replay = await replay_log(bench.log, 1)
    assert (replay.problem_count, len(replay.problems)) == (1_000, PROBLEMS_MAX)


def corrupted(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("position", "says", "offsets"),
    [
        (-1, "crc is", [7, 9]),
        (batches.HEADER_BYTES - 17, "crc is", [7, 9]),
        (16, "magic is", [7]),
        (8, "length is", [7]),
    ],
)
async def test_bad_batches_are_skipped_as_far_as_they_can_be_told_apart(
    bench: CoordinatorHarness, position: int, says: str, offsets: list[int]
) -> None:
    bench.log.write(1, [offset_record(GROUP, 1, 8)])
    bench.log.write(1, [offset_record(GROUP, 2, 9)])
    chunk = bench.log.batches[1]
    bad = corrupted(chunk[1], position % len(chunk[1]))
    bench.log.batches[1] = [chunk[0]]
    bench.log.read = lambda p, offset: chunk[0] if offset == 0 else b"" if offset > 2 else bad + chunk[2]  # type: ignore[method-assign, assignment]
    await bench.elect(1)
    assert [o["offset"] for o in bench.group()["offsets"]] == offsets
    assert says in bench.coordinator.describe()["load_problems"]["1"]["problems"][0]


async def test_a_read_may_begin_before_its_offset(bench: CoordinatorHarness) -> None:
    bench.log.write(1, [offset_record(GROUP, 1, 8), offset_record(GROUP, 2, 9)])
    bench.log.start = 2
    replay = await replay_log(bench.log, 1)
    assert (replay.records, list(replay.offsets[GROUP])) == (1, [("t", 2)])


async def test_a_bug_in_a_load_does_not_stop_the_next(bench: CoordinatorHarness) -> None:
    bench.log.read_error = ZeroDivisionError()
    await bench.elect(2)
    assert owned(bench) == [2]
    bench.log.read_error = None
    await bench.elect(1)
    assert owned(bench) == [1, 2]
    assert [type(bug) for bug in bench.bugs] == [ZeroDivisionError]
    bench.bugs.clear()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "sync", "leave", "commit", "forget", "time"]),
        st.sampled_from([GROUP, NEIGHBOUR]),
        st.integers(0, 5),
    ),
    max_size=25,
)


class Clients:
    """Two groups of clients that send anything at any time."""

    def __init__(self, bench: CoordinatorHarness) -> None:
        self.bench = bench
        self.tasks: list[asyncio.Task[Any]] = []

    async def act(self, what: str, group: str, number: int) -> None:
        coordinator = self.bench.coordinator
        found = coordinator.describe()["groups"].get(group, {"members": {}, "generation_id": -1})
        members = list(found["members"])
        member = members[number % len(members)] if members else ""
        if what == "join":
            self.tasks.append(await self.bench.join(group, member if number % 2 else ""))
        elif what == "sync":
            for each in members:
                assignments = {m: f"{m}{number}".encode() for m in members}
                work = coordinator.sync_group(group, each, found["generation_id"], assignments)
                self.tasks.append(await begin(work))
        elif what == "leave":
            coordinator.leave_group(group, member)
        elif what == "commit":
            generation = found["generation_id"] if member else -1
            await coordinator.commit_offsets(
                group, member, generation, {("t", number): Commit(number, -1, what)}
            )
        elif what == "forget":
            coordinator.forget_partitions([("t", number), ("t", number + 1)])
        else:
            await self.bench.pass_ms(number * 2_500)


@given(STEPS)
@settings(max_examples=6 * settings().max_examples)
def test_replaying_the_log_gives_the_live_state(steps: list[tuple[str, str, int]]) -> None:
    """Whatever clients did: once quiet (Stable or Empty), a coordinator that loads the log knows the same."""

    async def run() -> None:
        bench = CoordinatorHarness(settings=GroupSettings(group_initial_rebalance_delay_ms=1_000))
        await bench.elect(1)
        clients = Clients(bench)
        for step in steps:
            await clients.act(*step)
        await run_ready_tasks()
        live = bench.coordinator.describe()["groups"]
        successor = CoordinatorHarness(bench.log)
        await successor.elect(1)
        loaded = successor.coordinator.describe()["groups"]
        for group, described in live.items():
            if described["state"] in ("Stable", "Empty"):
                assert loaded[group] == described
            elif described["offsets"]:
                assert loaded[group]["offsets"] == described["offsets"]
        assert set(loaded) <= set(live)
        assert successor.coordinator.describe()["load_problems"] == {}
        await bench.coordinator.stop()
        await successor.coordinator.stop()
        await asyncio.gather(*clients.tasks)
        assert bench.bugs == successor.bugs == []

    asyncio.run(run())


async def test_the_memory_log_is_a_log() -> None:
    log = MemoryLog()
    log.write(0, [offset_record("g", 0, 1), offset_record("g", 1, 1)])
    assert await log.append(0, batches.encode([(b"k", b"v")], 1)) == codes.NONE
    assert [r.offset for r in batches.decode(log.read(0, 2))] == [2]
    assert log.read(0, 3) == b""
