"""A soak of controllers with very many partitions: brokers that only acknowledge, topics and ISRs that change all the
time, controllers that resign and die. Nobody writes records here; what must not be lost is the cluster's state.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import grpc

from controller.client import admin
from controller.core import znode_paths
from controller.core.effects import TopicInfo
from controller.core.model import LeaderAndIsr
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from controller.playground.cluster import console
from controller.runtime.zookeeper import cluster_reader, codecs, jute
from proto.gen import admin_service_pb2 as pb
from proto.gen import controller_service_pb2 as brokers_pb
from proto.gen import maintenance_pb2
from proto.limits import MESSAGE_LIMITS
from tests.bench import cluster
from tests.bench.changes import moved, name_of, nothing_moves
from tests.bench.cluster import Acceptors, ControllerProcess
from tests.provers.soak import report
from tests.provers.soak.run import EVERY_S
from tests.provers.soak.sampling import Sampler, Watched

PARTITIONS = 50
PREFIX = "a"
CONTROLLERS = (1, 2, 3)
#: Never restarted, so that what leaks slowly is seen.
ELDER = 1
TOPIC_PAUSE_S, ISR_PAUSE_S, MOVE_PAUSE_S, FAILOVER_PAUSE_S = 1.0, 1.0, 15.0, 30.0
#: Churning topics that are there at the same time, and partitions whose ISRs change at once.
TOPICS_MAX, ISRS_AT_ONCE = 20, 100
ANSWER_S, SETTLE_S = 30.0, 300.0
#: ISRs in one request.
ALTERED_MAX = 1000
_ALTER = "/partition_controller.v1.ControllerService/AlterPartition"
Key = tuple[str, int]


class Seen(NamedTuple):
    """A partition as ZooKeeper has it."""

    replicas: tuple[int, ...]
    state: LeaderAndIsr


@dataclass
class Crowd:
    """``over`` says whether to end. ``done``: how often each kind of change was carried out."""

    partitions: int
    seed: int
    directory: Path
    over: Callable[[], bool]
    sampler: Sampler = field(init=False)
    done: dict[str, int] = field(default_factory=dict)
    #: What the controller refused, by what it said.
    refused: Counter[str] = field(default_factory=Counter)

    async def play(self) -> list[str]:
        """Everything from start to end; what is wrong with the state at the end. Raises EnvironmentFault."""
        self._random = Random(self.seed)
        self._topics = max(1, self.partitions // PARTITIONS)
        self._controllers: dict[int, ControllerProcess] = {}
        self._starts = 0
        self._began_s = time.monotonic()
        self.sampler = Sampler(self._watched)
        zookeeper = EmbeddedZooKeeper(self.directory / "zookeeper", heap_mb=3072, force_sync=False)
        await asyncio.to_thread(zookeeper.start)
        self._server = zookeeper.servers[0]
        self._connect = zookeeper.connect_string
        acceptors = None
        try:
            async with cluster_reader.connected(self._connect, 60_000) as self._session:
                await cluster.populate(self._session, PREFIX, self._topics, PARTITIONS)
                self._say(f"{self._topics * PARTITIONS:,} partitions are in ZooKeeper")
                acceptors = await asyncio.to_thread(Acceptors, self._connect)
                self._launch(ELDER)
                await asyncio.to_thread(self._controllers[ELDER].wait_for, "ControllerFailover")
                for id_ in CONTROLLERS:
                    if id_ != ELDER:
                        self._launch(id_)
                return await self._live()
        finally:
            for process in self._controllers.values():
                process.process.kill()
                process.process.wait()
            if acceptors is not None:
                await asyncio.to_thread(acceptors.stop)
            await asyncio.to_thread(zookeeper.stop)

    def _say(self, text: str) -> None:
        console.print(f"{time.monotonic() - self._began_s:7.1f} s  {text}", markup=False)

    def _launch(self, id_: int) -> None:
        self._starts += 1
        directory = self.directory / f"controller-{id_}-{self._starts}"
        self._controllers[id_] = ControllerProcess(self._connect, directory, controller_id=id_)

    def _watched(self) -> Iterator[Watched]:
        for id_, process in self._controllers.items():
            folder = process.log_path.parent
            yield Watched(f"controller-{id_}", process.process.pid, (folder,), process.http)
        if self._server.process is not None:
            log = self._server.data_dir / "zookeeper.log"
            yield Watched("zookeeper", self._server.process.pid, (log,), java=True)

    async def _live(self) -> list[str]:
        before = await self._look()
        stop = asyncio.Event()
        works = (
            (self._change_topics, TOPIC_PAUSE_S),
            (self._change_isrs, ISR_PAUSE_S),
            (self._move, MOVE_PAUSE_S),
            (self._fail_over, FAILOVER_PAUSE_S),
            (self._sample, EVERY_S),
        )
        tasks = [asyncio.create_task(_again_and_again(work, pause_s, stop)) for work, pause_s in works]
        try:
            while not self.over():
                await asyncio.wait(tasks, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
                if any(task.done() for task in tasks):
                    break
        finally:
            stop.set()
            await asyncio.gather(*tasks)
        self._say("changes end; what was begun has its time")
        return await self._settled(before)

    # what is changed

    async def _change_topics(self) -> None:
        mine = sorted(await self._churning(), key=lambda name: int(name.rpartition("-")[2]))
        number = self.done.get("topics created", 0)
        topic = pb.CreatableTopic(name=f"churn-{number}", num_partitions=PARTITIONS, replication_factor=3)
        if await self._ask("CreateTopics", pb.CreateTopicsRequest(topics=[topic])):
            self._count("topics created")
        if len(mine) >= TOPICS_MAX:
            await self._delete(mine[:2])

    async def _delete(self, names: Sequence[str]) -> None:
        request = pb.DeleteTopicsRequest(topics=[pb.DeletableTopic(name=name) for name in names])
        if await self._ask("DeleteTopics", request):
            self._count("topics deleted", len(names))

    async def _churning(self) -> list[str]:
        names = await self._session.children(znode_paths.TOPICS)
        deleting = set(await self._session.children(znode_paths.DELETE_TOPICS))
        return [name for name in names if not name.startswith(f"{PREFIX}-") and name not in deleting]

    async def _change_isrs(self) -> None:
        """A follower leaves each full ISR, and comes back to each other, as leaders say."""
        first = self._random.randrange(self._topics * PARTITIONS)
        numbers = range(first, min(first + ISRS_AT_ONCE, self._topics * PARTITIONS))
        await self._alter(
            [(name_of(n // PARTITIONS), n % PARTITIONS) for n in numbers],
            lambda seen: seen.replicas if len(seen.state.isr) < 3 else _without_one(seen.state),
        )

    async def _alter(self, keys: Sequence[Key], wanted: Callable[[Seen], Sequence[int]]) -> None:
        seen = await self._look(keys)
        leaders = {found.state.leader for found in seen.values()}
        nodes = await self._session.bulk_get([znode_paths.broker_path(id_) for id_ in leaders])
        epochs = {id_: n.czxid for id_, n in zip(leaders, nodes, strict=True) if isinstance(n, jute.Node)}
        for leader, epoch in epochs.items():
            proposals = [
                brokers_pb.AlterPartitionState(
                    topic=topic,
                    partition=number,
                    leader_epoch=found.state.leader_epoch,
                    new_isr=dict.fromkeys([leader, *wanted(found)]),
                    partition_epoch=found.state.partition_epoch,
                )
                for (topic, number), found in seen.items()
                if found.state.leader == leader
            ]
            request = brokers_pb.AlterPartitionRequest(
                broker_id=leader, broker_epoch=epoch, partitions=proposals
            )
            if await self._propose(request):
                self._count("ISRs changed", len(proposals))

    async def _propose(self, request: Any) -> bool:
        if not (endpoint := await self._endpoint()):
            return False
        with contextlib.suppress(grpc.aio.AioRpcError):
            async with grpc.aio.insecure_channel(endpoint, options=MESSAGE_LIMITS) as channel:
                call: Any = channel.unary_unary(_ALTER)
                answer = await call(request.SerializeToString(), timeout=ANSWER_S)
                return not brokers_pb.AlterPartitionResponse.FromString(answer).error_code
        return False

    async def _move(self) -> None:
        """A topic's replicas go to another broker; the leaders say at once that they are there."""
        topic = name_of(self._random.randrange(self._topics))
        keys = [(topic, number) for number in range(PARTITIONS)]
        targets = {key: moved(seen.replicas) for key, seen in (await self._look(keys)).items()}
        entries = [
            pb.ReassignablePartition(topic=t, partition=n, replicas=pb.ReplicaList(broker_ids=ids))
            for (t, n), ids in targets.items()
        ]
        request = pb.AlterPartitionReassignmentsRequest(partitions=entries)
        if await self._ask("AlterPartitionReassignments", request):
            await self._alter(keys, lambda seen: [*seen.state.isr, *seen.replicas])
            self._count("partitions moved", PARTITIONS)

    async def _fail_over(self) -> None:
        """The controller resigns; every other time one that is not the elder dies instead, and is started again."""
        failovers = self.done.get("resignations", 0) + self.done.get("kills", 0)
        active = (await self._seen()).controller_id
        if failovers % 2 and active != ELDER:
            process = self._controllers[active].process
            process.kill()
            await asyncio.to_thread(process.wait)
            self._launch(active)
            self._count("kills")
        else:
            successor = self._random.choice([id_ for id_ in CONTROLLERS if id_ != active])
            request = maintenance_pb2.ResignControllerRequest(
                reason="soak", author="soak", successor=successor
            )
            if await self._ask("ResignController", request):
                self._count("resignations")

    async def _ask(self, method: str, request: Any) -> bool:
        """Whether it was carried out; while nobody leads it is not."""
        try:
            await admin.ask(await self._endpoint(), method, request, ANSWER_S)
        except admin.RefusedError as error:
            self.refused[f"{method}: {error}"] += 1
        except admin.RequestFailedError:
            self._count("requests not answered")
        else:
            return True
        return False

    async def _endpoint(self) -> str:
        return (await self._seen()).controller_endpoint

    async def _seen(self) -> cluster_reader.ClusterState:
        return await cluster_reader.look(self._session, topics=())

    def _count(self, what: str, by: int = 1) -> None:
        self.done[what] = self.done.get(what, 0) + by

    async def _sample(self) -> None:
        await asyncio.to_thread(self.sampler.sample)
        done = ", ".join(f"{count:,} {what}" for what, count in self.done.items())
        self._say(f"{done or 'nothing changed yet'}; {report.progress(self.sampler)}")

    # what must be there at the end

    async def _look(self, keys: Sequence[Key] | None = None) -> dict[Key, Seen]:
        """These partitions, or all that were there from the beginning. Those without a state are left out."""
        if keys is None:
            keys = [(name_of(n), number) for n in range(self._topics) for number in range(PARTITIONS)]
        names = list(dict.fromkeys(topic for topic, _ in keys))
        infos: dict[str, TopicInfo] = {}
        nodes = await self._session.bulk_get([znode_paths.topic_path(name) for name in names])
        for name, node in zip(names, nodes, strict=True):
            if isinstance(node, jute.Node):
                infos[name] = codecs.decode_topic(name, node.data, node.czxid, node.version)
        found: dict[Key, Seen] = {}
        states = await self._session.bulk_get([znode_paths.state_path(*key) for key in keys])
        for (topic, number), node in zip(keys, states, strict=True):
            if isinstance(node, jute.Node) and topic in infos:
                state = codecs.decode_state(topic, number, node.data, node.version)
                found[topic, number] = Seen(tuple(infos[topic].partitions[number]), state)
        return found

    async def _settled(self, before: dict[Key, Seen]) -> list[str]:
        """What is not as it should be; ISRs are made full first, and topics that churned deleted."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            seen = await self._look()
            behind = [key for key, one in seen.items() if set(one.state.isr) != set(one.replicas)]
            for start in range(0, len(behind), ALTERED_MAX):
                await self._alter(
                    behind[start : start + ALTERED_MAX], lambda one: [*one.state.isr, *one.replicas]
                )
            if left := await self._churning():
                await self._delete(left)
            left += await self._session.children(znode_paths.DELETE_TOPICS)
            wrong = await self._wrong(before, seen)
            if not behind and not left and not wrong:
                return []
            if time.monotonic() > deadline:
                wrong += [f"{topic}-{number}: not in sync" for topic, number in behind]
                return wrong + [f"topic {name}: not deleted" for name in left]
            await asyncio.sleep(0.5)

    async def _wrong(self, before: dict[Key, Seen], seen: dict[Key, Seen]) -> list[str]:
        wrong = [f"{topic}-{number}: lost" for topic, number in before.keys() - seen.keys()]
        for (topic, number), one in seen.items():
            if one.state.leader not in one.state.isr:
                wrong.append(f"{topic}-{number}: leader {one.state.leader} is not in {one.state.isr}")
            if one.state.leader_epoch < before[topic, number].state.leader_epoch:
                wrong.append(f"{topic}-{number}: an older leader epoch than in the beginning")
        names = [name_of(n) for n in range(self._topics)]
        nodes = await self._session.bulk_get([znode_paths.topic_path(name) for name in names])
        for name, node in zip(names, nodes, strict=True):
            if isinstance(node, jute.Node) and not nothing_moves(
                codecs.decode_topic(name, node.data, node.czxid, node.version)
            ):
                wrong.append(f"{name}: a reassignment is not complete")
        for id_, process in self._controllers.items():
            if process.process.poll() is not None:
                wrong.append(f"controller {id_} ended by itself with {process.process.returncode}")
            elif defects := process.metric("partition_controller_standby_wrong_total"):
                wrong.append(f"controller {id_}: its standby was wrong {defects:g} times")
        return wrong


def _without_one(state: LeaderAndIsr) -> list[int]:
    return [broker for broker in state.isr if broker != state.leader][:-1]


async def _again_and_again(work: Callable[[], Any], pause_s: float, stop: asyncio.Event) -> None:
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await stop.wait()
                return
        await work()
