"""ControllerService on a real ZooKeeper and over real gRPC."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from kazoo.client import KazooClient

from controller.core import znode_paths
from controller.core.context import EventContext, Handler
from controller.core.effects import Commit
from controller.core.events import EventKind
from controller.core.handlers import BODIES, BodyType
from controller.core.requests.brokers import AlterPartition, AlterPartitionReply
from controller.errors import LeaseExpiredError
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon, Role
from controller.runtime.rpc.server import start_server
from controller.runtime.zookeeper import codecs
from controller.runtime.zookeeper.store import Store
from proto.gen import broker_control_pb2 as control_pb
from proto.gen import common_pb2
from proto.gen import controller_service_pb2 as pb
from tests.support.runtime.callers import RESPONSES, Active, Caller, calling, controller
from tests.support.runtime.daemons import running
from tests.support.runtime.pushes import FakeBroker
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

NONE, NOT_CONTROLLER = common_pb2.NONE, common_pb2.NOT_CONTROLLER
ONE_TOPIC = {"t": '{"0":[1,2]}'}


def newest_metadata(broker: FakeBroker) -> tuple[int, list[int]]:
    """Partition epoch and ISR of the newest metadata a broker was sent."""
    states = broker.states("UpdateMetadata")
    return (states[-1].partition_epoch, list(states[-1].isr)) if states else (-1, [])


def records(directory: Path, kind: str) -> list[dict[str, Any]]:
    """State-change records of a kind."""
    lines = (directory / "state-change.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def counted(active: Active, name: str, **labels: str) -> float:
    return active.daemon.registry.get_sample_value(f"partition_controller_{name}_total", labels) or 0.0


async def test_a_leader_shrinks_and_grows_its_isr(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    one, two = FakeBroker(1), FakeBroker(2)
    async with controller(zookeeper, zk, tmp_path, one, two, topics=ONE_TOPIC) as active:
        assert active.stored() == (1, 0, [1, 2], 0)
        before = len(one.states("LeaderAndIsr")), len(two.states("LeaderAndIsr"))
        for number, isr in enumerate(([1], [1, 2])):
            answer = await active.caller.alter(active.request(1, active.proposal(isr)))
            assert answer.error_code == NONE
            (altered,) = answer.partitions
            assert (altered.error_code, altered.topic, altered.partition) == (NONE, "t", 0)
            assert (altered.leader, altered.leader_epoch, list(altered.isr)) == (1, 0, isr)
            assert altered.partition_epoch == number + 1
            assert active.stored() == (1, 0, isr, number + 1)
        refused = await active.caller.alter(active.request(1, active.proposal([2])))
        assert [(p.error_code, p.leader, list(p.isr)) for p in refused.partitions] == [
            (common_pb2.INVALID_REQUEST, -1, [])
        ]
        await until(lambda: newest_metadata(one) == newest_metadata(two) == (2, [1, 2]), "the metadata")
        assert (len(one.states("LeaderAndIsr")), len(two.states("LeaderAndIsr"))) == before
        assert counted(active, "requests", method="AlterPartition", error="NONE") == 3
        assert counted(active, "altered_partitions", error="NONE") == 2
        assert counted(active, "altered_partitions", error="INVALID_REQUEST") == 1
        assert counted(active, "isr_changes", direction="shrink") == 1
        assert counted(active, "isr_changes", direction="expand") == 1
    changes = [r for r in records(tmp_path, "isr") if r.get("reason") == "alter_partition"]
    assert [(r["from"], r["to"], r["partition_epoch"], r["cause"]) for r in changes] == [
        ("[1,2]", "[1]", 1, "AlterPartitionReceived"),
        ("[1]", "[1,2]", 2, "AlterPartitionReceived"),
    ]


async def test_a_broker_leaves_and_the_next_leader_is_stored_before_it_is_told_so(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    one, two = FakeBroker(1), FakeBroker(2)
    topics = {"t": '{"0":[1,2],"1":[1]}'}
    async with controller(zookeeper, zk, tmp_path, one, two, topics=topics) as active:
        stale = await active.caller.shut_down(1, one.epoch - 1)
        assert stale.error_code == common_pb2.STALE_BROKER_EPOCH
        unknown = await active.caller.shut_down(9, -1)
        assert unknown.error_code == common_pb2.BROKER_NOT_AVAILABLE
        answer = await active.caller.shut_down(1, one.epoch)
        assert (answer.error_code, list(answer.remaining_partitions)) == (NONE, [])
        assert active.stored() == (2, 1, [2], 1)
        last = await active.caller.shut_down(2, two.epoch)
        assert [(r.topic, r.partition) for r in last.remaining_partitions] == [("t", 0)]
        await until(lambda: len(two.states("LeaderAndIsr")) >= 2, "the leader's order")
        assert two.states("LeaderAndIsr")[-1].leader == 2
        assert counted(active, "requests", method="ControlledShutdown", error="STALE_BROKER_EPOCH") == 1
    said = [(r["replica"], r["to"]) for r in records(tmp_path, "broker") if r["to"] == "shutting_down"]
    assert said == [(1, "shutting_down"), (2, "shutting_down")]


async def test_tens_of_thousands_of_partitions_in_one_request(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    """More than gRPC's default of 4 MiB, answered in order; only the last one exists."""
    one = FakeBroker(1)
    async with controller(zookeeper, zk, tmp_path, one, topics={"t": '{"0":[1]}'}) as active:
        name = "x" * 249
        unknown = [
            pb.AlterPartitionState(topic=name, partition=n, new_isr=[1], leader_epoch=0)
            for n in range(20_000)
        ]
        request = active.request(1, *unknown, active.proposal([1]))
        assert request.ByteSize() > 5_000_000
        async with grpc.aio.insecure_channel(
            active.daemon.grpc_endpoint,
            options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)],
        ) as channel:
            answer = await Caller(channel).alter(request)
        assert [p.partition for p in answer.partitions] == [*range(20_000), 0]
        assert {p.error_code for p in answer.partitions[:-1]} == {common_pb2.UNKNOWN_TOPIC_OR_PARTITION}
        assert answer.partitions[-1].error_code == NONE


