"""The original's own test suites, restated as data, run against our core: requests, events, whole flows.

A row that does not apply is listed with the reason in ``cases.NOT_APPLICABLE``. Where section 14 improves on
the original, ours is right: those rows carry a comment.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.core.context import CoreSettings, EventContext
from controller.core.effects import FeatureAnswer
from controller.core.model import RECOVERING
from tests.support.core.cases import key_named, rows
from tests.support.core.harness import MachineHarness, bare
from tests.support.core.world import BROKER_CHANGE, TOPIC_CHANGE, World, state
from tests.support.reference_rows import Row

# --- channel: what goes over the wire --------------------------------------------------------------------


def _channel_rig(given: Row) -> MachineHarness:
    """Partitions led by 1, 2, 3, ... unless the row gives a leadership; all of them still untold."""
    live, count = given.get("live", [1, 2, 3]), given.get("replication_factor", 3)
    assignment = {(t, n): live[:count] for t, c in given.get("topics", {"foo": 6}).items() for n in range(c)}
    states = {key: state(1, live) for key in assignment}
    if "leadership" in given:
        states = {key_named(n): state(s["leader"], s["isr"]) for n, s in given["leadership"].items()}
    rig = bare(live, assignment, states, given.get("controller_epoch", 1))
    for broker in given.get("dead", ()):
        del rig.cluster.brokers[broker]
        rig.machine.outbox.remove_broker(broker)
    rig.cluster.shutting_down.update(given.get("shutting_down", ()))
    for name, topic_id in given.get("topic_ids", {}).items():
        rig.cluster.know_topic_id(rig.cluster.topics[name], topic_id)
    rig.cluster.topics_to_delete.update(given.get("queued_for_deletion", ()))
    rig.cluster.topics_deletion_started.update(given.get("deletion_started", ()))
    return rig


def _requests_to(rig: MachineHarness) -> dict[int, dict[str, int]]:
    counted: dict[int, dict[str, int]] = {}
    names = {
        "LeaderAndIsr": "leader_and_isr",
        "UpdateMetadata": "update_metadata",
        "StopReplica": "stop_replica",
    }
    for sent in rig.sent:
        of_broker = counted.setdefault(sent.broker, {})
        of_broker[names[sent.kind.value]] = of_broker.get(names[sent.kind.value], 0) + 1
    return counted


@pytest.mark.parametrize("row", [p for p in rows("channel") if "add_leader_and_isr" in p.values[0]["when"]])
def test_channel_leader_and_isr(row: Row) -> None:
    rig = _channel_rig(row["given"])
    adds = row["when"]["add_leader_and_isr"]

    def push(context: EventContext) -> None:
        for add in adds if isinstance(adds, list) else [adds]:
            partition = rig.partition(*key_named(add["partition"]))
            context.push_leadership([(add["to"], partition)], add.get("is_new", False))
            context.push_metadata([partition])

    rig.do(push)
    requests = _requests_to(rig)
    # Metadata is one stream to all brokers: those the row does not mention get theirs as well.
    for broker, counts in row["then"]["requests_to"].items():
        assert requests[int(broker)] == counts
    assert not set(row["then"].get("no_requests_to", ())) & set(requests)
    for name, fields in row["then"].get("leader_and_isr", {}).get("partitions", {}).items():
        (entry,) = next(s.message for s in rig.sent if s.kind.value == "LeaderAndIsr").partition_states
        assert (f"{entry.topic}-{entry.partition}", entry.is_new) == (name, fields["is_new"])


@pytest.mark.parametrize("row", [p for p in rows("channel") if p.values[0]["id"] == "K111"])
def test_channel_newest_leader_and_isr_carries_recovery_and_topic_id(row: Row) -> None:
    """Of the row's versions we speak the newest: the recovery state and the real topic id are on the wire."""
    leadership = row["given"]["state"]["foo-0"]
    rig = _channel_rig(row["given"])
    partition = rig.partition("foo")
    partition.leadership = state(leadership["leader"], leadership["isr"], 0, 1, recovery=RECOVERING)
    rig.world.put_state("foo", 0, partition.leadership)
    rig.do(lambda context: context.push_leadership([([2], partition)]))
    (sent,) = rig.sent
    assert sent.message.partition_states[0].leader_recovery_state == RECOVERING
    assert dict(sent.message.topic_ids) == {"foo": partition.topic.id}


@pytest.mark.parametrize("row", [p for p in rows("channel") if "add_update_metadata" in p.values[0]["when"]])
def test_channel_update_metadata(row: Row) -> None:
    """Kafka's error in the response is the runtime's business; the request is compared in full."""
    rig, wanted = _channel_rig(row["given"]), row["then"]["update_metadata"]
    partitions = [rig.partition(*key_named(n)) for n in row["when"]["add_update_metadata"]["partitions"]]

    def push(context: EventContext) -> None:
        context.push_brokers()
        context.push_metadata(partitions)

    rig.slow = {1, 2, 3}
    rig.do(push)
    rig.slow = set()
    rig.drain()
    messages = [s.message for s in rig.sent if s.broker == 2]
    assert {s.kind.value for s in rig.sent} == {"UpdateMetadata"}
    entries = [e for m in messages for e in m.partition_states]
    assert {f"{e.topic}-{e.partition}": {"leader": e.leader, "isr": list(e.isr)} for e in entries} == wanted[
        "partitions"
    ]
    assert {k: v for m in messages for k, v in m.topic_ids.items()} == wanted.get("topic_ids", {})
    for message in messages:
        assert [b.broker_id for b in message.live_brokers] == wanted["live_brokers"]
        assert message.controller_epoch == wanted.get("controller_epoch", 1)
        assert message.controller_id == rig.cluster.controller_id


