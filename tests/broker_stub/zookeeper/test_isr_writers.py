"""Both ISR writers: their requests and writes, and the result of each response."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.control.requests import Key
from broker_stub.data_identity import of_broker
from broker_stub.replication.isr import IsrProposer
from broker_stub.replication.ports import IsrProposal, IsrResult, IsrUnanswered
from broker_stub.rpc.peers import Peers
from broker_stub.zookeeper import isr_writers
from broker_stub.zookeeper.client import StoreUnavailable
from broker_stub.zookeeper.codecs import MalformedZnode
from broker_stub.zookeeper.isr_writers import AlterPartitionWriter, NotificationWriter, PropagationTimer
from controller.core.model import LeaderAndIsr
from controller.runtime.zookeeper import codecs
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as wire
from tests.support.broker.fake_peer import FakePeer, always, hang

ID_FOO = "f" * 22
FOO = IsrProposal(("foo", 0), ID_FOO, 5, (1, 2), 7, 3)
BAR = IsrProposal(("bar", 4), None, 2, (1,), 0, 3)
GRANTED = wire.AlterPartitionResponse(
    partitions=[
        # Not in the order of the request.
        wire.AlteredPartition(topic="bar", partition=4, error_code=codes.INELIGIBLE_REPLICA, leader=9),
        wire.AlteredPartition(
            topic="foo", partition=0, leader=1, leader_epoch=5, isr=[2, 1], partition_epoch=8
        ),
    ]
)


# --- through the controller --------------------------------------------------------------------------------


class Finder:
    """The controller's address or an error; counts the calls."""

    def __init__(self) -> None:
        self.endpoint: tuple[str, int] | None = None
        self.error: Exception | None = None
        self.asked = 0

    async def controller_endpoint(self) -> tuple[str, int] | None:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.endpoint


@pytest.fixture
async def controller() -> AsyncIterator[FakePeer]:
    async with FakePeer(always(GRANTED)) as peer:
        yield peer


@pytest.fixture
def finder(controller: FakePeer) -> Finder:
    finder = Finder()
    finder.endpoint = controller.address
    return finder


@pytest.fixture
async def writer(finder: Finder) -> AsyncIterator[AlterPartitionWriter]:
    peers = Peers(None)
    yield AlterPartitionWriter(peers, finder, 1, lambda: 77, timeout_s=30.0)
    await peers.close()


async def test_what_is_asked_and_what_comes_back(
    writer: AlterPartitionWriter, controller: FakePeer, finder: Finder
) -> None:
    expected = [
        IsrResult(("foo", 0), codes.NONE, 1, 5, (2, 1), 8),
        IsrResult(("bar", 4), codes.INELIGIBLE_REPLICA),
    ]
    assert await writer.propose([FOO, BAR]) == expected
    asked = wire.AlterPartitionRequest(
        broker_id=1,
        broker_epoch=77,
        partitions=[
            wire.AlterPartitionState(
                topic="foo", topic_id=ID_FOO, partition=0, leader_epoch=5, new_isr=[1, 2], partition_epoch=7
            ),
            wire.AlterPartitionState(
                topic="bar",
                partition=4,
                leader_epoch=2,
                new_isr=[1],
                partition_epoch=0,
                leader_recovery_state=codes.RECOVERED,
            ),
        ],
    )
    assert controller.received == [("AlterPartition", asked)]
    assert await writer.propose([FOO, BAR]) == expected
    assert finder.asked == 1
    assert await writer.propose([]) == ()
    assert len(controller.received) == 2


async def test_its_own_membership_is_that_of_its_present_registration(
    writer: AlterPartitionWriter, controller: FakePeer
) -> None:
    """It may have registered anew since the proposal was made; a follower that did so must catch up first."""
    await writer.propose([FOO._replace(isr_epochs=(70, 90))])
    ((_, request),) = controller.received
    assert list(request.partitions[0].isr_epochs) == [77, 90]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (wire.AlterPartitionResponse(error_code=codes.NOT_CONTROLLER), "NOT_CONTROLLER"),
        (wire.AlterPartitionResponse(error_code=codes.STALE_BROKER_EPOCH), "epoch 77: STALE_BROKER_EPOCH"),
        (wire.AlterPartitionResponse(error_code=999), "error 999"),  # type: ignore[arg-type]
        (b"\xff", "unreadable response"),
        ((grpc.StatusCode.UNIMPLEMENTED, "no such service"), "UNIMPLEMENTED: no such service"),
    ],
)
async def test_no_answer_to_the_proposals(
    writer: AlterPartitionWriter, controller: FakePeer, finder: Finder, answer: Any, words: str
) -> None:
    controller.answer = always(answer)
    with pytest.raises(IsrUnanswered, match=words):
        await writer.propose([FOO, BAR])
    controller.answer = always(GRANTED)
    assert len(await writer.propose([FOO, BAR])) == 2
    assert finder.asked == 2