# --- what is no request ----------------------------------------------------------------------------------


async def test_garbage_hurts_nobody(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    one = FakeBroker(1)
    async with controller(zookeeper, zk, tmp_path, one, topics={"t": '{"0":[1]}'}) as active:
        for method in RESPONSES:
            for garbage in (b"\xff\xff\xff garbage", b"\x1a\xff", b"\x0a\x05x"):
                answer = RESPONSES[method].FromString(await active.caller.raw(method, garbage))
                assert answer.error_code == common_pb2.INVALID_REQUEST
            assert counted(active, "requests", method=method, error="INVALID_REQUEST") == 3
        odd = [
            active.proposal([1], topic=""),
            active.proposal([1], topic="../../../controller"),
            active.proposal([1], topic_id="\x00"),
            active.proposal([1], partition=-(2**31)),
            active.proposal([-1, 2**31 - 1]),
            active.proposal([], leader_epoch=0),
            active.proposal([1], leader_recovery_state=99),
            active.proposal([1] * 10_000),
        ]
        answer = await active.caller.alter(active.request(1, *odd))
        assert answer.error_code == NONE
        names = [common_pb2.ErrorCode.Name(p.error_code) for p in answer.partitions]
        assert names == ["UNKNOWN_TOPIC_ID"] * 3 + ["UNKNOWN_TOPIC_OR_PARTITION"] + ["INVALID_REQUEST"] * 4
        for broker_id, epoch in ((-1, -1), (2**31 - 1, 2**63 - 1), (0, 0)):
            answer = await active.caller.shut_down(broker_id, epoch)
            assert answer.error_code == common_pb2.BROKER_NOT_AVAILABLE
        assert (await active.caller.alter(pb.AlterPartitionRequest())).error_code == (
            common_pb2.STALE_BROKER_EPOCH
        )
        assert active.stored() == (1, 0, [1], 0)
        assert active.daemon.active


# --- who does not lead -----------------------------------------------------------------------------------


async def refused(caller: Caller) -> None:
    assert (await caller.alter(pb.AlterPartitionRequest(broker_id=1))).error_code == NOT_CONTROLLER
    assert (await caller.shut_down(1, -1)).error_code == common_pb2.STALE_CONTROLLER_EPOCH


async def test_a_standby_refuses(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    zk.create(znode_paths.CONTROLLER, codecs.encode_controller(7, "h:7"), ephemeral=True)
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))
    server, port = await start_server(daemon, "127.0.0.1", 0)
    try:
        async with calling(f"127.0.0.1:{port}") as caller:
            await refused(caller)  # not even started
            async with running(daemon):
                await until(lambda: daemon.role is Role.STANDBY, "standby")
                await refused(caller)
            await refused(caller)  # and ended
    finally:
        await server.stop(0)


