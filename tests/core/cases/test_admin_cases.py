"""The original's suites of admin requests and elections (``admin_cases.jsonl``), run on our core, and neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.events import Event, EventKind
from controller.core.requests.brokers import ControlledShutdown
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.topics import CreatePartitions, CreateTopics, Expansion, NewTopic
from tests.support.core.cases import key_named
from tests.support.core.harness import MachineHarness
from tests.support.core.reassignments import ask, copy_all
from tests.support.core.world import Key, World
from tests.support.reference_rows import Row, load

ROWS = load("admin_cases.jsonl")
CREATIONS = [id_ for id_, row in ROWS.items() if row["suite"] == "AddPartitionsTest"]
ELECTIONS = [id_ for id_, row in ROWS.items() if "elect" in row["when"]]
FLOWS = [id_ for id_, row in ROWS.items() if "actions" in row["when"] and id_ != "K240"]
KINDS = {"preferred": ElectionType.PREFERRED, "unclean": ElectionType.UNCLEAN}


def rig_of(given: Row) -> MachineHarness:
    """The row's brokers and topics; a topic's value may be the replicas of its only partition."""
    rig = MachineHarness.active(World(*given["brokers"]))
    for name, partitions in given.get("topics", {}).items():
        listed = {"0": partitions} if isinstance(partitions, list) else partitions
        rig.world.create_topic(name, {int(n): ids for n, ids in listed.items()})
    rig.run()
    return rig


# --- creation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", CREATIONS)
def test_wrong_assignments_are_refused(id_: str) -> None:
    row = ROWS[id_]
    rig, when = rig_of(row["given"]), row["when"]
    before = dict(rig.world.topics)
    if "create_topics" in when:
        topics = [
            NewTopic(name, assignment={int(n): tuple(ids) for n, ids in listed.items()})
            for name, listed in when["create_topics"].items()
        ]
        (reply,) = rig.ask(CreateTopics(topics, False))
    else:
        asked = when["create_partitions"]
        assignment = tuple(map(tuple, asked["assignment"]))
        (reply,) = rig.ask(CreatePartitions([Expansion(asked["topic"], asked["total"], assignment)], False))
    assert {topic.error.name for topic in reply.topics} == {row["then"]["error"]}
    assert rig.world.topics == before


def test_an_invalid_override_is_refused() -> None:
    """K240: what is no boolean is no value of unclean.leader.election.enable."""
    (action,) = ROWS["K240"]["when"]["actions"]
    rig = rig_of(ROWS["K240"]["given"])
    (reply,) = rig.ask(CreateTopics([NewTopic(action["topic"], 1, 1, configs=action["config"])], False))
    assert [topic.error.name for topic in reply.topics] == [ROWS["K240"]["then"]["error"]]
    assert rig.world.topics == {}


# --- elections -----------------------------------------------------------------------------------------------


def leaders(rig: MachineHarness) -> dict[str, int]:
    """By partition, and by topic where it has one."""
    found = {f"{topic}-{number}": state.leader for (topic, number), state in rig.world.states.items()}
    return {**found, **{topic: found[f"{topic}-0"] for topic, _ in rig.world.states}}


def keys(rig: MachineHarness, names: list[str]) -> list[Key]:
    """Partitions by name; a topic's name is its partition 0."""
    return [(name, 0) if name in rig.world.topics else key_named(name) for name in names]


def elect(rig: MachineHarness, kind: str, names: list[str] | None) -> dict[str, str]:
    """The errors by partition, and by topic for partition 0."""
    asked = None if names is None else keys(rig, names)
    (reply,) = rig.ask(ElectLeaders(KINDS[kind], asked))
    assert reply.error.name == "NONE"
    found = {f"{a.topic}-{a.partition}": a.error.name for a in reply.partitions}
    return found | {a.topic: a.error.name for a in reply.partitions if a.partition == 0}


