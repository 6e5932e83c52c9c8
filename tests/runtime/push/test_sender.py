"""Senders: order, one request in flight, and what becomes of every way a broker can answer or not answer."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from controller.core.outbox import PushKind
from controller.runtime.push import entries, sender
from proto.gen import broker_control_pb2 as pb
from proto.gen import common_pb2
from tests.support.runtime.pushes import FakeBroker, StatusError, decide, sender_harness, topic
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow


async def test_strict_order_and_one_in_flight() -> None:
    broker = FakeBroker(1)
    partitions = topic("t", 5, (1,))

    async def slow(kind: str, request: Any) -> bytes:
        await asyncio.sleep(0.005)
        return b""

    broker.answer = slow
    async with sender_harness(broker) as harness:
        for _ in range(6):
            harness.push([1], partitions)
            await asyncio.sleep(0.004)
            for partition in partitions:
                decide(partition)
        harness.push([1], partitions)
        harness.outbox.stop_replica([(partitions[0], 1)], True, 3, "Test")
        harness.senders.sync(deciding=False)
        await until(lambda: harness.answered() and bool(broker.states("StopReplica")), "delivery")
        assert broker.overlaps == 0
        assert broker.received[0][0] == "UpdateMetadata"  # the list of live brokers first
        assert broker.received[-1][0] == "StopReplica"
        for kind in ("LeaderAndIsr", "UpdateMetadata"):
            for number in range(5):
                epochs = [s.leader_epoch for s in broker.states(kind) if s.partition == number]
                assert epochs == sorted(epochs)
                # Being told to stop makes the first one's last LeaderAndIsr pointless, or all of them.
                assert (kind, number) == ("LeaderAndIsr", 0) or epochs[-1] == 6
        assert all(r.broker_epoch == 1 and r.controller_epoch == 7 for _, r in broker.received)
        acks, pushes = harness.rows("ack"), harness.rows("push")
        assert [(p["to"], p["count"]) for p in pushes] == [(a["to"], a["count"]) for a in acks]
        assert [p["to"] for p in pushes] == [kind for kind, _ in broker.received]
        assert all(a["replica"] == 1 and a["duration_us"] > 0 and "error" not in a for a in acks)


async def test_a_hanging_broker_holds_up_nobody_else() -> None:
    hanging, well = FakeBroker(1), FakeBroker(2)
    release = asyncio.Event()

    async def hang(kind: str, request: Any) -> bytes:
        await release.wait()
        return b""

    hanging.answer = hang
    partitions = topic("t", 3)
    async with sender_harness(hanging, well) as harness:
        for _ in range(5):
            harness.push([1, 2], partitions)
            await until(lambda: harness.outbox.pending(2) == 0 and not well.ongoing, "the other's delivery")
            for partition in partitions:
                decide(partition)
        assert len(hanging.received) == 1
        assert len(well.received) > 5
        release.set()
        await until(lambda: harness.idle() and len(hanging.states("LeaderAndIsr")) >= 3, "delivery")


async def test_a_slow_broker_gets_only_the_newest_values() -> None:
    broker = FakeBroker(1)
    release = asyncio.Event()

    async def hang(kind: str, request: Any) -> bytes:
        await release.wait()
        return b""

    broker.answer = hang
    partitions = topic("t", 4, (1,))
    async with sender_harness(broker) as harness:
        harness.senders.sync(deciding=False)
        await until(lambda: broker.ongoing == 1, "the first request")
        for _ in range(50):
            for partition in partitions:
                decide(partition)
            harness.push([1], partitions)
        assert (
            harness.outbox.pending(1) == 2 * 4
        )  # four partitions, two kinds of request, however many decisions
        release.set()
        await until(lambda: harness.idle() and len(broker.states("UpdateMetadata")) >= 4, "delivery")
        for kind in ("LeaderAndIsr", "UpdateMetadata"):
            assert [(s.partition, s.leader_epoch) for s in broker.states(kind)] == [(n, 50) for n in range(4)]


async def test_it_rests_once_every_broker_has_answered_all() -> None:
    broker, other = FakeBroker(1), FakeBroker(2)
    release = asyncio.Event()

    async def hang(kind: str, request: Any) -> bytes:
        await release.wait()
        return b""

    broker.answer = hang
    async with sender_harness(broker, other) as harness:
        harness.push([1, 2], topic("t", 2))
        assert harness.senders.busy
        await until(lambda: len(other.received) == 3, "the other's delivery")
        assert harness.rests == []
        release.set()
        await until(lambda: len(broker.received) == 3 and not harness.senders.busy, "delivery")
        assert harness.rests == [False]


async def test_down_at_first_and_delivered_when_it_comes_up() -> None:
    broker = FakeBroker(1)
    partitions = topic("t", 2, (1,))
    async with sender_harness(broker) as harness:
        await broker.stop()
        harness.push([1], partitions)
        status = harness.senders.status[1]
        await until(lambda: status.attempts >= 2, "failed attempts")
        assert status.problem.startswith("UNAVAILABLE")
        assert harness.counted(1, "UpdateMetadata", "unreachable") >= 2
        assert status.acknowledged_requests == 0
        await broker.start()
        await until(lambda: harness.idle() and status.acknowledged_requests == 3, "delivery")
        assert [kind for kind, _ in broker.received] == ["UpdateMetadata", "LeaderAndIsr", "UpdateMetadata"]
        assert (status.problem, status.attempts) == ("", 0)
        assert status.acknowledged_partitions == 4
        assert status.age_s is not None
        assert len(harness.rows("push")) == 3  # a retried request is one push


async def test_no_answer_in_time_is_asked_again() -> None:
    broker = FakeBroker(1)

    async def once_silent(kind: str, request: Any) -> bytes:
        if len(broker.received) == 1:
            await asyncio.sleep(60)
        return b""

    broker.answer = once_silent
    async with sender_harness(broker, request_timeout_s=1.0) as harness:
        harness.senders.sync(deciding=False)
        await until(
            lambda: len(broker.received) >= 2 and harness.senders.status[1].problem == "", "the second"
        )
        first, second = (request for _, request in broker.received[:2])
        assert first == second


async def test_a_new_incarnation_gets_its_own_channel_and_no_leftovers() -> None:
    old, new = FakeBroker(1, epoch=10), FakeBroker(1, epoch=11)
    release = asyncio.Event()

    async def hang(kind: str, request: Any) -> bytes:
        await release.wait()
        return b""

    old.answer = hang
    before, after = topic("before", 3, (1,)), topic("after", 2, (1,))
    async with sender_harness(old, new) as harness:
        harness.outbox.remove_broker(1)
        harness.join(old)
        harness.push([1], before)
        await until(lambda: old.ongoing == 1, "a request to the old one")
        harness.join(new)
        harness.push([1], after)
        await until(
            lambda: harness.idle() and len(new.states("UpdateMetadata")) == 2, "delivery to the new one"
        )
        assert {s.topic for s in new.states("LeaderAndIsr")} == {"after"}
        assert {r.broker_epoch for _, r in new.received} == {11}
        assert len(old.received) == 1
        assert harness.senders.status[1].broker_epoch == 11
        release.set()


async def test_incarnations_in_quick_succession_leave_one_sender() -> None:
    """Replaced while it still waits for its predecessor's end, a sender must end too, and stop() must not hang."""
    brokers = [FakeBroker(1, epoch=n) for n in range(1, 5)]
    async with sender_harness(*brokers) as harness:
        for broker in brokers:
            harness.join(broker)
            harness.push([1], topic("t", 1, (1,)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await until(lambda: harness.idle() and bool(brokers[-1].states("LeaderAndIsr")), "delivery")
        harness.push([1], topic("later", 1, (1,)))
        await until(lambda: harness.idle() and len(brokers[-1].states("LeaderAndIsr")) == 2, "delivery")
        alive = [t.get_name() for t in asyncio.all_tasks() if t.get_name().startswith("sender-1-")]
        assert alive == ["sender-1-4"]
        assert all("later" not in {s.topic for s in b.states("LeaderAndIsr")} for b in brokers[:-1])


async def test_a_broker_that_left_is_not_told_any_more() -> None:
    broker = FakeBroker(1)
    async with sender_harness(broker) as harness:
        harness.push([1], topic("t", 1, (1,)))
        await until(lambda: harness.idle() and len(broker.received) == 3, "delivery")
        harness.outbox.remove_broker(1)
        harness.push([1], topic("u", 1, (1,)))
        assert 1 not in harness.senders.status
        await asyncio.sleep(0.05)
        assert len(broker.received) == 3


async def test_nothing_is_sent_once_the_lease_is_over() -> None:
    broker = FakeBroker(1)
    async with sender_harness(broker) as harness:
        harness.push([1], topic("t", 1, (1,)))
        await until(lambda: harness.idle() and len(broker.received) == 3, "delivery")
        harness.lease = False
        harness.push([1], topic("u", 1, (1,)))
        await until(lambda: not broker.sender_alive(), "the sender's end")
        assert len(broker.received) == 3


async def test_nothing_is_sent_again_once_the_lease_is_over() -> None:
    """Also not the attempt after a failed one."""
    broker = FakeBroker(1)
    async with sender_harness(broker) as harness:
        await broker.stop()
        harness.senders.sync(deciding=False)
        await until(lambda: harness.senders.status[1].attempts == 1, "a failed attempt")
        harness.lease = False
        await broker.start()
        await until(lambda: not broker.sender_alive(), "the sender's end")
        assert broker.received == []


# --- answers -----------------------------------------------------------------------------------------------


async def test_newer_controller_epoch_at_the_broker_is_suspect_and_final() -> None:
    broker = FakeBroker(1)

    async def stale(kind: str, request: Any) -> bytes:
        return pb.LeaderAndIsrResponse(error_code=common_pb2.STALE_CONTROLLER_EPOCH).SerializeToString()

    broker.answer = stale
    async with sender_harness(broker) as harness:
        harness.senders.sync(deciding=False)
        await until(lambda: bool(harness.suspicions), "suspicion")
        # As Kafka's, this answer does not say which epoch the broker knows.
        assert harness.suspicions == [("broker 1 refused a push as stale", 0)]
        assert harness.rows("ack")[0]["error"] == "STALE_CONTROLLER_EPOCH"
        assert harness.counted(1, "UpdateMetadata", "STALE_CONTROLLER_EPOCH") == 1
        await asyncio.sleep(0.05)
        assert len(broker.received) == 1  # an answer is final: no retry


async def test_a_push_refused_as_a_whole_is_no_acknowledgement_until_one_of_its_kind_succeeds() -> None:
    broker = FakeBroker(1)
    partitions = topic("t", 3, (1,))
    refusing = True

    async def answer(kind: str, request: Any) -> bytes:
        if kind != "LeaderAndIsr" or not refusing:
            return b""
        return pb.LeaderAndIsrResponse(
            error_code=common_pb2.CLUSTER_AUTHORIZATION_FAILED, controller_epoch=9
        ).SerializeToString()

    broker.answer = answer
    async with sender_harness(broker) as harness:
        harness.push([1], partitions)
        assert harness.senders.unacknowledged(partitions[0]) == "broker 1 has not been told yet"
        await until(harness.answered, "the answers")
        status = harness.senders.status[1]
        # UpdateMetadata, twice, was accepted meanwhile: that says nothing about who leads.
        assert status.acknowledged_requests == 2
        assert status.problem == "refuses LeaderAndIsr: CLUSTER_AUTHORIZATION_FAILED"
        why = "broker 1 refused to lead it: CLUSTER_AUTHORIZATION_FAILED"
        assert [harness.senders.unacknowledged(p) for p in partitions] == [why] * 3
        assert not harness.suspicions

        refusing = False
        harness.push([1], partitions[:2], event_id=3)
        await until(lambda: status.acknowledged_requests == 4, "acknowledgements")
        assert status.problem == ""
        assert [harness.senders.unacknowledged(p) for p in partitions] == ["", "", why]


async def test_a_broker_says_which_epoch_it_has_seen() -> None:
    broker = FakeBroker(1)

    async def stale(kind: str, request: Any) -> bytes:
        error = common_pb2.STALE_CONTROLLER_EPOCH
        return pb.UpdateMetadataResponse(error_code=error, controller_epoch=9).SerializeToString()

    broker.answer = stale
    async with sender_harness(broker) as harness:
        harness.senders.sync(deciding=False)
        await until(lambda: bool(harness.suspicions), "suspicion")
        assert [epoch for _, epoch in harness.suspicions] == [9]
        problem = "refuses UpdateMetadata: STALE_CONTROLLER_EPOCH: it has seen controller epoch 9"
        assert harness.senders.status[1].problem == problem


async def test_partition_errors_are_counted_and_redundant_orders_are_not() -> None:
    broker = FakeBroker(1)
    codes = [
        common_pb2.NONE,
        common_pb2.STALE_CONTROLLER_EPOCH,  # of one partition: it knew that leader epoch already
        common_pb2.KAFKA_STORAGE_ERROR,
        common_pb2.KAFKA_STORAGE_ERROR,
        common_pb2.INCONSISTENT_TOPIC_ID,
    ]

    async def partly(kind: str, request: Any) -> bytes:
        if kind == "UpdateMetadata":
            return b""
        errors = [
            pb_error(state.topic, state.partition, code)
            for state, code in zip(request.partition_states, codes, strict=True)
        ]
        return pb.LeaderAndIsrResponse(partition_errors=errors).SerializeToString()

    broker.answer = partly
    async with sender_harness(broker) as harness:
        harness.push([1], topic("t", 5, (1,)))
        await until(lambda: len(harness.rows("ack")) == 3, "acks")
        assert [a.get("error") for a in harness.rows("ack")] == [
            None,
            "INCONSISTENT_TOPIC_ID x1, KAFKA_STORAGE_ERROR x2",
            None,
        ]
        assert harness.counted(1, "LeaderAndIsr", "partial") == 1
        assert not harness.suspicions
        (report,) = harness.disks
        assert (report.broker_id, report.broker_epoch) == (1, 1)
        assert [p.number for p in report.failed] == [2, 3]
        assert [p.number for p in report.healthy] == [0]


async def test_disks_are_heard_of_only_from_a_broker_that_lost_one() -> None:
    """Thousands of plain answers are no events; once a disk failed, healthy answers are news."""
    broker, failed = FakeBroker(1), set[int]()

    async def answer(kind: str, request: Any) -> bytes:
        if kind == "UpdateMetadata":
            return b""
        errors = [
            pb_error(s.topic, s.partition, common_pb2.KAFKA_STORAGE_ERROR if s.partition in failed else 0)
            for s in request.partition_states
        ]
        # And about something that nobody asked for.
        errors.append(pb_error("t", 99, common_pb2.KAFKA_STORAGE_ERROR if failed else 0))
        return pb.LeaderAndIsrResponse(partition_errors=errors).SerializeToString()

    broker.answer = answer
    partitions = topic("t", 3, (1,))
    async with sender_harness(broker) as harness:
        for failing in (set[int](), {1}, set[int]()):
            failed.clear()
            failed.update(failing)
            harness.push([1], partitions)
            await until(harness.answered, "answers")
        assert [([p.number for p in r.failed], [p.number for p in r.healthy]) for r in harness.disks] == [
            ([1], [0, 2]),
            ([], [0, 1, 2]),
        ]


async def test_a_refused_request_says_nothing_of_disks() -> None:
    broker = FakeBroker(1)

    async def refused(kind: str, request: Any) -> bytes:
        if kind == "UpdateMetadata":
            return b""
        return pb.LeaderAndIsrResponse(
            error_code=common_pb2.STALE_BROKER_EPOCH,
            partition_errors=[pb_error("t", 0, common_pb2.KAFKA_STORAGE_ERROR)],
        ).SerializeToString()

    broker.answer = refused
    async with sender_harness(broker) as harness:
        harness.push([1], topic("t", 1, (1,)))
        await until(harness.answered, "answers")
        assert harness.disks == []


def pb_error(name: str, number: int, code: int) -> common_pb2.PartitionError:
    return common_pb2.PartitionError(topic=name, partition=number, error_code=code)  # type: ignore[arg-type]


async def test_only_redundant_orders_are_a_plain_ok() -> None:
    broker = FakeBroker(1)

    async def redundant(kind: str, request: Any) -> bytes:
        error = pb_error("t", 0, common_pb2.STALE_CONTROLLER_EPOCH)
        return pb.LeaderAndIsrResponse(partition_errors=[error]).SerializeToString() * (
            kind == "LeaderAndIsr"
        )

    broker.answer = redundant
    async with sender_harness(broker) as harness:
        harness.push([1], topic("t", 1, (1,)))
        await until(lambda: len(harness.rows("ack")) == 3, "acks")
        assert all("error" not in ack for ack in harness.rows("ack"))
        assert harness.counted(1, "LeaderAndIsr", "ok") == 1


@pytest.mark.parametrize("where", ["request", "partition"])
async def test_error_codes_of_the_future_are_named_by_number(where: str) -> None:
    broker = FakeBroker(1)

    async def unknown(kind: str, request: Any) -> bytes:
        if kind != "LeaderAndIsr":
            return b""
        if where == "request":
            return pb.LeaderAndIsrResponse(error_code=4711).SerializeToString()  # type: ignore[arg-type]
        return pb.LeaderAndIsrResponse(partition_errors=[pb_error("t", 0, 4711)]).SerializeToString()

    broker.answer = unknown
    async with sender_harness(broker) as harness:
        harness.push([1], topic("t", 1, (1,)))
        await until(lambda: len(harness.rows("ack")) == 3, "acks")
        assert "4711" in harness.rows("ack")[1]["error"]


async def garbage(kind: str, request: Any) -> bytes:
    return b"\xff\xff\xff garbage"


async def broken(kind: str, request: Any) -> bytes:
    raise StatusError(grpc.StatusCode.INTERNAL, "we crashed")


async def exhausted(kind: str, request: Any) -> bytes:
    raise StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, "message too large")


async def crashing(kind: str, request: Any) -> bytes:
    raise StatusError(grpc.StatusCode.UNIMPLEMENTED, "no such method")


@pytest.mark.parametrize("bad", [garbage, broken, exhausted, crashing])
async def test_a_broken_answer_is_a_failed_attempt_and_nobody_elses_trouble(bad: Any) -> None:
    broken_broker, well = FakeBroker(1), FakeBroker(2)
    broken_broker.answer = bad
    partitions = topic("t", 3)
    async with sender_harness(broken_broker, well) as harness:
        harness.push([1, 2], partitions)
        status = harness.senders.status[1]
        await until(lambda: status.attempts >= 2, "failed attempts")
        await until(
            lambda: harness.outbox.pending(2) == 0 and len(well.received) == 3, "the other's delivery"
        )
        assert harness.bugs == []
        assert status.problem != ""
        assert status.acknowledged_requests == 0
        assert harness.counted(1, "UpdateMetadata", "unreachable") == status.attempts
        assert len(broken_broker.received) <= status.attempts + 1  # with backoff, no spinning
        broken_broker.answer = well.answer
        await until(lambda: harness.idle() and status.acknowledged_requests == 3, "recovery")
        assert status.problem == ""


async def test_ipv6_brokers_are_reached() -> None:
    broker = FakeBroker(1, host="::1")
    async with sender_harness(broker) as harness:
        harness.push([1], topic("t", 1, (1,)))
        await until(lambda: harness.idle() and len(broker.received) == 3, "delivery")


# --- sizes and sharing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["LeaderAndIsr", "UpdateMetadata", "StopReplica"])
async def test_large_requests_are_split_and_nothing_is_lost_or_doubled(kind: str) -> None:
    broker = FakeBroker(1)
    partitions = [*topic("a" * 40, 700, (1,)), *topic("b", 900, (1,), topic_id="other")]
    async with sender_harness(broker, message_bytes_max=10_000) as harness:
        if kind == "StopReplica":
            for partition in partitions:
                harness.outbox.stop_replica([(partition, 1)], False, 2, "Test")
            harness.senders.sync(deciding=False)
        else:
            harness.push([1], partitions)
        await until(lambda: harness.answered() and len(broker.states(kind)) >= len(partitions), "delivery")
        assert sorted((s.topic, s.partition) for s in broker.states(kind)) == sorted(
            (p.topic.name, p.number) for p in partitions
        )
        messages = [request for got, request in broker.received if got == kind]
        assert len(messages) >= 5
        assert all(request.ByteSize() < 11_000 for request in messages)
        acknowledged = sum(a["count"] for a in harness.rows("ack") if a["to"] == kind)
        assert acknowledged == len(partitions)
        if kind != "StopReplica":
            for request in messages:
                if request.partition_states:
                    assert set(request.topic_ids) == {s.topic for s in request.partition_states}


async def test_metadata_is_encoded_once_for_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = [FakeBroker(n) for n in range(1, 7)]
    partitions = topic("t", 300)
    encoded: list[int] = []
    async with sender_harness(*brokers) as harness:
        encode = entries.metadata

        def counting(cluster: Any, partition: Any, *rest: Any) -> bytes:
            encoded.append(partition.number)
            return encode(cluster, partition, *rest)

        monkeypatch.setattr(entries, "metadata", counting)
        harness.push([], partitions)
        await until(
            lambda: harness.idle() and all(len(b.states("UpdateMetadata")) == 300 for b in brokers), "all"
        )
        assert sorted(encoded) == list(range(300))


async def test_encoding_of_much_waits_for_decisions_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "SMALL_PARTITIONS", 0)
    broker = FakeBroker(1)
    async with sender_harness(broker) as harness:
        harness.push([1], topic("t", 1, (1,)))
        harness.senders.sync(deciding=True)
        await until(
            lambda: harness.idle() and len(broker.received) == 3, "delivery in the middle of an event"
        )
        assert harness.outbox.take(1, 1000) is None
        assert {PushKind(kind) for kind, _ in broker.received} == {
            PushKind.LEADER_AND_ISR,
            PushKind.UPDATE_METADATA,
        }