async def test_a_failover_under_way_refuses(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = asyncio.Event()
    perform = Store.perform

    async def held(store: Store, request: Any) -> Any:
        await release.wait()
        return await perform(store, request)

    monkeypatch.setattr(Store, "perform", held)
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))
    server, port = await start_server(daemon, "127.0.0.1", 0)
    try:
        async with running(daemon), calling(f"127.0.0.1:{port}") as caller:
            await until(lambda: daemon.role is Role.ACTIVE, "the election")
            await refused(caller)
            release.set()
            await until(lambda: daemon.active, "the failover")
            answer = await caller.alter(pb.AlterPartitionRequest(broker_id=1))
            assert answer.error_code == common_pb2.STALE_BROKER_EPOCH
    finally:
        await server.stop(0)


# --- callers that wait when the term ends ----------------------------------------------------------------


class HeldCommits:
    """Lets the store's commits wait, before or after they are performed."""

    def __init__(self, active: Active, monkeypatch: pytest.MonkeyPatch, *, landed: bool) -> None:
        self.release, self.reached = asyncio.Event(), asyncio.Event()
        perform = active.term._store.perform

        async def held(request: Any) -> Any:
            if not isinstance(request, Commit):
                return await perform(request)
            outcome = await perform(request) if landed else None
            self.reached.set()
            await self.release.wait()
            return outcome or await perform(request)

        monkeypatch.setattr(active.term._store, "perform", held)


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("how", ["stop", "lease", "deposed"])
async def test_every_waiting_caller_is_answered(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, landed: bool
) -> None:
    """Rows K171 of the original, and its gap: AlterPartition callers were left to their timeouts."""
    one, two = FakeBroker(1), FakeBroker(2)
    async with controller(zookeeper, zk, tmp_path, one, two, topics=ONE_TOPIC) as active:
        held = HeldCommits(active, monkeypatch, landed=landed)
        alter = active.request(1, active.proposal([1]))
        ongoing = asyncio.create_task(active.caller.alter(alter))
        await held.reached.wait()
        queued = [asyncio.create_task(active.caller.alter(alter)) for _ in range(5)]
        leaving = [asyncio.create_task(active.caller.shut_down(n, -1)) for n in (1, 2)]
        await until(lambda: len(active.term._callers) == 8, "all requests")
        ended = active.term
        if how == "stop":
            active.daemon.stop()
        elif how == "lease":
            ended.end(LeaseExpiredError("over"))
        else:
            zk.set(znode_paths.CONTROLLER_EPOCH, b"9")
            zk.delete(znode_paths.CONTROLLER)
        answers = await asyncio.gather(ongoing, *queued)
        assert [(a.error_code, list(a.partitions)) for a in answers] == [(NOT_CONTROLLER, [])] * 6
        assert [(await task).error_code for task in leaving] == [common_pb2.STALE_CONTROLLER_EPOCH] * 2
        assert active.stored()[2] == ([1] if landed else [1, 2])
        assert ended._callers == {}