def prefer(rig: MachineHarness, replicas: list[int], *topics: str) -> None:
    """Another order of the same replicas: who leads stays."""
    before = leaders(rig)
    assert set(ask(rig, {(topic, 0): replicas for topic in topics}).values()) == {"NONE"}
    assert leaders(rig) == before


def to_step(rig: MachineHarness, when: Row) -> None:
    """The peer's test goes on from row to row; here each begins anew and is brought to where it is."""
    if "preferred" in when or "topic-does-not-exist-0" in (when["partitions"] or ()):
        prefer(rig, [1, 2, 0], "p1", "p2")
        assert elect(rig, "preferred", None)["p1"] == "NONE"
    for broker in when.get("dead", ()):
        rig.world.broker_down(broker)
        rig.run()


@pytest.mark.parametrize("id_", ELECTIONS)
def test_election_on_request(id_: str) -> None:
    when, then = ROWS[id_]["when"], ROWS[id_]["then"]
    rig = rig_of(ROWS[id_]["given"])
    to_step(rig, when)
    errors = elect(rig, when["elect"], when["partitions"])
    expected = {name: value for name, value in then.items() if name not in ("leaders", "result")}
    assert {name: errors[name] for name in expected} == expected
    if "result" in then:
        assert errors == then["result"]
    found = leaders(rig)
    assert {name: found[name] for name in then.get("leaders", {})} == then.get("leaders", {})
    rig.check_converged()


def test_preferred_leaders_step_by_step() -> None:
    """The steps between the rows: after a change of order one partition, then the rest, then unknown ones beside."""
    rig = rig_of({"brokers": [0, 1, 2], "topics": {"p1": [0, 1, 2], "p2": [0, 1, 2]}})
    prefer(rig, [1, 2, 0], "p1", "p2")
    assert elect(rig, "preferred", ["p1"])["p1"] == "NONE"
    assert (leaders(rig)["p1"], leaders(rig)["p2"]) == (1, 0)
    every = elect(rig, "preferred", None)
    assert (every, leaders(rig)["p2"]) == ({"p2-0": "NONE", "p2": "NONE"}, 1)
    prefer(rig, [2, 0, 1], "p1", "p2")
    mixed = elect(rig, "preferred", ["p1", "nowhere-0", "p1-7"])
    assert (mixed["p1-0"], mixed["nowhere-0"], mixed["p1-7"]) == (
        "NONE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
    )
    assert (leaders(rig)["p1"], leaders(rig)["p2"]) == (2, 1)
    rig.world.broker_down(2)
    rig.run()
    before = leaders(rig)
    # Dead, and p1 is led by the next in its order; the other partition was never asked for.
    assert elect(rig, "preferred", ["p1"])["p1"] == "PREFERRED_LEADER_NOT_AVAILABLE"
    assert leaders(rig) == before
    assert before["p1"] == 0


# --- flows ---------------------------------------------------------------------------------------------------


def perform(rig: MachineHarness, action: Row) -> dict[str, str]:
    """One action of a row; what an election answered."""
    world, broker = rig.world, int(action.get("broker", -1))
    match action["op"]:
        case "create_topic":
            world.create_topic(action["topic"], {int(n): ids for n, ids in action["assignment"].items()})
        case "stop_broker":
            assert action["controlled_shutdown"]
            rig.ask(ControlledShutdown(broker, world.brokers[broker].epoch))
            world.broker_down(broker)
        case "start_broker":
            world.broker_up(broker)
        case "bounce_broker":
            world.broker_down(broker)
            rig.run()
            world.broker_up(broker)
            rig.run()
            copy_all(rig)
        case "await":
            assert not set(action["isr_excludes"]) & set(world.states[("t", 0)].isr)
        case "expect":
            _expect_leader(rig, action["leader"])
        case "expect_state":
            expect_state(rig, action)
        case "elect_leaders":
            return elect(rig, action["type"], action["partitions"])
        case op:
            raise AssertionError(f"unknown op {op}")
    rig.run()
    return {}


