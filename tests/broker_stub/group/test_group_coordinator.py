"""The coordinator on a log in memory: which groups are served, what is stored first, how failures are handled."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_stub.group import coordinator as coordinator_module
from broker_stub.group.coordinator import Commit, GroupCoordinator
from broker_stub.group.settings import GroupSettings
from broker_stub.log import batches
from proto.gen import common_pb2 as codes
from tests.support.broker.group_fakes import (
    GROUP,
    NEIGHBOUR,
    OTHER,
    SETTINGS,
    CoordinatorHarness,
    MemoryLog,
    Refused,
    begin,
    offset_record,
    request,
    run_ready_tasks,
)
from tests.support.broker.replication_fakes import leaping

T0, T1 = ("t", 0), ("t", 1)


@pytest.fixture
async def bench() -> AsyncIterator[CoordinatorHarness]:
    """Owner of partition 1, that of GROUP and NEIGHBOUR. Ends like its log says it should."""
    bench = CoordinatorHarness()
    await bench.elect(1)
    yield bench
    await bench.coordinator.stop()
    assert bench.bugs == []


async def every_answer(coordinator: GroupCoordinator, group: str) -> dict[str, codes.ErrorCode]:
    """The error each request gets."""
    commit_error, _ = await coordinator.commit_offsets(group, "m", 0, {T0: Commit(1, -1, "")})
    return {
        "join": (await coordinator.join_group(group, request("m"))).error,
        "sync": (await coordinator.sync_group(group, "m", 0, {})).error,
        "heartbeat": coordinator.heartbeat(group, "m", 0),
        "leave": coordinator.leave_group(group, "m"),
        "commit": commit_error,
        "fetch": coordinator.fetch_offsets(group, None)[0],
    }


def all_get(error: codes.ErrorCode, **others: codes.ErrorCode) -> dict[str, codes.ErrorCode]:
    return {**dict.fromkeys(("join", "sync", "heartbeat", "leave", "commit", "fetch"), error), **others}


async def test_before_the_start_nobody_is_served() -> None:
    bench = CoordinatorHarness()
    await bench.coordinator.stop()
    assert await every_answer(bench.coordinator, GROUP) == all_get(codes.COORDINATOR_NOT_AVAILABLE)
    assert await every_answer(bench.coordinator, "") == all_get(codes.INVALID_GROUP_ID)


async def test_groups_of_other_partitions_are_not_served(bench: CoordinatorHarness) -> None:
    assert await every_answer(bench.coordinator, OTHER) == all_get(codes.NOT_COORDINATOR)
    refused = await bench.coordinator.commit_offsets(OTHER, "", -1, {T0: Commit(5, -1, "")})
    assert refused == (codes.NOT_COORDINATOR, {T0: codes.NOT_COORDINATOR})
    assert await every_answer(bench.coordinator, "") == all_get(codes.INVALID_GROUP_ID)


async def test_without_an_offsets_topic_nobody_is_served() -> None:
    bench = CoordinatorHarness(MemoryLog(None))
    assert bench.coordinator.partition_of("test") == 48
    assert await every_answer(bench.coordinator, "test") == all_get(codes.NOT_COORDINATOR)
    await bench.coordinator.stop()


async def test_while_loading_members_are_told_to_stay(bench: CoordinatorHarness) -> None:
    bench.coordinator._migration.loading.add(2)
    assert await every_answer(bench.coordinator, OTHER) == all_get(
        codes.COORDINATOR_LOAD_IN_PROGRESS, sync=codes.REBALANCE_IN_PROGRESS, heartbeat=codes.NONE
    )


async def test_a_group_nobody_knows(bench: CoordinatorHarness) -> None:
    assert await every_answer(bench.coordinator, GROUP) == all_get(
        codes.UNKNOWN_MEMBER_ID, commit=codes.ILLEGAL_GENERATION, fetch=codes.NONE
    )
    assert bench.coordinator.fetch_offsets(GROUP, [T0]) == (codes.NONE, [(T0, None)])
    assert bench.coordinator.describe()["groups"] == {}


@pytest.mark.parametrize(
    ("session_ms", "error"),
    [
        (5_999, codes.INVALID_SESSION_TIMEOUT),
        (6_000, None),
        (1_800_000, None),
        (1_800_001, codes.INVALID_SESSION_TIMEOUT),
        (-1, codes.INVALID_SESSION_TIMEOUT),
    ],
)
async def test_session_timeouts_have_limits(
    bench: CoordinatorHarness, session_ms: int, error: codes.ErrorCode | None
) -> None:
    join = await bench.join(session_ms=session_ms)
    assert (join.result().error if join.done() else None) == error


async def test_a_refused_first_join_leaves_no_group(bench: CoordinatorHarness) -> None:
    join = await bench.join(protocols=())
    assert join.result().error == codes.INCONSISTENT_GROUP_PROTOCOL
    assert bench.coordinator.describe()["groups"] == {}


async def test_the_assignment_is_in_the_log_before_anyone_hears(bench: CoordinatorHarness) -> None:
    joins = [await bench.join(), await bench.join()]
    await bench.pass_ms(3_000)
    await bench.pass_ms(3_000)
    leader, follower = [(await join).member_id for join in joins]
    assert leader.startswith("client-")
    bench.log.acknowledge.clear()
    syncs = [
        await begin(bench.coordinator.sync_group(GROUP, member, 1, {leader: b"0", follower: b"1"}))
        for member in (leader, follower)
    ]
    assert len(bench.log.batches[1]) == 1
    assert not any(sync.done() for sync in syncs)
    assert bench.group()["state"] == "CompletingRebalance"
    bench.log.acknowledge.set()
    assert [(await sync).assignment for sync in syncs] == [b"0", b"1"]
    assert bench.group()["state"] == "Stable"


@pytest.mark.parametrize(
    ("found", "to_sync", "to_commit"),
    [
        (codes.UNKNOWN_TOPIC_OR_PARTITION, codes.COORDINATOR_NOT_AVAILABLE, codes.COORDINATOR_NOT_AVAILABLE),
        (codes.NOT_ENOUGH_REPLICAS, codes.COORDINATOR_NOT_AVAILABLE, codes.COORDINATOR_NOT_AVAILABLE),
        (
            codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            codes.COORDINATOR_NOT_AVAILABLE,
            codes.COORDINATOR_NOT_AVAILABLE,
        ),
        (codes.REQUEST_TIMED_OUT, codes.COORDINATOR_NOT_AVAILABLE, codes.COORDINATOR_NOT_AVAILABLE),
        (codes.NOT_LEADER_OR_FOLLOWER, codes.NOT_COORDINATOR, codes.NOT_COORDINATOR),
        (codes.KAFKA_STORAGE_ERROR, codes.NOT_COORDINATOR, codes.NOT_COORDINATOR),
        (codes.MESSAGE_TOO_LARGE, codes.UNKNOWN_SERVER_ERROR, codes.INVALID_COMMIT_OFFSET_SIZE),
        (codes.RECORD_LIST_TOO_LARGE, codes.UNKNOWN_SERVER_ERROR, codes.INVALID_COMMIT_OFFSET_SIZE),
        (codes.INVALID_FETCH_SIZE, codes.UNKNOWN_SERVER_ERROR, codes.INVALID_COMMIT_OFFSET_SIZE),
        (codes.CORRUPT_MESSAGE, codes.CORRUPT_MESSAGE, codes.CORRUPT_MESSAGE),
    ],
)
async def test_failed_appends(
    bench: CoordinatorHarness, found: codes.ErrorCode, to_sync: codes.ErrorCode, to_commit: codes.ErrorCode
) -> None:
    join = await bench.join()
    await bench.pass_ms(3_000)
    member = (await join).member_id
    bench.log.errors.append(found)
    result = await bench.coordinator.sync_group(GROUP, member, 1, {member: b"0"})
    assert (result.error, result.assignment) == (to_sync, b"")
    assert bench.group()["state"] == "PreparingRebalance"
    bench.log.errors.append(found)
    committed = await bench.coordinator.commit_offsets(NEIGHBOUR, "", -1, {T0: Commit(5, -1, "")})
    assert committed == (to_commit, {T0: to_commit})
    assert bench.coordinator.fetch_offsets(NEIGHBOUR, [T0]) == (codes.NONE, [(T0, None)])
    assert NEIGHBOUR not in bench.coordinator.describe()["groups"]


async def test_an_append_that_raises_leaves_nobody_waiting(bench: CoordinatorHarness) -> None:
    join = await bench.join()
    await bench.pass_ms(3_000)
    member = (await join).member_id
    bench.log.errors.append(ZeroDivisionError())
    assert (await bench.coordinator.sync_group(GROUP, member, 1, {})).error == codes.UNKNOWN_SERVER_ERROR
    assert [type(bug) for bug in bench.bugs] == [ZeroDivisionError]
    bench.bugs.clear()


async def test_an_append_that_hangs_times_out() -> None:
    bench = CoordinatorHarness(settings=GroupSettings(offsets_commit_timeout_ms=1))
    await bench.elect(1)
    bench.log.acknowledge.clear()
    error, _ = await bench.coordinator.commit_offsets(GROUP, "", -1, {T0: Commit(5, -1, "")})
    assert error == codes.COORDINATOR_NOT_AVAILABLE
    await bench.coordinator.stop()


async def test_offsets_are_visible_once_acknowledged(bench: CoordinatorHarness) -> None:
    coordinator = bench.coordinator
    await coordinator.commit_offsets(GROUP, "", -1, {T0: Commit(5, 3, "note")})
    bench.log.acknowledge.clear()
    commit = await begin(
        coordinator.commit_offsets(GROUP, "", -1, {T0: Commit(6, -1, ""), T1: Commit(1, -1, "")})
    )
    assert [(k, v and v.offset) for k, v in coordinator.fetch_offsets(GROUP, [T1, T0])[1]] == [
        (T1, None),
        (T0, 5),
    ]
    bench.log.acknowledge.set()
    assert await commit == (codes.NONE, {T0: codes.NONE, T1: codes.NONE})
    error, offsets = coordinator.fetch_offsets(GROUP, None)
    assert error == codes.NONE
    assert [(key, value and value.offset) for key, value in offsets] == [(T0, 6), (T1, 1)]
    assert offsets[0][1] is not None
    assert offsets[0][1].commit_timestamp_ms == 77


async def test_a_bad_commit_fails_alone(bench: CoordinatorHarness) -> None:
    commits = {
        ("t", 0): Commit(1, -1, "x" * 4_096),
        ("t", 1): Commit(1, -1, "x" * 4_095 + "é"),
        ("t", 2): Commit(-1, -1, ""),
        ("t", 3): Commit(1, -2, ""),
        ("t", -1): Commit(1, -1, ""),
        ("", 0): Commit(1, -1, ""),
    }
    error, errors = await bench.coordinator.commit_offsets(GROUP, "", -1, commits)
    assert error == codes.NONE
    assert errors == {
        ("t", 0): codes.NONE,
        ("t", 1): codes.OFFSET_METADATA_TOO_LARGE,
        **dict.fromkeys([("t", 2), ("t", 3), ("t", -1), ("", 0)], codes.INVALID_REQUEST),
    }
    assert [key for key, _ in bench.coordinator.fetch_offsets(GROUP, None)[1]] == [("t", 0)]
    del commits["t", 0]
    assert (await bench.coordinator.commit_offsets(NEIGHBOUR, "", -1, commits))[0] == codes.NONE
    assert bench.log.ends[1] == 1
    assert NEIGHBOUR not in bench.coordinator.describe()["groups"]


async def test_members_commit_and_strangers_do_not(bench: CoordinatorHarness) -> None:
    [member] = await bench.stable()
    commit = {T0: Commit(1, -1, "")}
    coordinator = bench.coordinator
    assert (await coordinator.commit_offsets(GROUP, member, 1, commit))[0] == codes.NONE
    assert (await coordinator.commit_offsets(GROUP, member, 0, commit))[0] == codes.ILLEGAL_GENERATION
    assert (await coordinator.commit_offsets(GROUP, "x", 1, commit)) == (
        codes.UNKNOWN_MEMBER_ID,
        {T0: codes.UNKNOWN_MEMBER_ID},
    )
    assert (await coordinator.commit_offsets(GROUP, "", -1, commit))[0] == codes.UNKNOWN_MEMBER_ID


async def test_a_commit_survives_the_client_that_sent_it(bench: CoordinatorHarness) -> None:
    bench.log.acknowledge.clear()
    commit = await begin(bench.coordinator.commit_offsets(GROUP, "", -1, {T0: Commit(5, -1, "")}))
    commit.cancel()
    await run_ready_tasks()
    bench.log.acknowledge.set()
    await run_ready_tasks()
    assert bench.group()["offsets"] == [{"topic": "t", "partition": 0, "offset": 5}]


async def test_a_first_commit_beside_a_refused_join_keeps_its_group(bench: CoordinatorHarness) -> None:
    commit = asyncio.create_task(bench.coordinator.commit_offsets(GROUP, "", -1, {T0: Commit(5, -1, "")}))
    join = asyncio.create_task(bench.coordinator.join_group(GROUP, request(protocols=())))
    assert (await commit)[0] == codes.NONE
    assert (await join).error == codes.INCONSISTENT_GROUP_PROTOCOL
    assert bench.coordinator.fetch_offsets(GROUP, [T0])[1][0][1] is not None


async def test_a_new_member_that_hangs_up_is_gone(bench: CoordinatorHarness) -> None:
    """It never learned its id; otherwise the group would wait five minutes for it."""
    await bench.stable()
    join = await bench.join()
    assert len(bench.group()["members"]) == 2
    join.cancel()
    await run_ready_tasks()
    assert len(bench.group()["members"]) == 1


async def test_silence_ends_a_membership_and_the_log_knows(bench: CoordinatorHarness) -> None:
    await bench.stable(size=2)
    assert bench.log.ends[1] == 1
    await bench.pass_ms(10_000)
    await bench.pass_ms(60_000)
    assert bench.group()["state"] == "Empty"
    assert bench.group()["generation_id"] == 2
    assert bench.log.ends[1] == 2


async def test_the_timer_runs_by_itself() -> None:
    log = MemoryLog()
    settings = GroupSettings(group_min_session_timeout_ms=1, group_initial_rebalance_delay_ms=0)
    coordinator = GroupCoordinator(log, settings, lambda: "id", lambda error: None)
    coordinator.start()
    coordinator.on_election(1, 0)
    await run_ready_tasks()
    assert (await coordinator.join_group(GROUP, request(session_ms=20))).error == codes.NONE
    async with asyncio.timeout(30):
        while coordinator.describe()["groups"][GROUP]["state"] != "Empty":  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    await coordinator.stop()


async def test_deleted_partitions_are_forgotten(bench: CoordinatorHarness) -> None:
    coordinator = bench.coordinator
    both = {T0: Commit(1, -1, ""), T1: Commit(2, -1, "")}
    await bench.stable()
    [member] = bench.group()["members"]
    await coordinator.commit_offsets(GROUP, member, 1, both)
    await coordinator.commit_offsets(NEIGHBOUR, "", -1, {T1: Commit(2, -1, "")})
    end = bench.log.ends[1]
    coordinator.forget_partitions([T1, ("unknown", 0)])
    assert [key for key, _ in coordinator.fetch_offsets(GROUP, None)[1]] == [T0]
    assert list(coordinator.describe()["groups"]) == [GROUP]
    await run_ready_tasks()
    assert bench.log.ends[1] == end + 2
    await coordinator.commit_offsets(GROUP, member, 1, {T1: Commit(2, -1, "")})
    coordinator.forget_partitions([T0, T1])
    assert coordinator.describe()["groups"][GROUP]["state"] == "Stable", "it has no offsets, but members"
    await coordinator.commit_offsets(GROUP, member, 1, {T0: Commit(1, -1, "")})
    coordinator.leave_group(GROUP, member)
    coordinator.forget_partitions([T0])
    await run_ready_tasks()
    assert coordinator.describe()["groups"] == {}


async def test_deletions_leave_groups_that_had_no_offset_there(bench: CoordinatorHarness) -> None:
    [member] = await bench.stable()
    bench.coordinator.leave_group(GROUP, member)
    await run_ready_tasks()
    assert (bench.group()["state"], bench.group()["generation_id"]) == ("Empty", 2)
    end = bench.log.ends[1]
    bench.coordinator.forget_partitions([T0])
    await run_ready_tasks()
    assert bench.group()["state"] == "Empty"
    assert bench.log.ends[1] == end


async def test_what_could_not_be_stored_is_logged(bench: CoordinatorHarness) -> None:
    join = await bench.join()
    await bench.coordinator.commit_offsets(NEIGHBOUR, "", -1, {T0: Commit(5, -1, ""), T1: Commit(5, -1, "")})
    await bench.pass_ms(3_000)
    member = (await join).member_id
    bench.log.errors += [codes.NOT_ENOUGH_REPLICAS, codes.REQUEST_TIMED_OUT]
    with capture_logs() as logs:
        await bench.coordinator.sync_group(GROUP, member, 1, {member: b"0"})
        bench.coordinator.forget_partitions([T0])
        await run_ready_tasks()
        bench.coordinator.forget_partitions([T1])
        await run_ready_tasks()
    assert logs == [
        {
            "event": "group_not_stored",
            "log_level": "warning",
            "partition": 1,
            "error": "COORDINATOR_NOT_AVAILABLE",
            "group": GROUP,
        },
        {
            "event": "tombstones_not_stored",
            "log_level": "warning",
            "partition": 1,
            "error": "REQUEST_TIMED_OUT",
            "tombstones": 1,
        },
    ]


async def test_a_commit_after_the_time_to_join_lets_those_go_on_who_joined(bench: CoordinatorHarness) -> None:
    """However late the timer is."""
    first, second = await bench.stable(size=2)
    join = await bench.join(member=first, protocols=(("range", b"new"),))
    bench.now_ms += 9_999
    assert bench.coordinator.heartbeat(GROUP, second, 1) == codes.REBALANCE_IN_PROGRESS
    bench.now_ms += 60_000
    error, _ = await bench.coordinator.commit_offsets(GROUP, second, 1, {T0: Commit(5, -1, "")})
    assert error == codes.UNKNOWN_MEMBER_ID
    await run_ready_tasks()
    assert join.done()
    assert (await join).generation_id == 2


async def test_without_other_clocks_times_are_those_of_the_system() -> None:
    log = MemoryLog()
    coordinator = GroupCoordinator(log, SETTINGS, lambda: "1", lambda _: None)
    coordinator.start()
    coordinator.on_election(1, 0)
    await run_ready_tasks()
    before_s, timer_s = time.time(), time.monotonic()
    await coordinator.commit_offsets(GROUP, "", -1, {T0: Commit(5, -1, "")})
    join = await begin(coordinator.join_group(NEIGHBOUR, request(session_ms=1)))
    found = coordinator._find(GROUP)
    assert found is not None
    value = found.offsets.get(T0)
    assert value is not None
    assert before_s - 0.001 <= value.commit_timestamp_ms / 1000 <= time.time()
    assert timer_s - 0.001 <= coordinator._clock_ms() / 1000 <= time.monotonic()
    await coordinator.stop()
    await join


async def test_a_commit_on_its_way_does_not_bring_back_a_deleted_partition(bench: CoordinatorHarness) -> None:
    bench.log.acknowledge.clear()
    commit = await begin(bench.coordinator.commit_offsets(GROUP, "", -1, {T0: Commit(5, -1, "")}))
    bench.coordinator.forget_partitions([T0])
    bench.log.acknowledge.set()
    await commit
    assert bench.coordinator.fetch_offsets(GROUP, [T0]) == (codes.NONE, [(T0, None)])


async def test_stopping_answers_all_who_wait(bench: CoordinatorHarness) -> None:
    [member] = await bench.stable(NEIGHBOUR)
    join = await bench.join()
    bench.log.acknowledge.clear()
    commit = await begin(bench.coordinator.commit_offsets(NEIGHBOUR, member, 1, {T0: Commit(5, -1, "")}))
    await bench.coordinator.stop()
    assert (await join).error == codes.COORDINATOR_NOT_AVAILABLE
    assert (await commit)[0] == codes.COORDINATOR_NOT_AVAILABLE
    assert bench.coordinator.describe() == {
        "active": False, "owned": [], "loading": [], "load_problems": {}, "groups": {},
    }  # fmt: skip


async def test_describe_is_json_ready(bench: CoordinatorHarness) -> None:
    [member] = await bench.stable()
    await bench.coordinator.commit_offsets(GROUP, member, 1, {T0: Commit(5, -1, "")})
    described: dict[str, Any] = json.loads(json.dumps(bench.coordinator.describe()))
    assert described == {
        "active": True,
        "owned": [1],
        "loading": [],
        "load_problems": {},
        "groups": {
            GROUP: {
                "partition": 1,
                "state": "Stable",
                "generation_id": 1,
                "protocol_type": "consumer",
                "protocol": "range",
                "leader": member,
                "members": {
                    member: {
                        "client_id": "client",
                        "session_timeout_ms": 10_000,
                        "rebalance_timeout_ms": 60_000,
                        "protocols": ["range"],
                        "assignment_bytes": 2,
                        "awaits": None,
                    }
                },
                "offsets": [{"topic": "t", "partition": 0, "offset": 5}],
            }
        },
    }


async def test_a_log_that_refuses_to_be_read_is_reported(bench: CoordinatorHarness) -> None:
    bench.log.write(2, [offset_record(OTHER, 0, 7)])
    bench.log.read_error = Refused("disk failed")
    await bench.elect(2)
    assert bench.coordinator.describe()["load_problems"]["2"]["problems"] == [
        "the log cannot be read: disk failed"
    ]
    assert bench.coordinator.fetch_offsets(OTHER, None) == (codes.NONE, [])


def test_defaults_are_kafkas() -> None:
    assert (
        GroupSettings(
            group_min_session_timeout_ms=6_000,
            group_max_session_timeout_ms=1_800_000,
            group_initial_rebalance_delay_ms=3_000,
            offset_metadata_max_bytes=4_096,
            offsets_commit_timeout_ms=5_000,
            offsets_topic_num_partitions=50,
            offsets_topic_replication_factor=3,
        )
        == SETTINGS
    )


async def test_a_group_that_was_there_before_outlives_a_refused_join(bench: CoordinatorHarness) -> None:
    (member,) = await bench.stable()
    bench.coordinator.leave_group(GROUP, member)
    assert (await bench.join(protocols=())).result().error == codes.INCONSISTENT_GROUP_PROTOCOL
    assert bench.group()["generation_id"] > 0


async def test_tombstones_of_a_load_that_is_over_are_left_to_the_next_one(
    bench: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "_TOMBSTONES_PER_BATCH", 1)
    both = {T0: Commit(1, -1, ""), T1: Commit(2, -1, "")}
    await bench.coordinator.commit_offsets(GROUP, "", -1, both)
    end = bench.log.ends[1]
    bench.log.acknowledge.clear()
    bench.coordinator.forget_partitions([T0, T1])
    await run_ready_tasks()
    bench.coordinator._migration.owned[1] = {}
    bench.log.acknowledge.set()
    await run_ready_tasks()
    assert bench.log.ends[1] == end + 1


async def test_what_becomes_of_a_former_generation_s_metadata_is_not_said_of_this_one(
    bench: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    (member,) = await bench.stable()
    appends: list[asyncio.Future[codes.ErrorCode]] = []

    def append(_partition: int, _records: bytes) -> asyncio.Future[codes.ErrorCode]:
        appends.append(asyncio.get_running_loop().create_future())
        return appends[-1]

    monkeypatch.setattr(bench.log, "append", append)
    syncs = []
    for generation in (2, 3):
        protocols = (("range", bytes([generation])),)
        joined = await bench.coordinator.join_group(GROUP, request(member, protocols))
        assert joined.generation_id == generation
        syncs.append(await begin(bench.coordinator.sync_group(GROUP, member, generation, {member: b"x"})))
    for appended, error in zip(appends, (codes.REQUEST_TIMED_OUT, codes.NONE), strict=True):
        appended.set_result(error)
        await run_ready_tasks()
    assert (await syncs[1]).error == codes.NONE
    syncs[0].cancel()


async def test_many_tombstones_are_written_in_parts_each_once(
    bench: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "_TOMBSTONES_PER_BATCH", 2)
    keys = [("t", number) for number in range(5)]
    await bench.coordinator.commit_offsets(GROUP, "", -1, {key: Commit(1, -1, "") for key in keys})
    bench.coordinator.forget_partitions(keys)
    await run_ready_tasks()
    tombstones = [
        [json.loads(record.key or b"") for record in batches.decode(data)]
        for data in bench.log.batches[1][1:]
    ]
    assert [[key["partition"] for key in keys] for keys in tombstones] == [[0, 1], [2, 3], [4]]


def test_a_time_in_milliseconds_is_waited_for_in_seconds() -> None:
    """A commit whose append hangs ends after its 5,000 ms."""

    async def story() -> None:
        bench = CoordinatorHarness(settings=GroupSettings(offsets_commit_timeout_ms=5_000))
        await bench.elect(1)
        bench.log.acknowledge.clear()
        began = asyncio.get_running_loop().time()
        await bench.coordinator.commit_offsets(GROUP, "", -1, {T0: Commit(5, -1, "")})
        assert asyncio.get_running_loop().time() - began == pytest.approx(5.0, abs=0.1)
        await bench.coordinator.stop()

    leaping(story)()