async def test_what_landed_unanswered_is_a_success_when_asked_again(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost with the term; the next term recognises its repetition (KAFKA-14144)."""
    one, two = FakeBroker(1), FakeBroker(2)
    async with controller(zookeeper, zk, tmp_path, one, two, topics=ONE_TOPIC) as active:
        held = HeldCommits(active, monkeypatch, landed=True)
        request = active.request(1, active.proposal([1]))
        waiting = asyncio.create_task(active.caller.alter(request))
        await held.reached.wait()
        former = active.term
        former.end(LeaseExpiredError("over"))
        assert (await waiting).error_code == NOT_CONTROLLER
        await until(lambda: active.daemon.active and active.term is not former, "the next term")
        answer = await active.caller.alter(request)
        assert answer.error_code == NONE
        assert [(p.error_code, list(p.isr), p.partition_epoch) for p in answer.partitions] == [(NONE, [1], 1)]


async def test_a_bug_ends_the_term_and_its_callers_know(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(context: EventContext, calls: Any) -> Handler[None]:
        raise ZeroDivisionError("injected")

    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), topics={"t": '{"0":[1]}'}) as active:
        monkeypatch.setitem(
            BODIES,
            AlterPartition,
            BodyType(EventKind.ALTER_PARTITION, AlterPartitionReply, together=broken),
        )
        request = active.request(1, active.proposal([1]))
        answers = await asyncio.gather(*(active.caller.alter(request) for _ in range(3)))
    assert [answer.error_code for answer in answers] == [NOT_CONTROLLER] * 3


async def test_a_caller_that_has_gone_changes_nothing(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = FakeBroker(1), FakeBroker(2)
    async with controller(zookeeper, zk, tmp_path, one, two, topics=ONE_TOPIC) as active:
        held = HeldCommits(active, monkeypatch, landed=False)
        calling_off = asyncio.create_task(active.caller.alter(active.request(1, active.proposal([1]))))
        await held.reached.wait()
        calling_off.cancel()
        await asyncio.wait([calling_off])
        assert calling_off.cancelled()
        held.release.set()
        await until(lambda: active.stored()[2] == [1] and active.idle(), "the change")
        answer = await active.caller.alter(active.request(1, active.proposal([1, 2])))
        assert answer.partitions[0].error_code == NONE


# --- notifications and disks -----------------------------------------------------------------------------


async def test_an_isr_that_its_leader_wrote_itself(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    one, two = FakeBroker(1), FakeBroker(2)
    async with controller(zookeeper, zk, tmp_path, one, two, topics=ONE_TOPIC) as active:
        state = active.partition().leadership
        assert state is not None
        zk.set(
            znode_paths.state_path("t", 0), codecs.encode_state(state).replace(b"[1,2]", b"[1]"), version=0
        )
        for data in (b"junk", codecs.encode_partition_list([("t", 0), ("nowhere", 3)])):
            zk.create(f"{znode_paths.ISR_NOTIFICATIONS}/isr_change_", data, sequence=True)
        await until(lambda: newest_metadata(one) == newest_metadata(two) == (1, [1]), "the metadata")
        await until(lambda: zk.get_children(znode_paths.ISR_NOTIFICATIONS) == [], "the deletion")
        # And the next one is heard of as well.
        zk.create(f"{znode_paths.ISR_NOTIFICATIONS}/isr_change_", b"[]", sequence=True)
        await until(lambda: zk.get_children(znode_paths.ISR_NOTIFICATIONS) == [], "the deletion")
    changes = [r for r in records(tmp_path, "isr") if r.get("reason") == "isr_change_notification"]
    assert [(r["from"], r["to"]) for r in changes] == [("[1,2]", "[1]")]


async def test_a_failed_disk(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    """The broker tells, is asked, answers partition by partition; the others take over."""
    one, two, lost = FakeBroker(1), FakeBroker(2), {0}

    async def answer(kind: str, request: Any) -> bytes:
        if kind != "LeaderAndIsr":
            return b""
        errors = [
            common_pb2.PartitionError(
                topic=s.topic,
                partition=s.partition,
                error_code=common_pb2.KAFKA_STORAGE_ERROR if failed and s.partition in lost else NONE,
            )
            for s in request.partition_states
        ]
        return control_pb.LeaderAndIsrResponse(partition_errors=errors).SerializeToString()

    failed = False
    one.answer = answer
    topics = {"t": '{"0":[1,2],"1":[1,2]}'}
    async with controller(zookeeper, zk, tmp_path, one, two, topics=topics) as active:
        failed = True
        zk.create(
            f"{znode_paths.LOG_DIR_NOTIFICATIONS}/log_dir_event_",
            b'{"version":1,"broker":1,"event":1}',
            sequence=True,
        )
        await until(lambda: active.stored("t", 0) == (2, 1, [2], 1), "the next leader")
        assert active.stored("t", 1) == (1, 0, [1, 2], 0)
        await until(lambda: zk.get_children(znode_paths.LOG_DIR_NOTIFICATIONS) == [], "the deletion")

        def offline() -> list[int]:
            heard = [s for s in two.states("UpdateMetadata") if s.partition == 0]
            return list(heard[-1].offline_replicas)

        await until(lambda: offline() == [1], "the metadata")
        assert {p.number for p in active.term.machine.cluster.offline_dirs[1]} == {0}
    causes = {r["cause"] for r in records(tmp_path, "leader") if r.get("reason") == "offline"}
    assert causes == {"LeaderAndIsrResponseReceived"}
