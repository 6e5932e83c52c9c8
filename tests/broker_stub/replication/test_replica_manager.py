"""The replica manager: role changes, results of ISR proposals, and their races."""

from __future__ import annotations

import asyncio
from itertools import groupby

import pytest

from broker_stub.control.replicas import Replica, Role, Transition
from broker_stub.control.requests import StopReplica
from broker_stub.replication import isr, manager
from broker_stub.replication.fetcher import FetchSettings
from broker_stub.replication.partition import PartitionError
from broker_stub.replication.waiting import AckWaiters, FetchWaiters
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.support.broker.replication_fakes import (
    FOO,
    Broker,
    ManualWriter,
    batch,
    content,
    fetch_request,
    leaping,
    order,
    produce_request,
    run_ready_tasks,
    stored,
)


class Heard:
    """Notes who was elected and who resigned."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, int | None]] = []

    def on_election(self, partition: int, leader_epoch: int) -> None:
        self.events.append(("elected", partition, leader_epoch))

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        self.events.append(("resigned", partition, leader_epoch))


async def leading(isr: tuple[int, ...] = (0,), epoch: int = 3) -> tuple[Broker, ManualWriter]:
    writer = ManualWriter()
    broker = Broker(0, writer=writer)
    broker.manager.start()
    await broker.leader_and_isr(order(0, epoch, isr))
    await run_ready_tasks()
    return broker, writer


async def fetched(broker: Broker, follower: int, offset: int, epoch: int = 3) -> None:
    await broker.service.fetch(fetch_request(offset, replica=follower, epoch=epoch))
    await run_ready_tasks()


# --- roles -------------------------------------------------------------------------------------------------


@leaping
async def test_listeners_hear_of_every_change_of_hands() -> None:
    broker, heard = Broker(0), Heard()
    broker.manager.listeners["foo"] = heard
    await broker.leader_and_isr(order(0, 3))
    await broker.leader_and_isr(order(0, 4, partition_epoch=1))  # leads on: nothing to load again
    await broker.leader_and_isr(order(1, 5, partition_epoch=2))
    await broker.leader_and_isr(order(2, 6, partition_epoch=3))
    await broker.stopped(StopReplica(FOO, -1, False))
    await broker.stopped(StopReplica(FOO, -1, True))
    assert heard.events == [
        ("elected", 3, 3),
        ("resigned", 3, 5),
        ("resigned", 3, 6),
        ("resigned", 3, None),
    ]


@leaping
async def test_an_old_order_changes_nothing() -> None:
    broker, _ = await leading(epoch=5)
    for epoch in (4, 5):
        (answer,) = await broker.leader_and_isr(order(1, epoch, partition_epoch=9))
        assert answer.error == codes.STALE_CONTROLLER_EPOCH
    assert broker.partition().is_leader


@leaping
async def test_a_leader_that_is_not_alive_is_not_followed() -> None:
    broker = Broker(0, live=(0, 2))
    (answer,) = await broker.leader_and_isr(order(1, 3))
    assert answer.error == codes.NONE
    assert broker.partition().leader_epoch == -1
    assert broker.manager.describe()["followed"] == {}
    (answer,) = await broker.leader_and_isr(order(2, 3))
    assert answer.error == codes.NONE
    assert broker.manager.describe()["followed"] == {2: 1}


@leaping
async def test_a_stopped_follower_fetches_no_more_and_keeps_its_records() -> None:
    broker = Broker(0)
    await broker.leader_and_isr(order(1, 3))
    await broker.stopped(StopReplica(FOO, 3, False))
    assert broker.manager.describe()["followed"] == {}
    assert broker.partition().leader == 1
    await broker.leader_and_isr(order(1, 4, partition_epoch=1))
    assert broker.manager.describe()["followed"] == {1: 1}


@leaping
async def test_a_deleted_replica_leaves_nothing_behind() -> None:
    broker = Broker(0, high_watermarks={FOO: 0, ("bar", 0): 7})
    await broker.leader_and_isr(order(0, 3, (0,)), order(0, 3, (0,), key=("foo", 1)))
    await broker.service.produce(produce_request(batch("a")))
    broker.topics.forgotten.clear()
    assert broker.manager.high_watermarks() == {FOO: 1, ("foo", 1): 0, ("bar", 0): 7}
    await broker.stopped(StopReplica(FOO, -2, True))
    assert (broker.manager.get(FOO), broker.logs.forgotten, broker.topics.forgotten) == (None, [FOO], [])
    await broker.stopped(StopReplica(("foo", 1), -2, True))
    assert broker.topics.forgotten == ["foo"], "what comes under this name may be another topic"
    assert broker.manager.high_watermarks() == {("bar", 0): 7}


@leaping
async def test_deleting_what_was_never_told_of_forgets_its_high_watermark() -> None:
    broker = Broker(0, high_watermarks={FOO: 5})
    await broker.stopped(StopReplica(FOO, -2, True))
    assert broker.manager.high_watermarks() == {}


@leaping
async def test_a_log_that_cannot_be_opened_costs_only_its_partition() -> None:
    broker = Broker(0)
    broker.logs.broken.add(FOO)
    answers = await broker.leader_and_isr(order(0, 3), order(0, 3, key=("foo", 1)))
    assert [a.error for a in answers] == [codes.KAFKA_STORAGE_ERROR, codes.NONE]
    replica = broker.replicas.get(*FOO)
    assert replica is not None
    assert replica.role is Role.OFFLINE
    refused = await broker.service.fetch(fetch_request())
    assert refused.partitions[0].error_code == codes.KAFKA_STORAGE_ERROR


@leaping
async def test_many_roles_give_others_a_turn_and_nothing_is_fetched_in_between() -> None:
    """An answer that arrives while a large request is carried out must not reach a partition that changes."""
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def respond(method: str, broker: int, request: object) -> object:
        return await asyncio.shield(answer)

    broker = Broker(0, respond=respond)
    await broker.leader_and_isr(order(1, 3))
    await run_ready_tasks()
    answer.set_result(
        wire.FetchResponse(
            partitions=[
                wire.FetchedPartition(topic="foo", partition=3, records=stored("a", epoch=3, offset=0))
            ]
        )
    )
    many = [order(0, 4, (0,), key=("many", number)) for number in range(450)]
    await broker.leader_and_isr(*many, order(0, 4, (0,), 1))
    await run_ready_tasks()
    assert content(broker.log()) == []
    assert len(broker.manager.partitions()) == 451


@leaping
async def test_an_order_of_the_present_leader_epoch_changes_no_role() -> None:
    broker, _ = await leading((0, 1))
    await fetched(broker, 2, 0)
    proposed = broker.partition().proposed_isr
    assert proposed == (0, 1, 2)
    again = Replica("foo", 3, None, Role.LEADER, 0, 3, 0, 1, (0,), (0, 1, 2))
    await broker.manager.apply([Transition(again, Role.LEADER, Role.LEADER)])
    assert (broker.partition().isr, broker.partition().proposed_isr) == ((0, 1), proposed)


@leaping
async def test_an_order_of_the_present_leader_epoch_lets_a_follower_fetch_on() -> None:
    broker = Broker(0)
    await broker.leader_and_isr(order(1, 3))
    again = Replica("foo", 3, None, Role.FOLLOWER, 1, 3, 0, 1, (1,), (0, 1, 2))
    await broker.manager.apply([Transition(again, Role.FOLLOWER, Role.FOLLOWER)])
    assert broker.manager.describe()["followed"] == {1: 1}


@leaping
async def test_a_replica_that_is_lost_while_roles_change_is_not_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manager, "_PARTITIONS_PER_YIELD", 1)
    broker = Broker(0)
    changing = asyncio.create_task(broker.leader_and_isr(order(1, 3), order(1, 3, key=("foo", 1))))
    await asyncio.sleep(0)
    assert broker.manager.get(FOO) is not None
    broker.manager.take_offline(FOO)
    await changing
    assert broker.manager.describe()["followed"] == {1: 1}


@leaping
async def test_a_replica_deleted_from_a_failed_disk_can_be_made_again() -> None:
    broker, _ = await leading()
    broker.manager.take_offline(FOO)
    await broker.stopped(StopReplica(FOO, -2, True))
    with pytest.raises(PartitionError) as raised:
        broker.manager.require(*FOO)
    assert raised.value.error_code == codes.UNKNOWN_TOPIC_OR_PARTITION


@leaping
async def test_a_lower_min_isr_commits_what_waited_for_it() -> None:
    broker, _ = await leading()
    broker.topics.least = 2
    broker.manager.config_changed("foo")
    await broker.service.produce(produce_request(batch("a"), acks=1))
    assert broker.partition().high_watermark == 0
    broker.topics.least = 1
    broker.manager.config_changed("foo")
    assert broker.partition().high_watermark == 1


# --- ISR changes -------------------------------------------------------------------------------------------


@leaping
async def test_a_follower_that_caught_up_joins() -> None:
    broker, writer = await leading()
    await fetched(broker, 1, 0)
    assert [p.isr for p in writer.asked[0]] == [(0, 1)]
    await fetched(broker, 2, 0)
    assert len(writer.asked) == 1
    await writer.answer()
    assert broker.partition().isr == (0, 1)
    assert broker.isr_changes == [((0,), (0, 1))]
    await fetched(broker, 2, 0)
    assert [(p.isr, p.partition_epoch) for p in writer.asked[1]] == [((0, 1, 2), 1)]


@leaping
async def test_while_one_request_is_under_way_the_rest_waits_and_goes_together() -> None:
    broker, writer = await leading()
    await broker.leader_and_isr(*(order(0, 3, (0,), key=("foo", n)) for n in (1, 2)))
    for n in (3, 1, 2):
        await broker.service.fetch(fetch_request(0, replica=1, epoch=3, key=("foo", n)))
        await run_ready_tasks()
    assert [[p.key[1] for p in asked] for asked in writer.asked] == [[3]]
    await writer.answer()
    assert [[p.key[1] for p in asked] for asked in writer.asked] == [[3], [1, 2]]


@leaping
async def test_proposals_beyond_one_request_go_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr, "BATCH_PROPOSALS", 1)
    broker, writer = await leading()
    await broker.leader_and_isr(order(0, 3, (0,), key=("foo", 1)))
    for n in (3, 1):
        await broker.service.fetch(fetch_request(0, replica=1, epoch=3, key=("foo", n)))
    await run_ready_tasks()
    await writer.answer()
    assert [[p.key[1] for p in asked] for asked in writer.asked] == [[3], [1]]


@leaping
async def test_nobody_answered_so_it_is_asked_again() -> None:
    broker, writer = await leading()
    await fetched(broker, 1, 0)
    for attempt in range(3):
        assert broker.loop.time() == pytest.approx(0.05 * attempt)
        await writer.fail()
        assert len(writer.asked) == attempt + 1, "not at once"
        await asyncio.sleep(0.05)
        await run_ready_tasks()
    await writer.answer()
    assert broker.partition().isr == (0, 1)


@pytest.mark.parametrize("error", [codes.UNKNOWN_SERVER_ERROR, codes.NOT_CONTROLLER, codes.REQUEST_TIMED_OUT])
@leaping
async def test_an_error_that_may_pass_is_tried_again(error: codes.ErrorCode) -> None:
    broker, writer = await leading()
    await fetched(broker, 1, 0)
    await writer.answer(error)
    assert broker.partition().maximal_isr == {0, 1}
    await asyncio.sleep(0.06)
    await run_ready_tasks()
    assert [[p.isr for p in asked] for asked in writer.asked] == [[(0, 1)], [(0, 1)]]
    await writer.answer()
    assert broker.partition().isr == (0, 1)


@leaping
async def test_an_error_that_does_not_pass_ends_it() -> None:
    broker, writer = await leading()
    await fetched(broker, 1, 0)
    await writer.answer(codes.INVALID_UPDATE_VERSION)
    await asyncio.sleep(5.0)
    await fetched(broker, 2, 0)
    assert len(writer.asked) == 1
    assert broker.partition().isr == (0,)
    assert broker.isr_changes == []


@leaping
async def test_an_order_that_comes_between_makes_the_answer_old() -> None:
    broker, writer = await leading()
    await fetched(broker, 1, 0)
    await broker.leader_and_isr(order(0, 4, (0, 2), 1))
    await fetched(broker, 1, 0, 4)
    assert len(writer.asked) == 1, "one request at a time"
    await writer.answer()
    assert broker.partition().isr == (0, 2)
    assert [[(p.leader_epoch, p.isr) for p in asked] for asked in writer.asked[1:]] == [[(4, (0, 2, 1))]]


@leaping
async def test_what_was_overtaken_is_not_asked_again() -> None:
    broker, writer = await leading()
    await fetched(broker, 1, 0)
    await broker.leader_and_isr(order(1, 4, (0, 1), 1))
    await writer.fail()
    await asyncio.sleep(1.0)
    assert len(writer.asked) == 1
    await broker.stopped(StopReplica(FOO, -2, True))
    assert broker.manager.get(FOO) is None


@leaping
async def test_the_directory_of_a_follower_is_told_with_the_isr() -> None:
    broker, writer = await leading()
    request = fetch_request(replica=1, epoch=3)
    request.partitions[0].replica_directory = 77
    await broker.service.fetch(request)
    await run_ready_tasks()
    assert [(p.isr, p.isr_directories) for p in writer.asked[0]] == [((0, 1), (0, 77))]


@leaping
async def test_whoever_lags_is_put_out_half_the_lag_time_after_the_last_look() -> None:
    broker, writer = await leading((0, 1, 2))
    await broker.service.produce(produce_request(batch("a"), acks=1))
    await asyncio.sleep(1.49)
    assert not writer.asked, "it looks each 500 ms, and at 1,000 ms they do not lag yet"
    await asyncio.sleep(0.011)
    assert [p.isr for p in writer.asked[0]] == [(0,)]


@leaping
async def test_looking_for_laggards_gives_others_a_turn() -> None:
    broker, _ = await leading()
    await broker.leader_and_isr(*(order(0, 3, (0,), key=("many", n)) for n in range(2500)))
    order_of_work: list[str] = []
    for partition in broker.manager.partitions():
        partition.propose_shrink = lambda *_: order_of_work.append("look")  # type: ignore[method-assign]
    await asyncio.sleep(0.5)
    while order_of_work.count("look") < 2501:
        order_of_work.append("another")
        await asyncio.sleep(0)
    assert max(len(list(run)) for _, run in groupby(order_of_work)) == 1000


@leaping
async def test_whoever_lags_is_put_out_and_writes_go_on() -> None:
    broker, writer = await leading((0, 1, 2))
    writing = asyncio.ensure_future(broker.service.produce(produce_request(batch("a"), timeout_ms=60_000)))
    await run_ready_tasks()
    await fetched(broker, 1, 1)
    await asyncio.sleep(1.6)
    assert [p.isr for p in writer.asked[0]] == [(0, 1)]
    assert not writing.done()
    await writer.answer()
    assert writing.done()
    assert (await writing).partitions[0].error_code == codes.NONE
    assert broker.isr_changes == [((0, 1, 2), (0, 1))]


@leaping
async def test_whoever_was_about_to_join_and_lags_holds_writes_no_longer() -> None:
    broker, writer = await leading()
    await fetched(broker, 1, 0)
    await writer.answer(codes.INELIGIBLE_REPLICA)
    writing = asyncio.ensure_future(broker.service.produce(produce_request(batch("a"), timeout_ms=60_000)))
    await asyncio.sleep(0.9)
    assert not writing.done()
    assert (await writing).partitions[0].error_code == codes.NONE
    assert 1.0 < broker.loop.time() < 3.0


@leaping
async def test_an_old_proposal_that_fails_does_not_displace_a_new_one() -> None:
    broker, writer = await leading()
    await fetched(broker, 1, 0)
    await broker.leader_and_isr(order(0, 4, (0, 2), 1))
    await fetched(broker, 1, 0, 4)
    await writer.fail()
    await asyncio.sleep(0.1)
    assert [[(p.leader_epoch, p.isr) for p in asked] for asked in writer.asked[1:]] == [[(4, (0, 2, 1))]]


@leaping
async def test_a_shrink_that_is_refused_is_proposed_again_at_the_next_look() -> None:
    broker, writer = await leading((0, 1, 2))
    await fetched(broker, 1, 0)
    await broker.service.produce(produce_request(batch("a"), acks=1))
    await asyncio.sleep(1.6)
    await writer.answer(codes.INELIGIBLE_REPLICA)
    assert len(writer.asked) == 1
    await asyncio.sleep(0.6)
    assert len(writer.asked) == 2


# --- the end -----------------------------------------------------------------------------------------------


@leaping
async def test_nothing_runs_after_the_end() -> None:
    broker = Broker(0, fetch=FetchSettings())
    broker.manager.start()
    await broker.leader_and_isr(order(1, 3), order(0, 3, key=("foo", 1)))
    await run_ready_tasks()
    await broker.manager.stop()
    await run_ready_tasks()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await broker.manager.stop()


# --- waiting -----------------------------------------------------------------------------------------------


@leaping
async def test_a_write_waits_for_a_high_watermark_that_reaches_it() -> None:
    waiters = AckWaiters()
    first, second, third = (waiters.enter(FOO, offset) for offset in (1, 3, 5))
    waiters.committed(FOO, 3)
    assert (first.result(), second.result(), third.done()) == (codes.NONE, codes.NONE, False)
    waiters.fail(FOO, codes.NOT_LEADER_OR_FOLLOWER)
    assert (first.result(), third.result()) == (codes.NONE, codes.NOT_LEADER_OR_FOLLOWER)


@leaping
async def test_a_fetch_that_waits_hears_of_all_that_changed() -> None:
    waiters = FetchWaiters()
    keys = [FOO, ("foo", 1), ("bar", 0)]
    fetch = waiters.enter(keys)
    for key in keys:
        waiters.wake(key)
    assert list(await fetch.changed(1.0)) == keys
    assert list(await fetch.changed(1.0)) == []


@leaping
async def test_a_fetch_that_names_a_partition_twice_waits_no_more_once_it_has_left() -> None:
    waiters = FetchWaiters()
    fetch = waiters.enter([FOO, FOO])
    waiters.leave(fetch)
    waiters.wake(FOO)
    assert list(await fetch.changed(1.0)) == []


@leaping
async def test_a_role_that_changes_before_a_write_is_waited_for_is_said_at_once() -> None:
    broker, _ = await leading((0, 1))
    partition = broker.partition()
    appended = broker.manager.append(partition, batch("a"), -1)
    await broker.leader_and_isr(order(1, 4, partition_epoch=1))
    outcome = await broker.manager.committed(partition, appended.next_offset, 60.0)
    assert (outcome, broker.loop.time()) == (codes.NOT_LEADER_OR_FOLLOWER, 0.0)


@leaping
async def test_whose_replica_goes_offline_loads_no_groups_any_more() -> None:
    broker, _ = await leading()
    heard = Heard()
    broker.manager.listeners["foo"] = heard
    state = Replica("foo", 3, None, Role.LEADER, 0, 3, 0, 0, (0,), (0, 1, 2))
    await broker.manager.apply([Transition(state, Role.LEADER, Role.OFFLINE)])
    assert heard.events == [("resigned", 3, None)]
    assert broker.manager.get(FOO) is None