async def test_what_an_answer_leaves_out_is_asked_for_again_alone(
    writer: AlterPartitionWriter, controller: FakePeer
) -> None:
    partial = always(wire.AlterPartitionResponse(partitions=GRANTED.partitions[:1]))
    controller.answer = partial
    refused = IsrResult(BAR.key, codes.INELIGIBLE_REPLICA)
    assert await writer.propose([FOO, BAR]) == [None, refused]
    settled: asyncio.Queue[tuple[IsrProposal, IsrResult]] = asyncio.Queue()
    proposer = IsrProposer(writer, lambda _: True, lambda *outcome: settled.put_nowait(outcome))
    controller.received.clear()
    proposer.submit(FOO)
    proposer.submit(BAR)
    running = asyncio.create_task(proposer.run())
    try:
        async with asyncio.timeout(30):
            assert await settled.get() == (BAR, refused)
            controller.answer = always(GRANTED)
            assert await settled.get() == (FOO, IsrResult(FOO.key, codes.NONE, 1, 5, (2, 1), 8))
    finally:
        running.cancel()
    asked = [[(p.topic, p.partition) for p in request.partitions] for _, request in controller.received]
    assert asked[0] == [FOO.key, BAR.key]
    assert set(map(tuple, asked[1:])) == {(FOO.key,)}


async def test_the_controller_moves(
    writer: AlterPartitionWriter, controller: FakePeer, finder: Finder
) -> None:
    await writer.propose([FOO, BAR])
    await controller.stop()
    async with FakePeer(always(GRANTED)) as successor:
        finder.endpoint = successor.address
        with pytest.raises(IsrUnanswered, match=r"AlterPartition to 127\.0\.0\.1"):
            await writer.propose([FOO, BAR])
        await writer.propose([FOO, BAR])
        assert len(successor.received) == 1
    assert finder.asked == 2


async def test_a_controller_that_hangs(finder: Finder, controller: FakePeer) -> None:
    controller.answer = hang
    peers = Peers(None)
    writer = AlterPartitionWriter(peers, finder, 1, lambda: 77, timeout_s=0.2)
    with pytest.raises(IsrUnanswered, match="DEADLINE_EXCEEDED"):
        await writer.propose([FOO])
    await peers.close()


async def test_one_that_takes_itself_for_a_zombie_is_looked_up_anew(
    writer: AlterPartitionWriter, controller: FakePeer, finder: Finder
) -> None:
    answer = wire.AlteredPartition(topic="foo", partition=0, error_code=codes.NOT_CONTROLLER)
    controller.answer = always(wire.AlterPartitionResponse(partitions=[answer]))
    assert await writer.propose([FOO]) == [IsrResult(("foo", 0), codes.NOT_CONTROLLER)]
    await writer.propose([FOO])
    assert finder.asked == 2


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (StoreUnavailable("no ZooKeeper session"), "cannot be found: no ZooKeeper session"),
        (MalformedZnode("/controller", "endpoint = 'x'"), "cannot be found: /controller: endpoint = 'x'"),
        (None, "there is no active controller"),
    ],
)
async def test_no_controller_to_ask(
    writer: AlterPartitionWriter, finder: Finder, error: Exception | None, words: str
) -> None:
    finder.error, finder.endpoint = error, None
    with pytest.raises(IsrUnanswered, match=words):
        await writer.propose([FOO])


async def test_not_without_a_broker_epoch(finder: Finder, controller: FakePeer) -> None:
    writer = AlterPartitionWriter(Peers(None), finder, 1, lambda: -1)
    with pytest.raises(IsrUnanswered, match="not registered"):
        await writer.propose([FOO])
    assert controller.received == []


# --- in ZooKeeper ------------------------------------------------------------------------------------------