async def test_a_leader_is_told_while_what_it_had_to_be_told_before_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender, "BUSY_PAUSE_S", 3600.0)
    monkeypatch.setattr(sender, "SMALL_PARTITIONS", 0)
    leader = FakeBroker(1)
    first, second = topic("t", 1, (1,)), topic("u", 1, (1,))
    async with sender_harness(leader) as harness:
        harness.outbox._small_max = 0
        harness.senders.sync(deciding=False)
        await until(lambda: len(leader.received) == 1, "the list of brokers")
        harness.outbox.update_metadata(first, 2, "Test")
        harness.senders.sync(deciding=True)
        await asyncio.sleep(0.05)
        harness.outbox.leader_and_isr([([1], second[0])], False, 2, "Test")
        harness.senders.sync(deciding=True)
        await until(lambda: bool(leader.states("LeaderAndIsr")), "the leader")
        assert not leader.states("UpdateMetadata")
        harness.senders.sync(deciding=False)
        await until(lambda: harness.idle() and bool(leader.states("UpdateMetadata")), "the rest")


async def test_leaders_are_told_while_an_event_is_being_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers wait for the event's end, and so does what else a leader is told, if it is much."""
    monkeypatch.setattr(sender, "BUSY_PAUSE_S", 3600.0)
    monkeypatch.setattr(sender, "SMALL_PARTITIONS", 0)
    leader, follower = FakeBroker(1), FakeBroker(2)
    partitions = topic("t", 1)
    async with sender_harness(leader, follower) as harness:
        harness.outbox._small_max = 0
        harness.push([2], partitions)
        harness.push([1], partitions)
        harness.senders.sync(deciding=True)
        await until(lambda: bool(leader.states("LeaderAndIsr")), "the leader")
        assert not follower.states("LeaderAndIsr")
        harness.senders.sync(deciding=False)
        await until(lambda: harness.idle() and bool(follower.states("LeaderAndIsr")), "the follower")


