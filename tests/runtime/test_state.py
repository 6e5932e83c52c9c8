"""What operators see of a controller: every gauge and field is of the thing that it is named for."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from controller.core.cluster.quarantine import Quarantine, Subject, SubjectKind, Suspect
from controller.core.events import Event, EventKind
from controller.core.model import Attribution, Freeze, Maintenance, Partition, Topic
from controller.core.topics.deletion_status import DeletionPhase, DeletionStatus, deletions
from controller.runtime import state as module
from controller.runtime.audit.auditor import BrokerAudit
from controller.runtime.config import Takeover
from controller.runtime.daemon import Role
from controller.runtime.election.takeover import Held
from controller.runtime.observe import loop_lag
from controller.runtime.push.status import SenderStatus
from controller.runtime.state import REST, Gauges, _maintenance_gauges, _queue_gauges, attention, census
from controller.runtime.term import Term
from proto.security.expiry import Certificates
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World, state

PREFIX = "kafka_controller_kafkacontroller_"


def a_cluster() -> MachineHarness:
    """Six partitions on brokers 1 to 3; broker 9 is gone: one has no leader, and one never had."""
    world = World(1, 2, 3)
    world.create_topic("t", {0: [1, 2], 1: [2, 3], 2: [3, 1]})
    for number, leader in ((0, 1), (1, 2), (2, 1)):
        world.put_state("t", number, state(leader, world.topics["t"].partitions[number], 5, 7))
    world.create_topic("lost", {0: [9, 1], 1: [9, 2]})
    for number in (0, 1):
        world.put_state("lost", number, state(-1, [9], 5, 7))
    world.create_topic("new", {0: [9]})
    rig = MachineHarness(world)
    # The third partition stays with broker 1, which it does not prefer.
    rig.failover()
    return rig


def leading(rig: MachineHarness) -> Any:
    """A daemon that leads with this machine."""
    term = SimpleNamespace(
        machine=rig.machine,
        won=SimpleNamespace(epoch=1),
        changes=0,
        leads_kafka=False,
        senders=SimpleNamespace(status={}),
        auditor=SimpleNamespace(brokers={}),
        quarantine=Quarantine(),
    )
    session = SimpleNamespace(
        connected=False, negotiated_ms=6000, multi_read=True, over=False, lease_remaining_s=lambda: 3.0
    )
    log = SimpleNamespace(queued=1, written=2, dropped=3, bytes_written=4, cpu_s=5.0)
    claimant = SimpleNamespace(
        holder=None,
        wait_s=lambda: None,
        mode=Takeover.OFF,
        held=next(iter(Held)),
        claims=(),
        resignation=None,
    )
    return SimpleNamespace(
        active=True,
        leading=term,
        term=term,
        session=session,
        state_log=log,
        claimant=claimant,
        role=Role.ACTIVE,
        registry=CollectorRegistry(),
        certificates=Certificates(),
        current_controller=100,
        outranked=SimpleNamespace(problem=lambda *_: ""),
        settings=SimpleNamespace(controller_id=100, zookeeper="z:1", state_log_dir="/log"),
        openness=SimpleNamespace(value="guarded"),
        grpc_endpoint="",
        http_endpoint="",
    )


def shown(daemon: Any, *names: str) -> list[float | None]:
    return [daemon.registry.get_sample_value(PREFIX + name) for name in names]


async def test_a_census_counts_every_partition_once_in_however_many_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_twos(items: Iterable[Partition]) -> Any:
        return loop_lag.in_turns(items, 2)

    monkeypatch.setattr(module, "in_turns", in_twos)
    found = await census(a_cluster().cluster)
    assert dict(found.led) == {1: 2, 2: 1, -1: 2}
    assert dict(found.held) == {1: 3, 2: 3, 3: 2, 9: 3}
    assert (found.offline, found.imbalanced) == (2, 3)


COUNTS = (
    "globaltopiccount",
    "globalpartitioncount",
    "offlinepartitionscount",
    "preferredreplicaimbalancecount",
)


async def test_counts_are_of_the_term_that_leads_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 100.0))
    daemon = leading(a_cluster())
    gauges = Gauges(daemon)
    assert shown(daemon, *COUNTS) == [3, 0, 0, 0]
    await gauges.refresh()
    assert shown(daemon, "activecontrollercount", *COUNTS) == [1, 3, 5, 2, 3]
    # It steps down, and the term ends after that.
    daemon.leading = None
    assert shown(daemon, "activecontrollercount", "activebrokercount", *COUNTS) == [0] * 6
    await gauges.refresh()
    # Led again, it is counted at once, though nothing has changed.
    daemon.leading = daemon.term
    await gauges.refresh()
    assert shown(daemon, *COUNTS) == [3, 5, 2, 3]


async def test_a_change_is_counted_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [0.0]

    def monotonic() -> float:
        times[0] += 1
        return times[0]

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic))
    rig = a_cluster()
    daemon = leading(rig)
    gauges = Gauges(daemon)
    await gauges.refresh()
    rig.world.broker_up(9)
    rig.run()
    daemon.term.changes += 1
    await gauges.refresh()
    assert shown(daemon, "offlinepartitionscount") == [2]
    times[0] += REST
    await gauges.refresh()
    assert shown(daemon, "offlinepartitionscount") == [0]


async def test_deletions_are_counted_by_topics_by_replicas_and_by_what_cannot_be_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [
        DeletionStatus("a", DeletionPhase.INELIGIBLE, None, 50, 20),
        DeletionStatus("b", DeletionPhase.WAITING, None, 3),
        DeletionStatus("c", DeletionPhase.STARTED, None, 7, 1),
        DeletionStatus("d", DeletionPhase.QUEUED, None, 4),
        DeletionStatus("e", DeletionPhase.STARTED, None, 0),
    ]
    monkeypatch.setattr(module, "deletions", lambda _: found)
    daemon = leading(a_cluster())
    gauges = Gauges(daemon)
    await gauges.refresh()
    names = [
        f"{what}{state}deletecount" for state in ("to", "ineligibleto") for what in ("topics", "replicas")
    ]
    assert shown(daemon, *names) == [5, 64, 2, 21]


def test_only_what_is_in_quarantine_counts() -> None:
    rig = a_cluster()
    daemon = leading(rig)
    raised = Suspect(SubjectKind.TOPIC, "t", "TopicChange", "KeyError", "d", 7, 1, 0)
    daemon.term.quarantine = Quarantine().remember(raised)
    Gauges(daemon)
    value = daemon.registry.get_sample_value
    assert value("partition_controller_quarantined") == 0
    daemon.term.quarantine = daemon.term.quarantine.remember(
        Suspect(SubjectKind.TOPIC, "t", "TopicChange", "KeyError", "d", 7, 2, 0)
    )
    assert daemon.term.quarantine.skips(Subject(SubjectKind.TOPIC, "t"))
    assert value("partition_controller_quarantined") == 1


@pytest.mark.parametrize(("oldest_us", "age_s"), [(None, 0.0), (7_500_000, 2.5)])
def test_what_waits_is_summed_up_and_its_age_is_in_seconds(
    oldest_us: int | None, age_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "now_us", lambda: 10_000_000)
    pending = {1: 3, 2: 4}
    outbox = SimpleNamespace(queues=pending, pending=pending.__getitem__)
    machine = SimpleNamespace(outbox=outbox, queue_size=6, oldest_queued_us=lambda: oldest_us)
    term = SimpleNamespace(
        machine=machine, senders=SimpleNamespace(status={}), auditor=SimpleNamespace(brokers={})
    )
    daemon: Any = SimpleNamespace(term=term)
    found = {
        (name.rpartition("_controller")[2], labels.get("broker_id")): value
        for name, _, labels, value in _queue_gauges(daemon)
    }
    assert found["eventmanager_eventqueuesize", None] == 6
    assert found["eventmanager_eventqueueage_seconds", None] == age_s
    assert [found["channelmanager_queuesize", b] for b in ("1", "2")] == [3, 4]
    assert found["channelmanager_totalqueuesize", None] == 7


def test_restrictions_are_gauges_in_seconds() -> None:
    marks = Maintenance(freeze=Freeze("quiet", "ann", 1_700_000_000_250), drained={1: Attribution("r", "a")})
    found = {
        name.removeprefix("partition_controller_"): value for name, _, _, value in _maintenance_gauges(marks)
    }
    assert found == {
        "paused": 0,
        "in_maintenance": 0,
        "frozen": 1,
        "freeze_until_seconds": 1_700_000_000,
        "maintenance_automatic": 0,
        "drained_brokers": 1,
    }
    assert not any(value for _, _, _, value in _maintenance_gauges(Maintenance()))


def test_a_broker_that_refuses_is_told_of_once() -> None:
    daemon = leading(a_cluster())
    partition = Partition(Topic("t"), 0, (1,))
    whole, some = SenderStatus(7), SenderStatus(7)
    whole.refused, whole.not_led = {object(): "refuses LeaderAndIsr"}, {partition: "X"}  # type: ignore[dict-item]
    some.not_led = {partition: "X"}
    daemon.term.senders.status = {2: some, 1: whole}
    assert attention(daemon) == [
        "broker 1 refuses LeaderAndIsr",
        "broker 2 refuses LeaderAndIsr of 1 partition: X x1",
    ]


def test_a_broker_that_could_not_start_again_in_this_cluster_is_named() -> None:
    rig = a_cluster()
    brokers, rig.cluster.cluster_id = rig.cluster.brokers, "one"
    for broker_id, known in ((1, "one"), (2, "two")):
        brokers[broker_id] = msgspec.structs.replace(brokers[broker_id], cluster_id=known)
    (line,) = attention(leading(rig))
    assert line.startswith("broker 2 belongs to cluster two, and /cluster/id is one")
    rig.cluster.cluster_id = ""
    assert attention(leading(rig)) == []


async def test_the_state_of_a_term_names_what_is_not_online_and_each_broker_s_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = a_cluster()
    daemon = leading(rig)
    rig.cluster.offline_dirs[2] = {rig.partition("t", 1), rig.partition("lost", 1)}
    status = SenderStatus(7, acknowledged_requests=5, acknowledged_partitions=70)
    daemon.term.senders.status = {1: status}
    daemon.term.auditor.brokers = {1: BrokerAudit(7)}
    monkeypatch.setattr(module, "all_problems", lambda *_: iter(()))
    found = await module.state(daemon)
    term = found["term"]
    assert term["partitions_not_online"] == 3
    named = {entry["partition"] for entry in term["partitions_not_online_first"]}
    assert named == {"lost-0", "lost-1", "new-0"}
    brokers = term["brokers"]
    assert [brokers[id_]["offline_replicas"] for id_ in ("1", "2", "3")] == [0, 2, 0]
    acknowledged = [brokers["1"][f"acknowledged_{what}"] for what in ("requests", "partitions")]
    assert acknowledged == [5, 70]
    assert found["zookeeper"]["lease_remaining_ms"] == 3000
    daemon.session.over = True
    assert (await module.state(daemon))["zookeeper"]["lease_remaining_ms"] == 0


async def test_the_next_try_of_a_deletion_is_told_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    (status,) = deletions(deleting().cluster)
    assert status.retry_at_us is not None
    for before_us, shown_s in ((5_000_000, 5.0), (0, 0.0), (-1, 0.0)):
        monkeypatch.setattr(module, "now_us", lambda at=status.retry_at_us - before_us: at)
        assert module._deletion(status)["retry_in_s"] == shown_s


def deleting() -> MachineHarness:
    """A deletion that a broker refused, which is tried again."""
    world = World(1)
    world.create_topic("d", {0: [1]})
    rig = MachineHarness.active(world)
    rig.stop_error = lambda *_: "KAFKA_STORAGE_ERROR"
    world.mark_for_deletion("d")
    rig.run()
    return rig


@pytest.mark.parametrize(("event", "version"), [(None, 3), (Event(EventKind.FAILOVER), None)])
def test_in_the_midst_of_an_event_the_cluster_state_has_no_version(
    event: Event | None, version: int | None
) -> None:
    term: Any = SimpleNamespace(changes=3, machine=SimpleNamespace(current_event=event))
    assert Term.version.__get__(term) == version