def _expect_leader(rig: MachineHarness, wanted: Any) -> None:
    (topic,) = rig.world.topics
    leader = rig.world.states[(topic, 0)].leader
    assert leader != 1 if wanted == "not 1" else leader == (-1 if wanted is None else wanted)


def expect_state(rig: MachineHarness, then: Row) -> None:
    for name, wanted in then["state"].items():
        stored = rig.world.states[key_named(name)]
        assert {field: getattr(stored, field) for field in wanted} == wanted


@pytest.mark.parametrize("id_", FLOWS)
def test_flow(id_: str) -> None:
    row = ROWS[id_]
    then, errors = row["then"], {}
    rig = rig_of(row["given"])
    for action in row["when"]["actions"]:
        errors.update(perform(rig, action))
    if row["given"].get("config", {}).get("auto_leader_rebalance"):
        copy_all(rig)
        rig.world.events.append(Event(EventKind.LEADER_REBALANCE))
        rig.run()
    assert not set(then.get("result_keys_exclude", ())) & set(errors)
    for name, wanted in then.items():
        if name in rig.world.topics or name.removesuffix("-0").removesuffix("-1") in rig.world.topics:
            assert errors[name] == wanted
    found = leaders(rig)
    assert {name: found[name] for name in then.get("leaders", {})} == then.get("leaders", {})
    if "leader" in then:
        assert found["test-0"] == then["leader"]
    expect_state(rig, {"state": then.get("state", {})})
    rig.check_converged()


@pytest.mark.parametrize(
    ("assignment", "away", "elected"),
    [
        # Nobody of the ISR is left: the only one alive leads. One of the ISR is there: nothing to elect.
        ({"0": [1, 2]}, [2, 1], "NONE"),
        ({"0": [1, 2]}, [1, 2], "ELECTION_NOT_NEEDED"),
    ],
)
def test_unclean_for_one_partition(assignment: Row, away: list[int], elected: str) -> None:
    """Both leave, the second one last; who comes back first decides whether an unclean election is needed."""
    rig = rig_of({"brokers": [0, 1, 2], "topics": {"t": assignment}})
    for broker in away:
        rig.ask(ControlledShutdown(broker, None))
        rig.world.broker_down(broker)
        rig.run()
    assert rig.stored("t")[0] == -1
    rig.world.broker_up(2)
    rig.run()
    assert elect(rig, "unclean", ["t-0"])["t-0"] == elected
    assert rig.stored("t")[0] == 2


def test_unclean_where_all_replicas_are_dead() -> None:
    rig = rig_of({"brokers": [0, 1, 2], "topics": {"t": {"0": [1, 2]}}})
    for broker in (2, 1):
        rig.ask(ControlledShutdown(broker, None))
        rig.world.broker_down(broker)
        rig.run()
    assert elect(rig, "unclean", ["t-0"])["t-0"] == "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    assert rig.stored("t")[0] == -1


# --- adding partitions ---------------------------------------------------------------------------------------


def test_new_partitions_are_led_and_known_to_all() -> None:
    """Increments by assignment and by count, metadata of every broker; two topics at once."""
    given = ROWS["K271"]["given"]
    rig = rig_of(given)
    rig.forget()
    (reply,) = rig.ask(
        CreatePartitions([Expansion("new-topic2", 3, ((0, 1), (2, 3))), Expansion("new-topic3", 7)], False)
    )
    assert [topic.error.name for topic in reply.topics] == ["NONE", "NONE"]
    assert rig.world.topics["new-topic2"].partitions == {0: (1, 2), 1: (0, 1), 2: (2, 3)}
    added = rig.world.topics["new-topic3"].partitions
    assert len(added) == 7
    assert all(sorted(ids) == [0, 1, 2, 3] for ids in added.values())
    # One replica list does not begin like the one before: leaders go round from partition 0's.
    assert [ids[0] for ids in added.values()] == [2, 3, 0, 1, 2, 3, 0]
    for key, stored in rig.world.states.items():
        assert stored.leader == rig.world.topics[key[0]].partitions[key[1]][0]
    rig.check_converged()
