"""The audit against real brokers' handlers, which get the very messages that controllers send."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.model import Broker
from controller.core.topics.reasons import BeingReassigned
from controller.errors import LeadershipError
from controller.runtime.audit import auditor as module
from controller.runtime.audit import expected as expected_module
from controller.runtime.audit.auditor import BrokerAudit, Verdict
from controller.runtime.audit.expected import Expected, Totals, Turn
from controller.runtime.audit.transport import LeasedTransport
from proto.digest import Digest, topic_id_item
from proto.gen import broker_control_pb2 as pb
from tests.provers.sim.environment import loop
from tests.support.broker.builders import ID_X
from tests.support.core.world import state
from tests.support.runtime.audits import Rig, leader_of, replace_replica


def test_what_was_told_is_what_is_expected() -> None:
    rig = Rig()
    # The word of /state and of the console.
    assert [verdict.value for verdict in rig.verdicts()] == ["equal"] * 3
    assert (rig.told, rig.findings) == ([], [])


def test_forgotten_metadata_is_found_recorded_and_mended() -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    assert [verdict.value for verdict in rig.verdicts()] == ["equal", "different", "equal"]
    assert rig.known(2) == ["t-1 METADATA"]
    rig.mend()
    assert rig.verdicts() == [Verdict.EQUAL] * 3
    assert [(f.broker_id, f.to) for f in rig.findings] == [(2, "differs"), (2, "told_again"), (2, "agrees")]


@pytest.mark.parametrize(("begun", "verdict"), [(False, Verdict.DIFFERENT), (True, Verdict.EQUAL)])
def test_a_topic_whose_deletion_waits_is_looked_at(begun: bool, verdict: Verdict) -> None:
    rig = Rig()
    cluster = rig.core.cluster
    cluster.deletions_waiting["t"] = BeingReassigned("t-0", 1)
    if begun:
        cluster.topics_to_delete.add("t")
    rig.handlers(2).metadata._remove(("t", 1))
    assert rig.verdicts() == [Verdict.EQUAL, verdict, Verdict.EQUAL]


@pytest.mark.parametrize(("unread", "verdict"), [(False, Verdict.DIFFERENT), (True, Verdict.EQUAL)])
def test_brokers_keep_a_topic_that_the_controller_cannot_read(unread: bool, verdict: Verdict) -> None:
    """Otherwise nobody would find its leaders any more, who go on leading."""
    rig = Rig()
    cluster = rig.core.cluster
    rig.core.failover()
    cluster.remove_topic("t")
    if unread:
        cluster.problems["/brokers/topics/t"] = "it does not decode"
    assert rig.verdicts() == [verdict] * 3


def test_a_replica_that_forgot_its_epoch_is_told_again() -> None:
    rig = Rig()
    replace_replica(rig, 2, 0, leader_epoch=-1, leader=-1)
    assert rig.look(2).verdict is Verdict.DIFFERENT
    rig.mend()
    assert rig.look(2).verdict is Verdict.EQUAL
    assert leader_of(rig, 0).leader_epoch == 0


@pytest.mark.parametrize("garbled", [{"leader": 3}, {"leader_epoch": 7}], ids=["same epoch", "newer epoch"])
def test_what_would_be_refused_gets_a_new_leader_epoch(garbled: dict[str, int]) -> None:
    rig = Rig()
    rig.world.edited.add(("t", 0))
    replace_replica(rig, 2, 0, **garbled)
    assert rig.look(2).verdict is Verdict.DIFFERENT
    rig.mend()
    assert rig.verdicts() == [Verdict.EQUAL] * 3
    assert leader_of(rig, 0).leader_epoch == garbled.get("leader_epoch", 0) + 1


def test_metadata_that_should_not_be_is_taken_away() -> None:
    rig = Rig()
    for topic, number in (("gone", 0), ("t", 9)):
        stray = pb.UpdateMetadataPartitionState(topic=topic, partition=number, leader=1, replicas=[1])
        ids = {topic: topic * 22} if topic == "t" else {}
        rig.brokers[1].update(
            stray, brokers=[1, 2, 3], controller_epoch=1, controller_id=100, event_id=10**6, topic_ids=ids
        )
    rig.handlers(1).gate.event_id = 0
    assert rig.look(1).verdict is Verdict.DIFFERENT
    assert rig.known(1) == ["gone-0 METADATA", "t-9 METADATA"]
    rig.mend()
    assert rig.look(1).verdict is Verdict.EQUAL


def test_a_replica_that_should_not_be_is_named_and_left_alone() -> None:
    rig = Rig()
    known = rig.handlers(1).replicas.get("t", 0)
    assert known is not None
    rig.handlers(1).replicas._put(("t", 9), msgspec.structs.replace(known, partition=9))
    assert rig.look(1).verdict is Verdict.DIFFERENT
    assert (rig.known(1), rig.told) == (["t-9 HOSTED"], [])


def test_another_topic_id_is_a_difference() -> None:
    rig = Rig()
    replace_replica(rig, 2, 0, topic_id=ID_X)
    rig.handlers(2).metadata._identify("u", ID_X)
    rig.look(2)
    assert rig.known(2) == ["t-0 HOSTED", "u-0 METADATA"]


def test_nothing_is_said_while_pushes_are_pending_or_the_broker_does_not_answer() -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    rig.settled = False
    assert rig.look(2).verdict.value == "pending"
    rig.settled = True
    rig.unreachable.add(2)
    assert rig.look(2).verdict.value == "not reached"
    assert rig.findings == []


def test_nothing_is_said_of_a_broker_whose_registration_ends_meanwhile() -> None:
    """Nothing is pending for it, because nobody tells it any more."""
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    ask = rig.describe_state

    async def leaves(broker: Broker, request: pb.DescribeStateRequest) -> pb.DescribeStateResponse:
        rig.core.cluster.brokers.pop(2, None)
        return await ask(broker, request)

    rig.describe_state = leaves  # type: ignore[method-assign]
    assert (rig.look(2).verdict, rig.findings) == (Verdict.UNREACHABLE, [])


def test_a_difference_seen_once_does_not_count() -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    ask, seen = rig.describe_state, 0

    async def heals(broker: Broker, request: pb.DescribeStateRequest) -> pb.DescribeStateResponse:
        nonlocal seen
        answer = await ask(broker, request)
        if request.WhichOneof("page") == "partitions":
            seen += 1
            answer.known.extend([] if seen == 1 else (await ask_sound(request)).known)
        return answer

    sound = Rig()

    async def ask_sound(request: pb.DescribeStateRequest) -> pb.DescribeStateResponse:
        return sound.handlers(2).describe_state(request.SerializeToString())

    rig.describe_state = heals  # type: ignore[method-assign]
    assert rig.look(2).verdict is Verdict.EQUAL
    assert rig.findings == []


Answer = pb.DescribeStateResponse


def at_page(
    rig: Rig,
    number: int,
    before: Callable[[], object] = lambda: None,
    after: Callable[[Answer], object] = lambda _: None,
) -> None:
    """What happens as the broker is asked for its ``number``-th page of partitions, and to the answer."""
    ask, pages = rig.describe_state, itertools.count(1)

    async def describe_state(broker: Broker, request: pb.DescribeStateRequest) -> Answer:
        if request.WhichOneof("page") != "partitions" or next(pages) != number:
            return await ask(broker, request)
        before()
        answer = await ask(broker, request)
        after(answer)
        return answer

    rig.describe_state = describe_state  # type: ignore[method-assign]


def test_what_only_the_second_look_finds_does_not_count() -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    at_page(rig, 2, before=lambda: rig.handlers(2).metadata._remove(("t", 0)))
    rig.look(2)
    assert rig.known(2) == ["t-1 METADATA"]


def test_an_answer_that_a_push_has_crossed_is_not_believed() -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    at_page(rig, 2, after=lambda _: setattr(rig, "settled", False))
    assert (rig.look(2).verdict, rig.findings) == (Verdict.PENDING, [])


@pytest.mark.parametrize("epoch", [0, 2], ids=["former", "newer"])
def test_an_answer_under_another_controller_epoch_is_not_believed(epoch: int) -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    at_page(rig, 2, after=lambda answer: setattr(answer, "controller_epoch", epoch))
    assert (rig.look(2).verdict, rig.findings) == (Verdict.PENDING, [])


def test_what_is_known_of_a_broker_s_former_process_is_forgotten() -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    rig.look(2)
    broker = rig.core.cluster.brokers[2]
    anew = msgspec.structs.replace(broker, epoch=broker.epoch + 1)
    rig.core.cluster.brokers[2] = anew
    rig.handlers(2).registered(anew.epoch)
    rig.look(2)
    assert [report.broker_epoch for report in rig.told] == [broker.epoch, anew.epoch]
    assert [f.to for f in rig.findings] == ["differs", "told_again"] * 2


def test_telling_again_takes_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    now = 1000.0
    monkeypatch.setattr("controller.runtime.audit.auditor.time.monotonic", lambda: now)
    rig.handlers(2).metadata._remove(("t", 1))
    told = []
    for _ in range(145):
        rig.look(2)
        if rig.told:
            told.append(now)
            rig.told.clear()
        # The longest pause is waited for in longer steps.
        now += 5 if now < 1635 else 100
    assert [int(b - a) for a, b in itertools.pairwise(told)] == [5, 10, 20, 40, 80, 160, 320, 600, 600]


def test_a_named_topic_alone_is_looked_at_and_others_stay_known() -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    rig.look(2)
    rig.look(2, "u")
    assert rig.known(2) == ["t-1 METADATA"]


def test_too_many_topics_are_left_for_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 1)
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    rig.handlers(2).metadata._remove(("u", 0))
    assert (rig.look(2).left, rig.known(2)) == (1, ["t-1 METADATA"])
    assert rig.look(2, "t").left == 1
    assert rig.core.cluster.brokers[2].epoch in rig.auditor.uncompared
    rig.mend()
    rig.look(2)
    assert rig.known(2) == ["u-0 METADATA"]


def test_of_too_many_topics_those_come_first_that_were_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 1)
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    rig.handlers(2).metadata._remove(("u", 0))
    for known in (["t-1 METADATA"], ["t-1 METADATA", "u-0 METADATA"]):
        assert rig.look(2).left == 1
        assert rig.known(2) == known
    anew = Rig()
    anew.handlers(2).metadata._remove(("t", 1))
    anew.handlers(2).metadata._remove(("u", 0))

    async def one_round() -> None:
        running = asyncio.create_task(anew.auditor.run())
        await asyncio.sleep(anew.auditor._interval_s * 0.9)
        running.cancel()

    loop.run(one_round())
    assert anew.known(2) == ["t-1 METADATA", "u-0 METADATA"]


def test_an_unregistered_broker_is_forgotten() -> None:
    rig = Rig()
    rig.look(2)
    rig.auditor._forget([1, 3])
    assert 2 not in rig.auditor.brokers
    assert asyncio.run(rig.auditor.look(9)) is None


# --- expected digests ------------------------------------------------------------------------------------

changes = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(1, 3),
        st.integers(0, 3),
        st.sampled_from(["lead", "assign", "id", "disk"]),
    ),
    max_size=20,
)


@settings(max_examples=3 * settings().max_examples)
@given(changes)
def test_kept_digests_are_those_of_a_fresh_look(story: list[tuple[int, int, int, str]]) -> None:
    expected_module_block = expected_module.BLOCK
    expected_module.BLOCK = 2
    try:
        rig = Rig(7)
        kept = Expected(rig.core.cluster)
        asyncio.run(kept.refresh())
        for number, broker_id, epoch, what in story:
            partition = rig.core.partition("t", number)
            if what == "lead":
                partition.leadership = state(broker_id, [broker_id], epoch, epoch)
            elif what == "assign":
                partition.assign((broker_id, 1 + broker_id % 3))
            elif what == "id":
                partition.topic.id = ID_X
            else:
                rig.core.cluster.offline_dirs.setdefault(broker_id, set()).symmetric_difference_update(
                    {partition}
                )
            fresh = Expected(rig.core.cluster)
            assert asyncio.run(kept.refresh()) == asyncio.run(fresh.refresh())
    finally:
        expected_module.BLOCK = expected_module_block


def test_both_sides_begin_with_nothing() -> None:
    digest = Digest()
    digest.replace("t", 0, topic_id_item("t", ""))
    assert (digest.total, digest.by_topic) == (0, {})


def test_nothing_is_asked_once_the_lease_is_over() -> None:
    rig = Rig()
    ended = LeadershipError("the lease is over")

    def require_lease() -> None:
        raise ended

    asked = LeasedTransport(rig, require_lease).describe_state(
        rig.core.cluster.brokers[1], pb.DescribeStateRequest()
    )
    with pytest.raises(LeadershipError) as raised:
        asyncio.run(asked)
    assert raised.value is ended


def test_digests_wait_while_decisions_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    waited: list[float] = []
    refresh, sleep = Expected.refresh, asyncio.sleep

    async def noted(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0)

    async def watched(expected: Expected, turn: Turn) -> Totals:
        rig.settled = False
        try:
            return await refresh(expected, turn)
        finally:
            rig.settled = True

    monkeypatch.setattr(Expected, "refresh", watched)
    monkeypatch.setattr(asyncio, "sleep", noted)
    assert rig.look(1).verdict is Verdict.EQUAL
    # First for those who ask at the same moment.
    assert (waited[0], set(waited[1:])) == (0, {module.BUSY_S})


def test_a_broker_that_registers_anew_while_it_is_asked_is_not_compared() -> None:
    rig = Rig()
    describe = rig.describe_state
    rig.handlers(2).metadata._remove(("t", 1))

    async def bounced(broker: Broker, request: pb.DescribeStateRequest) -> pb.DescribeStateResponse:
        answer = await describe(broker, request)
        rig.core.cluster.brokers[2] = msgspec.structs.replace(broker, epoch=broker.epoch + 1)
        return answer

    rig.describe_state = bounced  # type: ignore[method-assign]
    audit = rig.look(2)
    assert (audit.verdict, audit.why, audit.known) == (
        Verdict.UNREACHABLE,
        "its registration has ended",
        {},
    )


def test_rounds_are_an_interval_apart_and_later_ones_are_spread_over_half_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig, looked = Rig(), list[tuple[int, float]]()
    rig.auditor.brokers[99] = BrokerAudit(1)
    interval_s = rig.auditor._interval_s

    async def look(broker_id: int, topics: Collection[str] = ()) -> None:
        del topics
        looked.append((broker_id, asyncio.get_running_loop().time()))

    async def run() -> float:
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=asyncio.get_running_loop().time))
        monkeypatch.setattr(rig.auditor, "look", look)
        began_s = asyncio.get_running_loop().time()
        running = asyncio.create_task(rig.auditor.run())
        await asyncio.sleep(interval_s * 1.9)
        running.cancel()
        return began_s

    began_s = loop.run(run())
    apart_s = interval_s / 2 / 3
    expected = [0.0] * 3 + [interval_s + n * apart_s for n in range(3)]
    assert [broker_id for broker_id, _ in looked] == [1, 2, 3] * 2
    assert [at_s - began_s for _, at_s in looked] == pytest.approx(expected)
    assert 99 not in rig.auditor.brokers, "it is gone"


@pytest.mark.parametrize(("parts", "looks"), [(1, 1), (2, 2), (10, 3)])
def test_brokers_of_one_part_share_one_look_at_all_topics(
    monkeypatch: pytest.MonkeyPatch, parts: int, looks: int
) -> None:
    rig, refreshed = Rig(), 0
    refresh = Expected.refresh

    async def counted(expected: Expected, turn: Turn) -> Totals:
        nonlocal refreshed
        refreshed += 1
        return await refresh(expected, turn)

    async def two_rounds() -> None:
        running = asyncio.create_task(rig.auditor.run())
        await asyncio.sleep(rig.auditor._interval_s * 0.9)
        assert refreshed == 1
        await asyncio.sleep(rig.auditor._interval_s)
        running.cancel()

    monkeypatch.setattr(module, "PARTS", parts)
    monkeypatch.setattr(Expected, "refresh", counted)
    loop.run(two_rounds())
    assert refreshed == 1 + looks
    assert [rig.auditor.brokers[id_].verdict for id_ in (1, 2, 3)] == [Verdict.EQUAL] * 3
    assert rig.auditor._waiting == set()


def test_brokers_that_differ_list_their_topics_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, listed = Rig(), list[tuple[int, bool]]()
    describe = rig.describe_state

    async def noted(broker: Broker, request: pb.DescribeStateRequest) -> pb.DescribeStateResponse:
        if request.HasField("topics"):
            listed.append((broker.id, True))
            await asyncio.sleep(0.01)
            listed.append((broker.id, False))
        return await describe(broker, request)

    for id_ in rig.brokers:
        rig.handlers(id_).metadata._remove(("t", 1))
    monkeypatch.setattr(rig, "describe_state", noted)
    asyncio.run(rig.auditor._look_at_all([1, 2, 3]))
    assert listed == [(id_, begins) for id_ in (1, 2, 3) for begins in (True, False)]
    assert all(rig.known(id_) == ["t-1 METADATA"] for id_ in (1, 2, 3))


def test_a_cluster_without_brokers_is_audited_once_it_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    brokers, rig.core.cluster.brokers = rig.core.cluster.brokers, {}

    async def rounds() -> None:
        running = asyncio.create_task(rig.auditor.run())
        await asyncio.sleep(rig.auditor._interval_s)
        assert not running.done()
        rig.core.cluster.brokers = brokers
        await asyncio.sleep(2 * rig.auditor._interval_s)
        running.cancel()

    loop.run(rounds())
    assert sorted(rig.auditor.brokers) == [1, 2, 3]


def test_a_look_that_raises_ends_those_beside_it_and_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, ended = Rig(), list[int]()

    async def look(broker_id: int, topics: Collection[str] = ()) -> None:
        del topics
        if broker_id == 2:
            raise LeadershipError("over")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(broker_id)

    async def audit() -> None:
        with pytest.raises(LeadershipError):
            await rig.auditor.run()
        assert ended == [1, 3]

    monkeypatch.setattr(module, "PARTS", 1)
    monkeypatch.setattr(rig.auditor, "look", look)
    loop.run(audit())