class States:
    """Partition states in memory. ``deaf``: the next writes land, and their answers are lost. ``behind``: what a server
    answers that is behind."""

    def __init__(self) -> None:
        self.states: dict[Key, tuple[bytes, int]] = {}
        self.behind: dict[Key, tuple[bytes, int]] = {}
        self.registrations: dict[int, tuple[bytes, int]] = {}
        self.notified: list[list[Key]] = []
        self.deaf = 0
        self.away = False

    def put(self, key: Key, version: int, **fields: Any) -> None:
        state = {
            "version": 1,
            "leader": 1,
            "leader_epoch": 5,
            "controller_epoch": 3,
            "isr": [1, 2, 3],
            **fields,
        }
        self.states[key] = json.dumps(state).encode(), version

    async def get_state(
        self, topic: str, partition: int, *, latest: bool = False
    ) -> tuple[bytes, int] | None:
        key = topic, partition
        return self.states.get(key) if latest else self.behind.get(key, self.states.get(key))

    async def set_state(self, topic: str, partition: int, data: bytes, version: int) -> int | None:
        if self.away:
            raise StoreUnavailable("away")
        found = self.states.get((topic, partition))
        if found is None or found[1] != version:
            return None
        self.states[topic, partition] = data, version + 1
        if self.deaf:
            self.deaf -= 1
            raise StoreUnavailable("the answer was lost")
        return version + 1

    async def get_registration(self, broker_id: int) -> tuple[bytes, int] | None:
        return self.registrations.get(broker_id)

    async def notify_isr_changes(self, partitions: Sequence[Key]) -> None:
        if self.away:
            raise StoreUnavailable("away")
        self.notified.append(list(partitions))


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def states() -> States:
    states = States()
    states.put(("foo", 0), 7)
    return states


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def notifier(states: States, clock: Clock) -> NotificationWriter:
    return NotificationWriter(states, 1, clock)


async def test_what_is_written(notifier: NotificationWriter, states: States) -> None:
    (result,) = await notifier.propose([FOO])
    assert result == IsrResult(("foo", 0), codes.NONE, 1, 5, (1, 2), 8)
    data, version = states.states["foo", 0]
    assert version == 8
    assert data == codecs.encode_state(LeaderAndIsr(1, 5, (1, 2), 8, 3, 0))


async def test_members_keep_their_directories_and_new_ones_get_theirs(
    notifier: NotificationWriter, states: States
) -> None:
    states.put(("foo", 0), 7, isr=[1, 3], isr_directories={"1": 11, "3": 13})
    states.registrations[2] = b'{"directories":["AAAADAAAAAAAAAAAAAAAAA"]}', 90
    joins = FOO._replace(isr_epochs=(-1, 90))
    (result,) = await notifier.propose([joins])
    assert result.error == codes.NONE
    data, _ = states.states["foo", 0]
    assert data == codecs.encode_state(LeaderAndIsr(1, 5, (1, 2), 8, 3, 0, (11, 12)))


async def test_who_registered_anew_since_it_caught_up_does_not_join(
    notifier: NotificationWriter, states: States
) -> None:
    states.put(("foo", 0), 7, isr=[1])
    states.registrations[2] = b"{}", 91
    (result,) = await notifier.propose([FOO._replace(isr_epochs=(-1, 90))])
    assert result.error == codes.INELIGIBLE_REPLICA
    assert states.states["foo", 0][1] == 7


async def test_what_directories_are_told_beside_a_malformed_registration_is_not_answered_as_written(
    notifier: NotificationWriter, states: States
) -> None:
    """Else the leader would not tell them again."""
    both = of_broker((12, 13))
    states.put(("foo", 0), 7, isr=[1, 2], isr_directories={"2": both})
    tells = FOO._replace(isr_epochs=(-1, 90), isr_directories=(0, 13))
    states.registrations[2] = b"{", 90
    (result,) = await notifier.propose([tells])
    assert result.error == codes.INELIGIBLE_REPLICA
    states.registrations[2] = b'{"directories":["AAAADAAAAAAAAAAAAAAAAA","AAAADQAAAAAAAAAAAAAAAA"]}', 90
    (result,) = await notifier.propose([tells])
    assert result.error == codes.NONE
    assert json.loads(states.states["foo", 0][0])["isr_directories"] == {"2": 13}


async def test_a_version_that_is_another_state_s_again_is_not_written_over(
    notifier: NotificationWriter, states: States
) -> None:
    """ZooKeeper went back, and somebody was elected."""
    states.away = True
    with pytest.raises(IsrUnanswered):
        await notifier.propose([FOO])
    states.away = False
    states.put(("foo", 0), 6, leader=2, leader_epoch=6, isr=[2])
    with pytest.raises(IsrUnanswered, match="version 6 of"):
        await notifier.propose([FOO])
    states.put(("foo", 0), 7, leader=2, leader_epoch=6, isr=[2])
    (result,) = await notifier.propose([FOO])
    assert result.error == codes.INVALID_UPDATE_VERSION
    assert states.states["foo", 0][1] == 7