@pytest.mark.parametrize("row", [p for p in rows("channel") if "add_stop_replica" in p.values[0]["when"]])
def test_channel_stop_replica(row: Row) -> None:
    """Which answers count as deletions is the deletion issue's; here is what the brokers are told."""
    rig, wanted = _channel_rig(row["given"]), row["then"]["stop_replica"]
    adds = row["when"]["add_stop_replica"]
    if isinstance(adds, list):
        stops = [(key_named(add["partition"]), add["delete"]) for add in adds]
    else:
        stops = [(key_named(name), item["delete"]) for name, item in adds["partitions"].items()]

    def push(context: EventContext) -> None:
        for key, delete in stops:
            context.push_stop([(rig.partition(*key), 2)], delete=delete)

    rig.slow = {2}
    rig.do(push)
    rig.slow = set()
    rig.drain()
    assert _requests_to(rig) == {wanted["to"]: {"stop_replica": wanted["count"]}}
    got = {
        f"{e.topic}-{e.partition}": {"leader_epoch": e.leader_epoch, "delete": e.delete_partition}
        for e in rig.sent[0].message.partition_states
    }
    assert got == wanted.get("partitions", wanted.get("partitions_v3_plus"))


@pytest.mark.parametrize("row", [p for p in rows("channel") if p.values[0]["id"] in ("K549", "K550", "K551")])
def test_channel_stop_replica_is_per_partition(row: Row) -> None:
    """Of the row's versions we speak the newest: leader epoch (-2 as sent) and delete flag in each partition."""
    rig = bare([1], {(t, n): [1] for t in ("foo", "gone") for n in range(3)},
               {("foo", n): state(1, [1], n) for n in range(3)})  # fmt: skip
    rig.cluster.topics_to_delete.add("gone")
    delete = "delete_all" not in row["when"]
    rig.slow = {1}

    def push(context: EventContext) -> None:
        for partition in rig.cluster.partitions():
            context.push_stop([(partition, 1)], delete=delete)

    rig.do(push)
    rig.slow = set()
    rig.drain()
    assert [(s.kind.value, len(s.message.partition_states)) for s in rig.sent] == [("StopReplica", 6)]
    entries = rig.sent[0].message.partition_states
    assert [e.leader_epoch for e in entries] == [0, 1, 2, -2, -2, -2]
    assert {e.delete_partition for e in entries} == {delete}


# --- events ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", rows("events"))
def test_events(row: Row) -> None:
    _EVENTS[row["id"]](row)


def _k127(row: Row) -> None:
    """An event that changes nothing is processed once, like any other."""
    rig = MachineHarness.active(World(1))
    rig.forget()
    rig.world.events.append(BROKER_CHANGE)
    rig.run()
    assert len(rig.finished) == row["then"]["processed"]


def _k128(row: Row) -> None:
    """The second event waits while the first is processed. (Two that wait together would be one.)"""
    rig, then = MachineHarness.active(World(1)), row["then"]["queue_time_ms"]
    machine, took_us = rig.machine, row["given"]["processing_time_ms"] * 1000
    ready = machine.step(TOPIC_CHANGE, 0)
    machine.step(TOPIC_CHANGE, 0)
    finished = []
    while ready.effects or ready.more:
        outcome = rig.perform(ready.effects[0]) if ready.effects else None
        ready = machine.step(outcome, took_us)
        finished.extend(ready.finished)
    waited_ms = [done.queued_us / 1000 for done in finished]
    assert waited_ms == [then["min"], then["max"]]
    assert len(waited_ms) == then["count"] == row["then"]["processed"]


def _k133(row: Row) -> None:
    """What should be impossible is not swallowed: it leaves ``step``, and the runtime ends the term."""
    rig = MachineHarness.active(World(1))
    rig.machine.cluster.brokers = None  # type: ignore[assignment]
    rig.world.events.append(BROKER_CHANGE)
    with pytest.raises((AttributeError, TypeError)):
        rig.run()


_EVENTS: dict[str, Callable[[Row], None]] = {"K127": _k127, "K128": _k128, "K133": _k133}


# --- whole flows: creation, failover, broker death --------------------------------------------------------


def _k141(then: Row) -> None:
    world = World(0)
    rig = MachineHarness.active(world)
    world.create_topic("t", {0: [0]})
    rig.run()
    _expect_state(rig, then)


