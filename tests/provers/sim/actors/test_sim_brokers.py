"""Simulated brokers and clients, with a controller played by hand."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import grpc.aio
import structlog

from broker_stub.errors import RegistrationFault, StorageFault
from broker_stub.replication.service import OFFSETS_TOPIC
from proto.gen import broker_control_pb2 as wire
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as service
from tests.provers.sim.actors import brokers
from tests.provers.sim.actors.brokers import SimBroker
from tests.provers.sim.actors.clients import SimClient, SimConsumer, SimGroupMember, SimProducer
from tests.provers.sim.checks.history import FinalPartition, History
from tests.provers.sim.environment import loop
from tests.provers.sim.environment.loop import Process
from tests.provers.sim.environment.rpc import Wires, grpc_on
from tests.provers.sim.zookeeper.ensemble import Ensemble
from tests.provers.sim.zookeeper.messages import Create, Perms
from tests.provers.sim.zookeeper.network import Network

ID_FOO, ID_OFFSETS = "f" * 22, "o" * 22
TOPIC_IDS = {"foo": ID_FOO, OFFSETS_TOPIC: ID_OFFSETS}
CONTROL = wire.DESCRIPTOR.services_by_name["BrokerControl"].full_name
CONTROLLER = service.DESCRIPTOR.services_by_name["ControllerService"].full_name
ISR = (1, 2, 3)


class BrokerCluster:
    """Three ZooKeeper servers, brokers 1 to 3, and a controller that says what it is told to say."""

    def __init__(self, seed: int = 1) -> None:
        running = asyncio.get_running_loop()
        assert isinstance(running, loop.VirtualTimeLoop)
        self.loop = running
        self.rng = random.Random(seed)
        self.zk = Network(Ensemble(3), lambda _: self.rng.uniform(0.0005, 0.002))
        self.rpc = Wires(self.loop, random.Random(seed + 1))
        self.history = History(lambda: round(self.loop.time() * 1e6), TOPIC_IDS.get)
        self.rpc.on_request.append(self.history.request_arrived)
        self.brokers = {id_: SimBroker(self, id_) for id_ in ISR}
        for broker in self.brokers.values():
            broker.disk.on_append = self.history.appended
        self.bootstrap = [broker.address for broker in self.brokers.values()]
        self.clients: list[SimClient] = []
        self.controller = Process("controller-9")
        self.shutdowns: list[int] = []
        self._events = 0

    def topics(self) -> Sequence[str]:
        return ["foo"]

    def node(self, path: str) -> Any:
        leader = self.zk.ensemble.leader
        assert leader is not None
        return self.zk.ensemble.servers[leader].tree.node(path)

    def broker_epoch(self, id_: int) -> int:
        node = self.node(f"/brokers/ids/{id_}")
        return node.stat().czxid if node is not None else -1

    async def until(self, probe: Callable[[], object], limit_s: float = 30.0) -> None:
        async with asyncio.timeout(limit_s):
            while not probe():  # noqa: ASYNC110  (what is looked at has no events)
                await asyncio.sleep(0.01)

    async def start(self) -> None:
        self._create(Create("/controller_epoch", b"1", perms=Perms.ALL))
        self._create(Create("/controller", b'{"version":1,"brokerid":9,"timestamp":"0"}', perms=Perms.ALL))
        for broker in self.brokers.values():
            broker.start()
        await self.until(lambda: all(self.broker_epoch(id_) > 0 for id_ in ISR))

    # the controller

    def _header(self, receiver: int) -> dict[str, Any]:
        self._events += 1
        return {
            "controller_id": 9,
            "controller_epoch": 1,
            "broker_epoch": self.broker_epoch(receiver),
            "event_id": self._events,
        }

    async def send_leaders(
        self, receiver: int, leaders: dict[tuple[str, int], int], leader_epoch: int
    ) -> list[int]:
        """Metadata, then LeaderAndIsr of these partitions; the errors."""
        work = self._send_leaders(receiver, leaders, leader_epoch)
        return await self.loop.spawn(self.controller, work)

    async def _send_leaders(
        self, receiver: int, leaders: dict[tuple[str, int], int], leader_epoch: int
    ) -> list[int]:
        header = self._header(receiver)
        common: dict[str, Any] = {
            "controller_epoch": 1,
            "leader_epoch": leader_epoch,
            "isr": ISR,
            "replicas": ISR,
        }
        states: list[dict[str, Any]] = [
            {"topic": topic, "partition": number, "leader": leader, "partition_epoch": leader_epoch, **common}
            for (topic, number), leader in leaders.items()
        ]
        live = [
            wire.LiveBroker(
                broker_id=id_,
                endpoints=[wire.Endpoint(listener="GRPC", host=f"broker-{id_}", port=brokers.PORT)],
            )
            for id_ in ISR
        ]
        metadata = wire.UpdateMetadataRequest(
            partition_states=[wire.UpdateMetadataPartitionState(**state) for state in states],
            topic_ids=TOPIC_IDS,
            live_brokers=live,
            **header,
        )
        orders = wire.LeaderAndIsrRequest(
            partition_states=[wire.LeaderAndIsrPartitionState(**state) for state in states],
            topic_ids=TOPIC_IDS,
            **header,
        )
        channel = grpc.aio.insecure_channel(self.brokers[receiver].address)
        for method, request in (("UpdateMetadata", metadata), ("LeaderAndIsr", orders)):
            call: Any = channel.unary_unary(f"/{CONTROL}/{method}")
            answer = await call(request.SerializeToString(), timeout=5.0)
        life_of = wire.LeaderAndIsrResponse.FromString(answer)
        return [life_of.error_code, *(item.error_code for item in life_of.partition_errors)]

    async def tell_all(self, leaders: dict[tuple[str, int], int], leader_epoch: int) -> None:
        for id_, broker in self.brokers.items():
            if broker.alive:
                assert set(await self.send_leaders(id_, leaders, leader_epoch)) == {codes.NONE}

    async def serve_as_controller(self) -> None:
        """Have the brokers find a controller that lets everybody go."""
        value = b'{"version":2,"brokerid":9,"timestamp":"1","kraftControllerEpoch":-1,"endpoint":"controller-9:1"}'
        self._create(Create("/controller", value, True, perms=Perms.ALL))
        await self.loop.spawn(self.controller, self._serve())

    def _create(self, create: Create) -> None:
        """In a session of its own, which stays."""
        connection = self.zk.ensemble.connect(0, 60_000, self.zk.now_ms)
        assert connection is not None
        self.zk.ensemble.request(connection, create, self.zk.now_ms)

    async def _serve(self) -> None:
        async def shutdown(
            request: service.ControlledShutdownRequest, _context: Any
        ) -> service.ControlledShutdownResponse:
            self.shutdowns.append(request.broker_id)
            return service.ControlledShutdownResponse(error_code=codes.NONE)

        server = grpc.aio.server()
        method = grpc.unary_unary_rpc_method_handler(
            shutdown,
            service.ControlledShutdownRequest.FromString,
            service.ControlledShutdownResponse.SerializeToString,
        )
        handlers = {"ControlledShutdown": method}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(CONTROLLER, handlers),))
        server.add_insecure_port("controller-9:1")
        await server.start()

    def final(self) -> list[FinalPartition]:
        found = []
        for key in (("foo", 0), ("foo", 1)):
            logs = {id_: self.log(id_, key) for id_ in ISR}
            leader = next(id_ for id_ in ISR if self.partition(id_, key).is_leader)
            found.append(FinalPartition(key[0], ID_FOO, key[1], leader, logs))
        return found

    def partition(self, id_: int, key: tuple[str, int]) -> Any:
        broker = self.brokers[id_].broker
        assert broker is not None
        data = broker._bridge._data
        assert data is not None
        return data.manager.get(key)

    def log(self, id_: int, key: tuple[str, int]) -> Any:
        return self.brokers[id_].disk.folders[key].content


@contextmanager
def quiet() -> Iterator[None]:
    known = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**known)


def simulated(story: Callable[[BrokerCluster], Awaitable[None]], seed: int = 1) -> BrokerCluster:
    """Run a story; the world as it was left."""

    async def main() -> BrokerCluster:
        random.seed(seed)
        cluster = BrokerCluster(seed)
        with ExitStack() as stack:
            for part in (
                loop.clock_of(cluster.loop),
                grpc_on(cluster.rpc),
                brokers.brokers_on(cluster),
                quiet(),
            ):
                stack.enter_context(part)
            try:
                await story(cluster)
            finally:
                cluster.loop.bury()
        return cluster

    return loop.run(main())


def life_of(cluster: BrokerCluster, id_: int) -> list[str]:
    """What a broker's own state-change log says of its life."""
    records = [dict(entry.record) for entry in cluster.brokers[id_].state_log]
    return [record["to"] for record in records if record["kind"] == "broker"]


