"""What a whole daemon tries again: a deletion that a broker refused at first, a move that could not begin."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from controller.core import backoff
from controller.core.reassignment import phases
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import SetFreeze
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.requests.topics import DeleteTopics, DeleteTopicsReply, TopicRef
from controller.runtime import state
from controller.runtime import term as terms
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from proto.gen import broker_control_pb2 as pb
from proto.gen import common_pb2
from tests.support.runtime.daemons import running
from tests.support.runtime.pushes import FakeBroker
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

PARTITIONS = 3


async def test_a_refused_deletion_is_tried_again_and_told(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "RETRY_FIRST_US", 2_000_000)
    monkeypatch.setattr(terms, "RETRY_LOOK_S", 0.05)
    code = common_pb2.KAFKA_STORAGE_ERROR

    async def answer(kind: str, request: Any) -> bytes:
        if kind != "StopReplica":
            return b""
        errors = [
            common_pb2.PartitionError(topic=s.topic, partition=s.partition, error_code=code)
            for s in request.partition_states
        ]
        return pb.StopReplicaResponse(partition_errors=errors).SerializeToString()

    broker = await FakeBroker(1).start()
    broker.answer = answer
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))
    async with running(daemon):
        await until(lambda: daemon.active, "the failover")
        zk.create(
            "/brokers/ids/1", f'{{"version":4,"endpoints":["GRPC://127.0.0.1:{broker.port}"]}}'.encode()
        )
        zk.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1],"1":[1],"2":[1]}}')
        term = daemon.term
        assert term is not None
        cluster = term.machine.cluster
        await until(
            lambda: sum(p.leadership is not None for p in cluster.partitions()) == PARTITIONS, "the topic"
        )
        reply = await term.ask(DeleteTopics([TopicRef("t"), TopicRef("unknown")]))
        assert isinstance(reply, DeleteTopicsReply)
        assert [a.error for a in reply.topics] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        await until(lambda: "t" in cluster.deletions_ineligible, "the refusal")
        notified = (await state.state(daemon))["term"]["topics_to_delete"]["t"]
        assert notified["state"] == "ineligible"
        assert notified["reason"] == "replica 1 of t-0: its broker answered KAFKA_STORAGE_ERROR (and 2 more)"
        assert notified["replicas_left"] == PARTITIONS
        assert 0 < notified["retry_in_s"] <= 2.0
        assert zk.get_children("/admin/delete_topics") == ["t"]
        code = common_pb2.NONE
        await until(lambda: not zk.get_children("/admin/delete_topics"), "the deletion")
        assert zk.get_children("/brokers/topics") == []

        async def ended() -> bool:
            return not (await state.state(daemon))["term"]["topics_to_delete"]

        await until(ended, "the end")
        orders = [s for s in broker.states("StopReplica") if s.delete_partition]
        assert len(orders) == 2 * PARTITIONS
        assert {s.leader_epoch for s in orders} == {-2}
        assert {s.leader for s in broker.states("UpdateMetadata")[-PARTITIONS:]} == {-2}
    await broker.stop()


async def test_a_waiting_move_that_could_not_begin_begins_without_another_event(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topic's znode does not decode when its turn comes."""
    monkeypatch.setattr(phases, "RETRY_FIRST_US", 200_000)
    monkeypatch.setattr(terms, "RETRY_LOOK_S", 0.05)
    path = "/brokers/topics/t"
    brokers = [await FakeBroker(n).start() for n in (1, 2)]
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))
    async with running(daemon):
        await until(lambda: daemon.active, "the failover")
        for n, broker in enumerate(brokers, 1):
            registered = f'{{"version":4,"endpoints":["GRPC://127.0.0.1:{broker.port}"]}}'
            await asyncio.to_thread(zk.create, f"/brokers/ids/{n}", registered.encode())
        await asyncio.to_thread(zk.create, path, b'{"version":1,"partitions":{"0":[1]}}')
        term = daemon.term
        assert term is not None
        known = term.machine.cluster.reassignments
        await until(lambda: any(p.leadership for p in term.machine.cluster.partitions()), "the topic")
        await term.ask(SetFreeze(True, "r", "a", 2**42))
        await term.ask(AlterPartitionReassignments([PartitionReassignment("t", 0, (2,))]))
        assert known.queued
        stored, _ = await asyncio.to_thread(zk.get, path)
        await asyncio.to_thread(zk.set, path, b"{")
        await term.ask(SetFreeze(False, "r", "a", 0))
        await until(lambda: bool(known.stalled), "it cannot begin")
        await asyncio.to_thread(zk.set, path, stored)
        await until(lambda: bool(known.ongoing), "it begins")
        assert (known.queued, known.stalled) == ({}, {})
        assert json.loads((await asyncio.to_thread(zk.get, path))[0])["adding_replicas"] == {"0": [2]}
    for broker in brokers:
        await broker.stop()