def _k142(then: Row) -> None:
    world = World(0, 1)
    rig = MachineHarness.active(world)
    world.broker_down(1)
    rig.run()
    world.create_topic("t", {0: [1, 0]})
    rig.run()
    _expect_state(rig, then)


def _expect_state(rig: MachineHarness, then: Row) -> None:
    for name, wanted in then["state"].items():
        stored = rig.world.states[key_named(name)]
        found = {"leader": stored.leader, "leader_epoch": stored.leader_epoch, "isr": list(stored.isr),
                 "controller_epoch": stored.controller_epoch}  # fmt: skip
        assert {field: found[field] for field in wanted} == wanted


def _k149(then: Row) -> None:
    world = World(0, 1)
    rig = MachineHarness.active(world)
    world.create_topic("t", {0: [1, 0]})
    rig.run()
    world.broker_down(1)
    rig.run()
    assert rig.stored() == (0, 1, [0])
    world.broker_up(1)
    rig.run()
    rig.ask(rig.alter(0, rig.proposal([0, 1])))
    world.ask_preferred(("t", 0))
    rig.run()
    _expect_state(rig, then)
    assert world.preferred is None


def _k156(then: Row) -> None:
    world = World(0, 1)
    rig = MachineHarness.active(world, settings=CoreSettings(unclean_leader_election_enable=True))
    world.create_topic("t", {0: [1]})
    rig.run()
    world.broker_down(1)
    rig.run()
    _expect_state(rig, then)


def _k165(then: Row) -> None:
    world = World(0)
    world.feature = FeatureAnswer(True, 3)
    MachineHarness.active(world)
    assert world.feature == FeatureAnswer(True, 3)


def _k217(then: Row) -> None:
    world = World(0, 1)
    rig = MachineHarness.active(world)
    world.create_topic("t", {0: [0]}, topic_id="")
    rig.run()
    given = world.topics["t"].topic_id
    world.broker_down(0)
    successor = MachineHarness(world, epoch=2).failover()
    assert world.topics["t"].topic_id == successor.cluster.topics["t"].id == given != ""


def _k226(then: Row) -> None:
    world = World(0, 1)
    rig = MachineHarness.active(world)

    def check() -> None:
        assert {i: b.epoch for i, b in rig.cluster.brokers.items()} == {
            i: b.epoch for i, b in world.brokers.items()
        }

    check()
    world.broker_down(1)
    rig.run()
    check()
    world.broker_up(1)
    rig.run()
    check()


def _unclean(then: Row, default: bool, topic: str | None, leader: int) -> None:
    """Follower 1 leaves, leader 0 leaves, follower 1 returns."""
    world = World(0, 1)
    if topic is not None:
        world.configure("T", {"unclean.leader.election.enable": topic})
    rig = MachineHarness.active(world, settings=CoreSettings(unclean_leader_election_enable=default))
    world.create_topic("T", {0: [0, 1]})
    rig.run()
    world.broker_down(1)
    rig.run()
    world.broker_down(0)
    rig.run()
    world.broker_up(1)
    rig.run()
    assert rig.stored("T")[0] == leader
    assert rig.cluster.unclean_elections == then["unclean_elections"]
    if leader == -1:
        assert rig.stored("T")[2] == [0]


def _k237(then: Row) -> None:
    _unclean(then, default=False, topic=None, leader=-1)


def _preferred_of_three(then: Row, dead: bool) -> None:
    world = World(0, 1, 2)
    rig = MachineHarness.active(world)
    world.create_topic("test", {0: [1, 2, 0]})
    rig.run()
    if dead:
        world.broker_down(1)
        rig.run()
    before = rig.stored("test")
    world.ask_preferred(("test", 0))
    rig.run()
    assert rig.stored("test") == before
    assert world.preferred is None
    if not dead:
        assert before[0] == then["leader"]


def _k369(then: Row) -> None:
    world = World(2)
    world.create_topic("test", {0: [0, 1, 2]})
    rig = MachineHarness.active(world)
    for broker in (1, 0):
        world.broker_up(broker)
        rig.run()
    rig.ask(rig.alter(2, rig.proposal([2, 1, 0], "test")))
    world.ask_preferred(("test", 0))
    rig.run()
    assert rig.stored("test")[0] == then["leader"]


_FLOWS: dict[str, Callable[[Row], None]] = {
    "K141": _k141,
    "K142": _k142,
    "K149": _k149,
    "K156": _k156,
    "K165": _k165,
    "K217": _k217,
    "K226": _k226,
    "K236": lambda then: _unclean(then, default=True, topic=None, leader=1),
    "K237": _k237,
    "K238": lambda then: _unclean(then, default=False, topic="true", leader=1),
    "K362": lambda then: _preferred_of_three(then, dead=False),
    "K363": lambda then: _preferred_of_three(then, dead=True),
    "K369": _k369,
}


@pytest.mark.parametrize("row", [p for p in rows("integration") if p.values[0]["id"] in _FLOWS])
def test_flow(row: Row) -> None:
    """The same flows run on a real server in the runtime's tests."""
    _FLOWS[row["id"]](row["then"])