async def test_what_is_stored_under_a_lower_version_is_not_written_again(
    notifier: NotificationWriter, states: States, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper went back to just that: somebody may reach this version a moment later, with another state."""
    states.put(("foo", 0), 5, isr=list(FOO.isr))
    monkeypatch.setattr(states, "set_state", None)
    (result,) = await notifier.propose([FOO])
    assert (result.error, result.partition_epoch) == (codes.NONE, 5)


async def test_a_server_that_is_behind_refuses_nothing(notifier: NotificationWriter, states: States) -> None:
    states.put(("foo", 0), 6)
    states.behind = dict(states.states)
    states.put(("foo", 0), 7)
    (result,) = await notifier.propose([FOO])
    assert (result.error, result.partition_epoch) == (codes.NONE, 8)


async def test_what_may_have_been_written_is_not_refused_afterwards(
    notifier: NotificationWriter, states: States
) -> None:
    states.put(("foo", 0), 7, isr=[1])
    states.registrations[2] = b'{"directories":["AAAADAAAAAAAAAAAAAAAAA"]}', 90
    joins = FOO._replace(isr_epochs=(-1, 90))
    states.away = True
    with pytest.raises(IsrUnanswered):
        await notifier.propose([joins])
    states.away = False
    states.registrations[2] = b"{}", 91
    (result,) = await notifier.propose([joins])
    assert result.error == codes.NONE
    assert json.loads(states.states["foo", 0][0])["isr_directories"] == {"2": 12}


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        (8, {"leader": 2, "leader_epoch": 6}),
        (8, {"leader_epoch": 6}),
        (8, {"leader": -1}),
        (8, {"controller_epoch": 4}),
        # A topic of the same name, created again.
        (3, {}),
        (3, {"isr": [2, 1]}),
    ],
)
async def test_somebody_else_wrote(
    notifier: NotificationWriter, states: States, version: int, fields: dict[str, int]
) -> None:
    states.put(("foo", 0), version, **fields)
    before = dict(states.states)
    assert await notifier.propose([FOO]) == [IsrResult(("foo", 0), codes.INVALID_UPDATE_VERSION)]
    assert states.states == before


@pytest.mark.parametrize("version", [3, 7 + 2])
async def test_what_is_stored_already_is_a_success_at_any_version(
    notifier: NotificationWriter, states: States, version: int
) -> None:
    """As ReplicationUtils.checkLeaderAndIsrZkData, which compares what is written and nothing else."""
    states.put(FOO.key, version, isr=[1, 2])
    before = dict(states.states)
    assert await notifier.propose([FOO]) == [IsrResult(FOO.key, codes.NONE, 1, 5, (1, 2), version)]
    assert states.states == before


async def test_a_state_nobody_understands(notifier: NotificationWriter, states: States) -> None:
    states.states["foo", 0] = b'{"version":1,"leader":"one"}', 9
    assert await notifier.propose([FOO]) == [IsrResult(("foo", 0), codes.INVALID_UPDATE_VERSION)]


async def test_a_topic_that_is_gone(notifier: NotificationWriter, states: States) -> None:
    del states.states["foo", 0]
    assert await notifier.propose([FOO]) == [IsrResult(("foo", 0), codes.UNKNOWN_TOPIC_OR_PARTITION)]


async def test_our_own_unanswered_write_is_found_again(notifier: NotificationWriter, states: States) -> None:
    states.deaf = 1
    with pytest.raises(IsrUnanswered, match="the answer was lost"):
        await notifier.propose([FOO])
    assert await notifier.propose([FOO]) == [IsrResult(("foo", 0), codes.NONE, 1, 5, (1, 2), 8)]
    assert states.states["foo", 0][1] == 8


async def test_another_wish_after_an_unanswered_one(
    notifier: NotificationWriter, states: States, clock: Clock
) -> None:
    states.deaf = 1
    with pytest.raises(IsrUnanswered):
        await notifier.propose([FOO])
    later = FOO._replace(isr=(1, 3))
    assert await notifier.propose([later]) == [IsrResult(("foo", 0), codes.NONE, 1, 5, (1, 3), 9)]
    assert json.loads(states.states["foo", 0][0])["isr"] == [1, 3]
    clock.now = 5_000
    await notifier.propagate()
    assert states.notified == [[("foo", 0)]]


async def test_another_wish_has_the_directories_of_its_own_members(
    notifier: NotificationWriter, states: States
) -> None:
    states.put(("foo", 0), 7, isr=[1])
    states.registrations[2] = b'{"directories":["AAAADAAAAAAAAAAAAAAAAA"]}', 90
    states.registrations[3] = b'{"directories":["AAAADQAAAAAAAAAAAAAAAA"]}', 91
    states.away = True
    with pytest.raises(IsrUnanswered):
        await notifier.propose([FOO._replace(isr_epochs=(-1, 90))])
    states.away = False
    await notifier.propose([FOO._replace(isr=(1, 3), isr_epochs=(-1, 91))])
    assert json.loads(states.states["foo", 0][0])["isr_directories"] == {"3": 13}


async def test_one_failure_does_not_hide_what_was_written(
    notifier: NotificationWriter, states: States, clock: Clock
) -> None:
    states.put(("bar", 4), 0, leader_epoch=2)
    states.deaf = 1
    with pytest.raises(IsrUnanswered):
        await notifier.propose([FOO, BAR])
    clock.now = 5_000
    await notifier.propagate()
    assert states.notified == [[("bar", 4)]]
    results = await notifier.propose([FOO, BAR])
    assert [(r.error, r.partition_epoch) for r in results] == [(codes.NONE, 8), (codes.NONE, 1)]


async def test_what_cannot_be_told_stays(notifier: NotificationWriter, states: States, clock: Clock) -> None:
    await notifier.propose([FOO])
    await notifier.propagate()
    clock.now = 5_000
    states.away = True
    await notifier.propagate()
    assert states.notified == []
    states.away = False
    await notifier.propagate()
    await notifier.propagate()
    assert states.notified == [[("foo", 0)]]


async def test_nothing_is_told_of_what_was_refused(
    notifier: NotificationWriter, states: States, clock: Clock
) -> None:
    states.put(("foo", 0), 8, leader_epoch=6)
    await notifier.propose([FOO])
    clock.now = 100_000
    await notifier.propagate()
    assert states.notified == []


async def test_the_task_tells_in_time(
    notifier: NotificationWriter, states: States, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every check takes 2.5 s of the clock: the change of 0 s is told at the second check."""
    checks: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        checks.append(seconds)
        clock.now += round(seconds * 1000)
        await real_sleep(0)

    await notifier.propose([FOO])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    task = asyncio.create_task(notifier.run())
    while not states.notified:
        await real_sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert checks[:2] == [2.5, 2.5]
    assert states.notified == [[("foo", 0)]]
    assert clock.now in (5_000, 7_500)


# --- when to tell ------------------------------------------------------------------------------------------


def test_five_quiet_seconds() -> None:
    timer = PropagationTimer(0)
    timer.changed(("a", 0), 1_000)
    timer.changed(("b", 0), 5_000)
    assert timer.take(9_999) == ()
    assert timer.take(10_000) == (("a", 0), ("b", 0))
    assert timer.take(20_000) == ()


def test_at_least_once_a_minute() -> None:
    timer = PropagationTimer(0)
    taken = []
    for now in range(0, 130_000, 1_000):
        timer.changed(("a", now // 1_000), now)
        if keys := timer.take(now):
            taken.append((now, len(keys)))
    assert taken == [(60_000, 61), (120_000, 60)]


def test_a_change_while_the_last_is_told_is_told_again() -> None:
    timer = PropagationTimer(0)
    timer.changed(("a", 0), 0)
    assert timer.take(5_000) == (("a", 0),)
    timer.changed(("a", 0), 5_001)
    assert timer.take(10_001) == (("a", 0),)


Steps = st.lists(
    st.tuples(st.sampled_from(["change", "take", "fail"]), st.integers(0, 20_000), st.integers(0, 3)),
    max_size=60,
)


@given(Steps)
def test_no_change_is_forgotten(steps: list[tuple[str, int, int]]) -> None:
    timer, now = PropagationTimer(0), 0
    waiting: dict[Key, int] = {}
    for action, elapsed, number in steps:
        now += elapsed
        if action == "change":
            timer.changed(("t", number), now)
            waiting.setdefault(("t", number), now)
            continue
        taken = timer.take(now)
        assert set(taken) in (set(), set(waiting))
        if action == "fail":
            timer.put_back(taken)
        elif taken:
            waiting.clear()
    now += isr_writers.QUIET_MS
    assert set(timer.take(now)) == set(waiting)
