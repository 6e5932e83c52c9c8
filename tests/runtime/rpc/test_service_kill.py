"""kill -9 of a controller process with brokers' requests in flight: its successor and ZooKeeper agree with them."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from controller.core import znode_paths
from controller.runtime.zookeeper import codecs
from proto.gen import common_pb2
from proto.gen import controller_service_pb2 as pb
from tests.support.runtime.callers import calling, register
from tests.support.runtime.programs import BIN, Program, program
from tests.support.runtime.pushes import FakeBroker
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

PARTITIONS = 40


@contextmanager
def candidate(zookeeper: str, directory: Path, number: int) -> Iterator[Program]:
    command = [
        str(BIN / "partition-controller"),
        "run",
        f"--controller-id={number}",
        f"--zookeeper={zookeeper}",
        "--grpc-listen=127.0.0.1:0",
        "--http-listen=127.0.0.1:0",
        f"--state-log-dir=log-{number}",
        "--session-timeout-ms=4000",
    ]
    with program(command, directory, name=f"controller-{number}") as running:
        running.until(lambda: '"to": "standby"' in running.said() or '"ready"' in running.said())
        yield running


def endpoint_of(zk: KazooClient) -> tuple[int, str]:
    """Id and gRPC address of the active controller, as brokers find it; (-1, "") without one."""
    try:
        return codecs.decode_controller(zk.get(znode_paths.CONTROLLER)[0])
    except NoNodeError:
        return -1, ""


class Leader:
    """Broker 1's side of its partitions: it flips each ISR again and again, and keeps what was answered."""

    def __init__(self, zk: KazooClient, broker: FakeBroker) -> None:
        self.zk, self.broker = zk, broker
        self.epochs = dict.fromkeys(range(PARTITIONS), 0)
        self.isrs = {number: [1, 2] for number in range(PARTITIONS)}
        self.acknowledged = 0
        self.errors: set[str] = set()
        self.stopped = False

    async def run(self, mine: list[int]) -> None:
        while not self.stopped:
            _, endpoint = endpoint_of(self.zk)
            if not endpoint:
                await asyncio.sleep(0.02)
                continue
            try:
                async with calling(endpoint) as caller:
                    await self._flip(caller, mine)
            except grpc.aio.AioRpcError as error:
                self.errors.add(error.code().name)
                await asyncio.sleep(0.02)

    async def _flip(self, caller: Any, mine: list[int]) -> None:
        """The same proposal until it is answered, as a broker does; then the next."""
        while not self.stopped:
            wanted = {n: [1] if self.isrs[n] == [1, 2] else [1, 2] for n in mine}
            proposals = [
                pb.AlterPartitionState(
                    topic="t", partition=n, new_isr=wanted[n], leader_epoch=0, partition_epoch=self.epochs[n]
                )
                for n in mine
            ]
            request = pb.AlterPartitionRequest(
                broker_id=1, broker_epoch=self.broker.epoch, partitions=proposals
            )
            answer = await caller.alter(request, timeout_s=10)
            if answer.error_code != common_pb2.NONE:
                self.errors.add(common_pb2.ErrorCode.Name(answer.error_code))
                await asyncio.sleep(0.02)
                return
            for altered in answer.partitions:
                assert altered.error_code == common_pb2.NONE, altered
                assert list(altered.isr) == wanted[altered.partition]
                assert altered.partition_epoch == self.epochs[altered.partition] + 1
                self.epochs[altered.partition] += 1
                self.isrs[altered.partition] = list(altered.isr)
                self.acknowledged += 1


async def test_requests_in_flight_survive_kill_9(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    """Each answered change is one step of the partition epoch, none is lost, none is made twice."""
    one, two = await FakeBroker(1).start(), await FakeBroker(2).start()
    numbers = itertools.count(1)
    with (
        candidate(zookeeper, tmp_path, next(numbers)) as first,
        candidate(zookeeper, tmp_path, next(numbers)) as second,
    ):
        running = {1: first, 2: second}
        for broker in (one, two):
            register(zk, broker)
        assignment = json.dumps({str(n): [1, 2] for n in range(PARTITIONS)})
        zk.create("/brokers/topics/t", f'{{"version":1,"partitions":{assignment}}}'.encode())
        last = znode_paths.state_path("t", PARTITIONS - 1)
        await until(lambda: zk.exists(last) is not None, "the topic")
        leader = Leader(zk, one)
        halves = [list(range(0, PARTITIONS, 2)), list(range(1, PARTITIONS, 2))]
        tasks = [asyncio.create_task(leader.run(mine)) for mine in halves]
        await until(lambda: leader.acknowledged > 10 * PARTITIONS or any(t.done() for t in tasks), "changes")
        active, _ = endpoint_of(zk)
        running[active].process.kill()
        before = leader.acknowledged
        await until(lambda: endpoint_of(zk)[0] not in (-1, active), "a successor")
        reached = before + 10 * PARTITIONS
        await until(lambda: leader.acknowledged > reached or any(t.done() for t in tasks), "more changes")
        leader.stopped = True
        await asyncio.gather(*tasks)
        for number in range(PARTITIONS):
            data, stat = zk.get(znode_paths.state_path("t", number))
            stored = codecs.decode_state("t", number, data, stat.version)
            assert (list(stored.isr), stat.version) == (leader.isrs[number], leader.epochs[number])
            assert (stored.leader, stored.leader_epoch) == (1, 0)
        assert leader.errors
        assert not re.search(r'"event": "bug"', first.said() + second.said())
    for broker in (one, two):
        await broker.stop()