def test_a_killed_broker_comes_back_after_its_session_with_its_disk() -> None:
    async def story(cluster: BrokerCluster) -> None:
        await cluster.start()
        first = cluster.broker_epoch(1)
        assert await cluster.send_leaders(1, {("foo", 0): 1}, 0) == [codes.NONE, codes.NONE]
        cluster.brokers[1].kill()
        assert cluster.brokers[1].broker is None
        await asyncio.sleep(1.0)
        assert cluster.broker_epoch(1) == first
        await cluster.until(lambda: cluster.broker_epoch(1) == -1)
        cluster.brokers[1].start()
        await cluster.until(lambda: cluster.broker_epoch(1) > first)
        await cluster.until(lambda: life_of(cluster, 1)[-1] == "registered")
        started = dict(cluster.brokers[1].state_log[-2].record)
        assert started["reason"] == "1 partitions found on the disk"

    cluster = simulated(story)
    assert life_of(cluster, 1) == ["started", "registered", "started", "registered"]
    assert cluster.brokers[1].exit is None


def test_a_broker_back_before_its_old_session_ends_waits_for_it() -> None:
    async def story(cluster: BrokerCluster) -> None:
        await cluster.start()
        first, at_s = cluster.broker_epoch(1), cluster.loop.time()
        cluster.brokers[1].kill()
        cluster.brokers[1].start()
        await cluster.until(lambda: cluster.broker_epoch(1) > first)
        assert 1.0 < cluster.loop.time() - at_s < 4.0

    simulated(story)


