"""ControllerService on a real ZooKeeper and over real gRPC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from proto import common_pb2
from tests.runtime.callers import controller
from tests.runtime.pushes import FakeBroker
from tests.runtime.sessions import until

pytestmark = pytest.mark.slow


def metadata_of(broker: FakeBroker) -> Any:
    return broker.states("UpdateMetadata")[-1]


async def test_a_leader_shrinks_and_grows_its_isr(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    one, two = FakeBroker(1), FakeBroker(2)
    async with controller(zookeeper, zk, tmp_path, one, two, topics={"t": '{"0":[1,2]}'}) as active:
        assert active.stored() == (1, 0, [1, 2], 0)
        before = len(one.states("LeaderAndIsr")), len(two.states("LeaderAndIsr"))
        for number, isr in enumerate(([1], [1, 2])):
            answer = await active.caller.alter(active.request(1, active.proposal(isr)))
            assert answer.error_code == common_pb2.NONE
            (altered,) = answer.partitions
            assert (altered.error_code, altered.topic, altered.partition) == (common_pb2.NONE, "t", 0)
            assert (altered.leader, altered.leader_epoch, list(altered.isr)) == (1, 0, isr)
            assert altered.partition_epoch == number + 1
            assert active.stored() == (1, 0, isr, number + 1)
        await until(lambda: {metadata_of(b).partition_epoch for b in (one, two)} == {2}, "the metadata")
        assert (len(one.states("LeaderAndIsr")), len(two.states("LeaderAndIsr"))) == before
        answer = await active.caller.shut_down(1, one.epoch)
        assert (answer.error_code, list(answer.remaining_partitions)) == (common_pb2.NONE, [])
        assert active.stored() == (2, 1, [2], 3)