async def test_a_small_change_is_told_whatever_is_being_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "BUSY_PAUSE_S", 3600.0)
    broker = FakeBroker(1)
    async with sender_harness(broker) as harness:
        harness.push([], topic("t", 1))
        harness.senders.sync(deciding=True)
        await until(lambda: bool(broker.states("UpdateMetadata")), "the change")


async def test_changes_gather_until_an_urgent_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """After little metadata the sender rests, so that the next message has all that has changed meanwhile."""
    monkeypatch.setattr(sender, "REST_S", 3600.0)
    broker = FakeBroker(1)
    partitions = topic("t", 3, (1,))
    async with sender_harness(broker) as harness:
        harness.push([], partitions[:1])
        await until(lambda: bool(broker.states("UpdateMetadata")), "the first change")
        harness.push([], partitions[1:2])
        await asyncio.sleep(0.05)
        assert len(broker.states("UpdateMetadata")) == 1
        harness.push([1], partitions[2:])
        await until(lambda: len(broker.states("UpdateMetadata")) == 3, "the other changes")
        received = [(kind, [s.partition for s in r.partition_states]) for kind, r in broker.received]
        assert received[1:] == [("UpdateMetadata", [0]), ("LeaderAndIsr", [2]), ("UpdateMetadata", [1, 2])]
