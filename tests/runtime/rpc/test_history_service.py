"""ListHistory and Watch of a real daemon: filters, limits, slow and vanished readers, and the end of a term."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from kazoo.client import KazooClient

from controller.core import znode_paths
from controller.core.records import EntityAltered, LogBatch
from controller.runtime.daemon import Daemon
from controller.runtime.rpc import history_service
from proto.gen import history_pb2 as pb
from proto.gen.admin_service_pb2_grpc import AdminServiceStub
from tests.support.runtime.admins import ask, error_name
from tests.support.runtime.callers import Active, controller
from tests.support.runtime.pushes import FakeBroker
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

EVERYTHING = pb.WatchRequest()
TOPICS = {"t": '{"0":[1,2],"1":[2,1]}'}


def shown(lines: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


async def listed(active: Active, limit: int = 0, **wanted: Any) -> pb.ListHistoryResponse:
    request = pb.ListHistoryRequest(filter=pb.HistoryFilter(**wanted), limit=limit)
    answer: pb.ListHistoryResponse = await ask(active.daemon.grpc_endpoint, "ListHistory", request)
    return answer


@asynccontextmanager
async def watching(endpoint: str, request: pb.WatchRequest = EVERYTHING) -> AsyncIterator[Any]:
    """The call, its first answer still to be read."""
    async with grpc.aio.insecure_channel(endpoint) as channel:
        call: Any = AdminServiceStub(channel).Watch(request)
        try:
            yield call
        finally:
            call.cancel()


async def read(call: Any) -> Any:
    async with asyncio.timeout(20):
        return await call.read()


async def read_until(call: Any, **fields: Any) -> list[dict[str, Any]]:
    """Records up to one that has these fields."""
    records: list[dict[str, Any]] = []
    while not records or not fields.items() <= records[-1].items():
        answer = await read(call)
        assert not answer.error_code, error_name(answer.error_code)
        for record in shown(answer.records):
            records.append(record)
            if fields.items() <= record.items():
                break
    return records


def of_last_event(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in records if record["event_id"] == records[-1]["event_id"]]


def record(daemon: Daemon, *altered: EntityAltered) -> None:
    daemon.recent.add(LogBatch(altered, "", "Test", 99), 1, 1)


async def test_history_after_a_broker_is_gone_names_event_and_cause(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics=TOPICS) as active:
        zk.delete("/brokers/ids/1")
        await until(
            lambda: (found := active.partition("t").leadership) is not None and found.leader == 2, "broker 2"
        )
        answer = await listed(active, topic="t", partition=0, has_partition=True, kinds=["leader"])
        first, second = shown(answer.records)
        assert (first["from"], first["to"], second["from"], second["to"]) == ("-1", "1", "1", "2")
        assert (second["cause"], second["controller_epoch"]) == ("BrokerChange", 1)
        about = active.daemon.recent.last_about("t", 0)
        assert about is not None
        assert (about.event_id, about.cause) == (second["event_id"], "BrokerChange")
        assert about.partition_epoch == second["partition_epoch"]
        active.daemon.state_log.flush()
        log_lines = (tmp_path / "state-change.jsonl").read_text().splitlines()
        assert set(answer.records) <= set(log_lines)
        assert (answer.more, answer.forgotten) == (False, 0)
        assert answer.oldest_us > 0
        limited = await listed(active, limit=1, topic="t", partition=0, has_partition=True, kinds=["leader"])
        assert (shown(limited.records), limited.more) == ([second], True)


@pytest.mark.parametrize(
    ("wanted", "limit", "problem"),
    [
        ({"topic": "a/b"}, 0, "filter.topic: "),
        ({"has_partition": True}, 0, "filter.partition: needs filter.topic"),
        ({"topic": "t", "partition": -1, "has_partition": True}, 0, "filter.partition = -1: "),
        ({"brokers": [1, -2]}, 0, "filter.brokers = -2: "),
        ({"controller_epoch": -1}, 0, "filter.controller_epoch = -1: "),
        ({"brokers": [1] * 10_001}, 0, "filter.brokers has 10001 values: must be at most 10000"),
        ({"kinds": ["leader"] * 10_001}, 0, "filter.kinds has 10001 values"),
        ({"kinds": ["leader", "leaders"]}, 0, "filter.kinds = 'leaders': must be among ack, "),
        ({"since_us": -1}, 0, "filter.since_us = -1: "),
        ({}, -1, "limit = -1: must be from 0 (1000) to 100000"),
        ({}, 100_001, "limit = 100001: "),
    ],
)
async def test_what_is_asked_for_is_checked(
    zookeeper: str, zk: KazooClient, tmp_path: Path, wanted: dict[str, Any], limit: int, problem: str
) -> None:
    async with controller(zookeeper, zk, tmp_path) as active:
        answer = await listed(active, limit, **wanted)
        assert error_name(answer.error_code) == "INVALID_REQUEST"
        assert problem in answer.error_message
        if not limit:
            request = pb.WatchRequest(filter=pb.HistoryFilter(**wanted))
            async with watching(active.daemon.grpc_endpoint, request) as call:
                notified = await read(call)
                assert (notified.error_code, notified.error_message) == (
                    answer.error_code,
                    answer.error_message,
                )
                assert await read(call) is grpc.aio.EOF


async def test_a_large_answer_leaves_out_what_does_not_fit(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_service, "ANSWER_BYTES_MAX", 10_000)
    async with controller(zookeeper, zk, tmp_path) as active:
        for n in range(3):
            record(active.daemon, EntityAltered("x" * 4000, n))
        answer = await listed(active)
        assert [r.get("count") for r in shown(answer.records)] == [1, 2]
        assert answer.more


async def test_watch_tells_what_happens_from_its_first_answer_on(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics=TOPICS) as active:
        wanted = pb.WatchRequest(filter=pb.HistoryFilter(topic="t", kinds=["leader", "isr"]))
        async with watching(active.daemon.grpc_endpoint, wanted) as call:
            first = await read(call)
            assert (first.controller_id, first.controller_epoch, list(first.records)) == (1, 1, [])
            zk.delete("/brokers/ids/1")
            records = await read_until(call, kind="isr", partition=1)
            assert [(r["kind"], r["partition"], r["cause"]) for r in records] == [
                ("leader", 0, "BrokerChange"),
                ("isr", 0, "BrokerChange"),
                ("isr", 1, "BrokerChange"),
            ]
        whole = pb.WatchRequest(whole_epoch=True)
        async with watching(active.daemon.grpc_endpoint, whole) as call:
            await read(call)
            assert [r["kind"] for r in await read_until(call, kind="failover", to="ready")][:2] == [
                "controller",
                "failover",
            ]


async def test_a_watch_ends_with_its_term_and_history_goes_on(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with controller(zookeeper, zk, tmp_path) as active:
        endpoint = active.daemon.grpc_endpoint
        async with watching(endpoint) as call:
            await read(call)
            zk.delete(znode_paths.CONTROLLER)
            records: list[dict[str, Any]] = []
            while not (answer := await read(call)).error_code:
                records += shown(answer.records)
            assert error_name(answer.error_code) == "NOT_CONTROLLER"
            assert await read(call) is grpc.aio.EOF
        assert records[-1]["to"] == "resigned"
        await until(lambda: active.daemon.active and active.term.won.epoch == 2, "the next term")
        lives = shown((await listed(active, kinds=["controller"])).records)
        assert [(r["controller_epoch"], r["to"]) for r in lives][-3:] == [
            (1, "active"),
            (1, "resigned"),
            (2, "active"),
        ]
        mine = shown((await listed(active, controller_epoch=1)).records)
        assert {r["controller_epoch"] for r in mine} == {1}


async def test_a_slow_reader_is_told_how_many_it_missed(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    def remember_little(daemon: Daemon) -> None:
        daemon.recent._records_max = 1000

    total, rest = 60_000, "x" * 600
    async with controller(zookeeper, zk, tmp_path, before=remember_little) as active:
        wanted = pb.WatchRequest(filter=pb.HistoryFilter(kinds=["config"]))
        async with watching(active.daemon.grpc_endpoint, wanted) as call:
            await read(call)
            for n in range(0, total, 100):
                record(active.daemon, *(EntityAltered(rest, n + k) for k in range(100)))
                await asyncio.sleep(0)
            seen: list[int] = []
            missed = 0
            while not seen or seen[-1] != total - 1:
                answer = await read(call)
                missed += answer.missed
                seen += [record["count"] for record in shown(answer.records)]
            assert missed > 0
            assert seen == sorted(set(seen))
            # Of other kinds none was made meanwhile.
            assert len(seen) + missed == total


async def test_who_missed_records_hears_so_although_none_of_the_rest_is_for_him(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    def remember_little(daemon: Daemon) -> None:
        daemon.recent._records_max = 10

    async with controller(zookeeper, zk, tmp_path, before=remember_little) as active:
        async with watching(
            active.daemon.grpc_endpoint, pb.WatchRequest(filter=pb.HistoryFilter(kinds=["leader"]))
        ) as call:
            await read(call)
            for n in range(25):
                record(active.daemon, EntityAltered("x", n))
            answer = await read(call)
            assert (answer.missed, list(answer.records)) == (15, [])
        listed_ = await listed(active)
        assert (len(listed_.records), listed_.more) == (10, False)
        assert listed_.forgotten == active.daemon.recent.total - 10
        labels = {"method": "Watch", "error": "NONE"}
        counted = active.daemon.registry.get_sample_value("partition_controller_requests_total", labels)
        assert counted == 1


async def test_fifty_watchers_see_the_same_and_those_that_go_away_leave_nothing(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_service, "WATCHERS_MAX", 50)
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics=TOPICS) as active:
        endpoint, recent = active.daemon.grpc_endpoint, active.daemon.recent
        async with grpc.aio.insecure_channel(endpoint) as channel:
            calls: list[Any] = [AdminServiceStub(channel).Watch(pb.WatchRequest()) for _ in range(50)]
            for call in calls:
                assert (await read(call)).controller_epoch == 1
            async with watching(endpoint) as one_more:
                refused = await read(one_more)
                assert error_name(refused.error_code) == "POLICY_VIOLATION"
                assert "there are 50 watchers already" in refused.error_message
            zk.delete("/brokers/ids/1")
            # Answers to earlier pushes still come in while the watchers do: some see them, later ones do not.
            everyone = [of_last_event(await read_until(call, kind="leader", partition=0)) for call in calls]
            assert all(records == everyone[0] for records in everyone)
        await until(lambda: recent._waiting == 0, "the watchers to be gone")
        async with watching(endpoint) as call:
            assert (await read(call)).controller_epoch == 1