def test_an_expired_session_is_registered_anew_by_the_same_process() -> None:
    async def story(cluster: BrokerCluster) -> None:
        await cluster.start()
        first, process = cluster.broker_epoch(2), cluster.brokers[2].process
        cluster.zk.block("broker-2", [0, 1, 2])
        await cluster.until(lambda: cluster.broker_epoch(2) == -1)
        cluster.zk.unblock("broker-2")
        await cluster.until(lambda: cluster.broker_epoch(2) > first)
        assert cluster.brokers[2].process is process
        await cluster.until(lambda: life_of(cluster, 2) == ["started", "registered", "registered"])

    simulated(story)


def test_a_frozen_broker_goes_on_where_it_was() -> None:
    async def story(cluster: BrokerCluster) -> None:
        await cluster.start()
        process = cluster.brokers[3].process
        assert process is not None
        first = cluster.broker_epoch(3)
        cluster.loop.pause(process)
        await cluster.until(lambda: cluster.broker_epoch(3) == -1)
        await asyncio.sleep(5.0)
        assert life_of(cluster, 3) == ["started", "registered"]
        cluster.loop.resume(process)
        await cluster.until(lambda: cluster.broker_epoch(3) > first)

    simulated(story)


def test_terminate_hands_over_and_takes_the_registration_back() -> None:
    async def story(cluster: BrokerCluster) -> None:
        await cluster.start()
        await cluster.serve_as_controller()
        at_s = cluster.loop.time()
        cluster.brokers[1].terminate()
        await cluster.until(lambda: not cluster.brokers[1].alive)
        assert cluster.loop.time() - at_s < 1.0
        assert cluster.broker_epoch(1) == -1

    cluster = simulated(story)
    assert cluster.shutdowns == [1]
    assert cluster.brokers[1].exit == 0
    assert life_of(cluster, 1) == ["started", "registered", "stopped"]


