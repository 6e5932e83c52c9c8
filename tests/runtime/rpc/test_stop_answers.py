"""What brokers answer to StopReplica: what was to be deleted is heard of, all of it."""

from __future__ import annotations

from typing import Any

from proto.gen import broker_control_pb2 as pb
from proto.gen import common_pb2
from tests.support.runtime.pushes import FakeBroker, sender_harness, topic
from tests.support.runtime.sessions import until


def pb_error(name: str, partition: int, code: int) -> common_pb2.PartitionError:
    return common_pb2.PartitionError(topic=name, partition=partition, error_code=code)  # type: ignore[arg-type]


async def test_deletions_are_heard_of_partition_by_partition() -> None:
    """What was not answered failed, too; what was only to be stopped is nobody's news."""
    broker = FakeBroker(1)

    async def answer(kind: str, request: Any) -> bytes:
        if kind != "StopReplica":
            return b""
        errors = [pb_error("t", 0, 0), pb_error("t", 1, common_pb2.KAFKA_STORAGE_ERROR), pb_error("t", 3, 0)]
        return pb.StopReplicaResponse(partition_errors=errors).SerializeToString()

    broker.answer = answer
    partitions = topic("t", 4, (1,))
    async with sender_harness(broker) as rig:
        for partition in partitions:
            rig.outbox.stop_replica([(partition, 1)], partition.number < 3, 2, "Test")
        rig.senders.sync(deciding=False)
        await until(lambda: bool(rig.stops), "the report")
        (report,) = rig.stops
        assert (report.broker_id, report.broker_epoch) == (1, 1)
        assert list(report.deleted) == [partitions[0]]
        assert list(report.failed) == [
            (partitions[1], "KAFKA_STORAGE_ERROR"),
            (partitions[2], "UNKNOWN_SERVER_ERROR"),
        ]


async def test_a_request_refused_as_a_whole_deletes_nothing() -> None:
    """The original hears nothing of that, and waits for ever."""
    broker = FakeBroker(1)

    async def refuse(kind: str, request: Any) -> bytes:
        if kind != "StopReplica":
            return b""
        return pb.StopReplicaResponse(error_code=common_pb2.STALE_BROKER_EPOCH).SerializeToString()

    broker.answer = refuse
    partitions = topic("t", 500, (1,))
    async with sender_harness(broker, message_bytes_max=1_000) as rig:
        for partition in partitions:
            rig.outbox.stop_replica([(partition, 1)], True, 2, "Test")
        rig.senders.sync(deciding=False)
        await until(lambda: sum(report.size for report in rig.stops) == len(partitions), "the reports")
        assert len(rig.stops) > 3  # one for each message
        assert {error for report in rig.stops for _, error in report.failed} == {"STALE_BROKER_EPOCH"}
        assert [p for report in rig.stops for p, _ in report.failed] == partitions


async def test_nothing_to_delete_is_no_news() -> None:
    broker = FakeBroker(1)
    async with sender_harness(broker) as rig:
        rig.outbox.stop_replica([(topic("t", 1, (1,))[0], 1)], False, 2, "Test")
        rig.senders.sync(deciding=False)
        await until(lambda: rig.answered() and bool(broker.states("StopReplica")), "delivery")
        assert rig.stops == []
