"""Senders over Kafka's protocol: what brokers are told and when, and what becomes of their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.core.model import Broker, ControlProtocol, Endpoint
from controller.runtime.kafka.endpoints import Listeners
from controller.runtime.kafka.security.client import ClientSecurity
from controller.runtime.kafka.topic_ids import uuid_bytes
from controller.runtime.push.kafka_transport import KafkaSide, KafkaTransports
from proto.gen.kafka.leader_and_isr_response import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from proto.gen.kafka.stop_replica_response import StopReplicaPartitionError, StopReplicaResponse
from proto.gen.kafka.update_metadata_response import UpdateMetadataResponse
from proto.kafka.apis import ApiKey, RequestHeader
from tests.support.runtime.kafka_peer import KafkaPeer, response
from tests.support.runtime.pushes import FakeBroker, SenderHarness, decide, sender_harness, topic
from tests.support.runtime.sessions import until

ID = "JbxJ2ck0RYSWkPOHk5AzEQ"
SIDE = KafkaSide(Listeners("", "", "PLAINTEXT"), ClientSecurity(), {"": ("127.0.0.1", 9192)})


@asynccontextmanager
async def senders_to(
    *peers: KafkaPeer, grpc: tuple[FakeBroker, ...] = (), **options: Any
) -> AsyncIterator[SenderHarness]:
    async with sender_harness(*grpc, **options) as harness:
        harness.transports[ControlProtocol.KAFKA] = KafkaTransports(
            harness.cluster, harness.message_bytes_max, harness.request_timeout_s, SIDE
        )
        for peer in peers:
            await peer.start()
            join(harness, peer.incarnation)
        try:
            yield harness
        finally:
            await asyncio.wait_for(harness.senders.stop(), 10)
            for peer in peers:
                await peer.stop()


def join(harness: SenderHarness, broker: Broker) -> None:
    harness.cluster.brokers[broker.id] = broker
    harness.outbox.add_broker(broker, 1, "Test")
    harness.outbox.brokers_changed(1, "BrokerChange")


def states(peer: KafkaPeer, key: ApiKey) -> list[Any]:
    return [s for request in peer.requests(key) for t in request.topic_states for s in t.partition_states]


async def test_orders_arrive_in_order_one_at_a_time() -> None:
    peer = KafkaPeer()
    partitions = topic("t", 3, (1,), ID)
    async with senders_to(peer) as harness:
        for _ in range(4):
            harness.push([1], partitions)
            await asyncio.sleep(0.005)
            for partition in partitions:
                decide(partition)
        harness.push([1], partitions)
        harness.outbox.stop_replica([(partitions[0], 1)], True, 3, "Test")
        harness.senders.sync(deciding=False)
        await until(lambda: harness.answered() and bool(harness.stops), "delivery")
        keys = [header.api_key for header, _ in peer.received]
        assert keys[:2] == [ApiKey.API_VERSIONS, ApiKey.UPDATE_METADATA]
        assert keys[-1] == ApiKey.STOP_REPLICA
        assert (peer.overlaps, peer.connections) == (0, 1)
        for key in (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA):
            epochs = [s.leader_epoch for s in states(peer, key) if s.partition_index == 1]
            assert epochs == sorted(epochs)
            assert epochs[-1] == 4
        assert [b.id for b in peer.requests(ApiKey.UPDATE_METADATA)[-1].live_brokers] == [1, 100]
        (stopped,) = harness.stops
        assert (stopped.deleted, stopped.failed) == ([partitions[0]], [])


async def test_in_one_cluster_some_brokers_take_grpc_and_some_kafka_s_protocol() -> None:
    peer, broker = KafkaPeer(1), FakeBroker(2)
    async with senders_to(peer, grpc=(broker,)) as harness:
        harness.push([1, 2], topic("t", 3, (1, 2), ID))
        await until(lambda: harness.answered() and len(states(peer, ApiKey.UPDATE_METADATA)) == 3, "delivery")
        await until(lambda: harness.answered() and len(broker.states("UpdateMetadata")) == 3, "delivery")
        assert len(states(peer, ApiKey.LEADER_AND_ISR)) == len(broker.states("LeaderAndIsr")) == 3
        ((_, newest),) = [broker.received[-1]]
        # This controller is listed among the live brokers to Kafka brokers only, which do not hear of the others.
        assert {b.broker_id for b in newest.live_brokers} == {1, 2}
        assert {b.id for b in peer.requests(ApiKey.UPDATE_METADATA)[-1].live_brokers} == {1, 100}


@pytest.mark.parametrize("old", [False, True], ids=["topic ids", "topic names"])
async def test_partition_errors_are_counted_and_failed_disks_reported(old: bool) -> None:
    peer = KafkaPeer()
    if old:
        peer.versions[ApiKey.LEADER_AND_ISR] = 4
    partitions = topic("t", 4, (1,), ID)

    async def partly(header: RequestHeader, request: Any) -> bytes | None:
        if header.api_key != ApiKey.LEADER_AND_ISR:
            return await peer.carry_out(header, request)
        codes = [0, 11, 56, 103]
        errors = [
            LeaderAndIsrPartitionError("t" if old else "", number, code) for number, code in enumerate(codes)
        ]
        if old:
            return response(header, LeaderAndIsrResponse(partition_errors=errors))
        return response(header, LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(uuid_bytes(ID), errors)]))

    peer.answer = partly
    async with senders_to(peer) as harness:
        harness.push([1], partitions)
        await until(lambda: len(harness.rows("ack")) == 3, "acks")
        assert [a.get("error") for a in harness.rows("ack")] == [
            None,
            "INCONSISTENT_TOPIC_ID x1, KAFKA_STORAGE_ERROR x1",
            None,
        ]
        (report,) = harness.disks
        assert (report.failed, report.healthy) == ([partitions[2]], [partitions[0]])


async def test_every_way_a_deletion_is_answered_is_reported() -> None:
    peer = KafkaPeer()
    partitions = topic("t", 3, (1,), ID)

    async def partly(header: RequestHeader, request: Any) -> bytes | None:
        if header.api_key != ApiKey.STOP_REPLICA:
            return await peer.carry_out(header, request)
        errors = [StopReplicaPartitionError("t", 0, 0), StopReplicaPartitionError("t", 1, 56)]
        return response(header, StopReplicaResponse(0, errors))

    peer.answer = partly
    async with senders_to(peer) as harness:
        for partition in partitions:
            harness.outbox.stop_replica([(partition, 1)], True, 3, "Test")
        harness.senders.sync(deciding=False)
        await until(lambda: bool(harness.stops), "report")
        (report,) = harness.stops
        assert report.deleted == [partitions[0]]
        assert report.failed == [
            (partitions[1], "KAFKA_STORAGE_ERROR"),
            (partitions[2], "UNKNOWN_SERVER_ERROR"),
        ]


async def test_a_newer_controller_epoch_at_the_broker_is_suspect() -> None:
    peer = KafkaPeer()

    async def stale(header: RequestHeader, request: Any) -> bytes | None:
        if header.api_key == ApiKey.UPDATE_METADATA:
            return response(header, UpdateMetadataResponse(11))
        return await peer.carry_out(header, request)

    peer.answer = stale
    async with senders_to(peer) as harness:
        harness.senders.sync(deciding=False)
        await until(lambda: bool(harness.suspicions), "suspicion")
        assert harness.rows("ack")[0]["error"] == "STALE_CONTROLLER_EPOCH"


async def test_down_at_first_and_told_the_newest_when_it_comes_up() -> None:
    peer = KafkaPeer()
    partitions = topic("t", 2, (1,), ID)
    async with senders_to(peer) as harness:
        await peer.stop()
        harness.push([1], partitions)
        status = harness.senders.status[1]
        await until(lambda: status.attempts >= 2, "failed attempts")
        assert f"127.0.0.1:{peer.port}" in status.problem
        assert harness.counted(1, "UpdateMetadata", "unreachable") >= 2
        for partition in partitions:
            decide(partition)
        await peer.start()
        await until(lambda: harness.answered() and status.acknowledged_requests == 3, "delivery")
        assert (status.problem, status.attempts) == ("", 0)
        assert {s.leader_epoch for s in states(peer, ApiKey.LEADER_AND_ISR)} == {1}


async def test_nobody_connects_for_ever_once_the_lease_is_over() -> None:
    peer = KafkaPeer()
    async with senders_to(peer) as harness:
        await peer.stop()
        harness.senders.sync(deciding=False)
        await until(lambda: harness.senders.status[1].attempts == 1, "a failed attempt")
        harness.lease = False
        await until(lambda: bool(harness.bugs), "the sender's end")
        await peer.start()
        await asyncio.sleep(0.05)
        assert peer.received == []


async def test_an_unanswered_order_is_sent_again() -> None:
    peer = KafkaPeer()

    async def first_lost(header: RequestHeader, request: Any) -> bytes | None:
        if len(peer.requests(ApiKey.LEADER_AND_ISR)) == 1 and header.api_key == ApiKey.LEADER_AND_ISR:
            return None
        return await peer.carry_out(header, request)

    peer.answer = first_lost
    async with senders_to(peer) as harness:
        harness.push([1], topic("t", 2, (1,), ID))
        await until(lambda: harness.answered() and len(harness.rows("ack")) == 3, "delivery")
        first, second = peer.requests(ApiKey.LEADER_AND_ISR)
        assert first == second
        assert harness.counted(1, "LeaderAndIsr", "unreachable") == 1
        assert peer.connections == 2


async def test_a_changed_address_is_followed() -> None:
    peer, elsewhere = KafkaPeer(), KafkaPeer()
    async with senders_to(peer) as harness:
        harness.push([1], topic("t", 1, (1,), ID))
        await until(lambda: harness.answered() and len(harness.rows("ack")) == 3, "delivery")
        await elsewhere.start()
        moved = elsewhere.incarnation
        harness.cluster.brokers[1] = moved
        harness.outbox.queues[1].broker = moved
        harness.push([1], topic("u", 1, (1,), ID))
        await until(
            lambda: harness.answered() and bool(states(elsewhere, ApiKey.UPDATE_METADATA)), "delivery"
        )
        assert len(states(peer, ApiKey.UPDATE_METADATA)) == 1
        await harness.senders.stop()
        await elsewhere.stop()


async def test_a_broker_that_cannot_be_led_is_a_problem_with_words_and_nobody_else_s() -> None:
    odd, old, well = Broker(5, 9, (Endpoint("SECRET", "SASL_SSL", "h", 1),)), KafkaPeer(2), KafkaPeer(1)
    old.versions[ApiKey.STOP_REPLICA] = 2
    async with senders_to(well, old) as harness:
        join(harness, odd)
        harness.push([1, 2, 5], topic("t", 1, (1, 2, 5), ID))
        await until(
            lambda: harness.outbox.pending(1) == 0 and len(well.received) >= 4, "the other's delivery"
        )
        status = harness.senders.status
        await until(lambda: status[2].attempts > 0 and status[5].attempts > 0, "problems")
        assert status[5].problem == (
            "broker 5 has no listener with security protocol PLAINTEXT (kafka_security_protocol);"
            " its listeners are SECRET (SASL_SSL)"
        )
        assert "broker 2 speaks 0 to 2 of StopReplica" in status[2].problem
        assert harness.bugs == []


async def test_an_order_waits_when_the_broker_behind_the_address_speaks_less_than_before() -> None:
    """A downgraded broker at the same address, before its new registration is known."""
    peer = KafkaPeer()
    async with senders_to(peer) as harness:
        harness.senders.sync(deciding=False)
        await until(harness.answered, "delivery")
        peer.versions[ApiKey.LEADER_AND_ISR] = 5
        peer.hang_up()
        harness.push([1], topic("t", 1, (1,), ID))
        status, why = harness.senders.status[1], "broker 1 does not speak version 7 of LeaderAndIsr any more"
        # The first attempt may still find the connection that is being closed.
        await until(lambda: why in status.problem, why)
        assert peer.requests(ApiKey.LEADER_AND_ISR) == []


async def test_a_broker_older_than_3_has_this_controller_registered() -> None:
    peer, old = KafkaPeer(1), KafkaPeer(2)
    peer.versions[ApiKey.ALLOCATE_PRODUCER_IDS] = 0
    async with senders_to(peer, old) as harness:
        transports = harness.transports[ControlProtocol.KAFKA]
        assert isinstance(transports, KafkaTransports)
        harness.senders.sync(deciding=False)
        asked = ApiKey.UPDATE_METADATA
        await until(lambda: bool(peer.requests(asked) and old.requests(asked)), "requests")
        assert transports.older_than_3 == {2}
        endpoints, rack = transports.own_registration()
        assert ([(e.listener, e.port) for e in endpoints], rack) == ([("PLAINTEXT", 9192)], None)
        gone = harness.cluster.brokers.pop(2)
        assert transports.own_registration() == ([], None)
        # Upgraded.
        transports.connected(gone, {ApiKey.ALLOCATE_PRODUCER_IDS: range(1)})
        harness.cluster.brokers[2] = gone
        assert transports.own_registration() == ([], None)