def test_two_brokers_with_one_id_and_a_failed_disk_end_with_their_errors() -> None:
    async def story(cluster: BrokerCluster) -> None:
        await cluster.start()
        twin = SimBroker(cluster, 1)
        twin.name = "twin"
        twin.start()
        cluster.brokers[2].kill()
        cluster.brokers[2].disk.fail()
        cluster.brokers[2].start()
        await cluster.until(lambda: not twin.alive and not cluster.brokers[2].alive)
        assert isinstance(twin.exit, RegistrationFault)
        assert isinstance(cluster.brokers[2].exit, StorageFault)
        assert cluster.brokers[2].bugs == []

    simulated(story)


def test_a_log_that_fails_takes_its_replica_offline() -> None:
    async def story(cluster: BrokerCluster) -> None:
        await cluster.start()
        await cluster.tell_all({("foo", 0): 1, ("foo", 1): 2}, 0)
        cluster.brokers[1].disk.fail_log(("foo", 0))
        producer = SimProducer(cluster, 0, interval_s=0.05)
        cluster.clients.append(producer)
        producer.start()
        await cluster.until(lambda: cluster.node("/log_dir_event_notification").children)
        records = [dict(entry.record) for entry in cluster.brokers[1].state_log]
        assert [r["to"] for r in records if r.get("topic") == "foo" and r["partition"] == 0] == [
            "leader",
            "offline",
        ]
        assert cluster.partition(1, ("foo", 0)) is None

    simulated(story)


async def changing_leaders(cluster: BrokerCluster, rounds: int = 2) -> None:
    """Clients at work while leaders change: one after the other is killed and comes back."""
    await cluster.start()
    offsets = {(OFFSETS_TOPIC, number): 1 + number for number in (0, 1)}
    await cluster.tell_all({("foo", 0): 1, ("foo", 1): 2, **offsets}, 0)
    cluster.clients += [
        SimProducer(cluster, 0, interval_s=0.1),
        SimProducer(cluster, 1, acks=1, interval_s=0.2),
        SimConsumer(cluster, 0),
        SimGroupMember(cluster, 0, "group", ["foo"], interval_s=0.3),
        SimGroupMember(cluster, 1, "group", ["foo"], interval_s=0.3),
    ]
    for client in cluster.clients:
        client.start()
    for epoch in range(1, rounds + 1):
        await asyncio.sleep(2.0)
        victim = cluster.brokers[epoch]
        epoch_before = cluster.broker_epoch(epoch)
        victim.kill()
        heirs = [id_ for id_ in ISR if id_ != epoch]
        await cluster.tell_all({("foo", 0): heirs[0], ("foo", 1): heirs[1]}, 10 * epoch)
        await asyncio.sleep(1.0)
        victim.start()
        await cluster.until(lambda id_=epoch, e=epoch_before: cluster.broker_epoch(id_) > e)  # type: ignore[misc]
        offsets = {(OFFSETS_TOPIC, number): heirs[number] for number in (0, 1)}
        leaders = {("foo", 0): heirs[0], ("foo", 1): heirs[1], **offsets}
        await cluster.tell_all(leaders, 10 * epoch + 1)
    await asyncio.sleep(3.0)
    for client in cluster.clients:
        client.stop()
    await asyncio.sleep(5.0)


def test_what_clients_are_told_holds_while_leaders_change() -> None:
    verdicts = []

    async def story(cluster: BrokerCluster) -> None:
        await changing_leaders(cluster)
        verdicts.append(cluster.history.check_final(cluster.final()))
        assert all(client.bugs == [] for client in cluster.clients)
        assert all(broker.bugs == [] for broker in cluster.brokers.values())

    cluster = simulated(story)
    assert cluster.history.findings == []
    assert verdicts[0].ok
    assert verdicts[0].acknowledged > 50
    assert cluster.history.reads > 100
    assert cluster.history.offsets_acknowledged == 2


def test_a_seed_has_one_course() -> None:
    async def story(cluster: BrokerCluster) -> None:
        await changing_leaders(cluster, rounds=1)

    courses = [simulated(story, seed) for seed in (7, 7, 8)]
    logs = [[broker.state_log for broker in cluster.brokers.values()] for cluster in courses]
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]
    assert repr(courses[0].history) == repr(courses[1].history)


def test_no_thread_is_left() -> None:
    before = threading.active_count()

    async def story(cluster: BrokerCluster) -> None:
        await cluster.start()

    simulated(story)
    assert threading.active_count() == before
