"""The original's own test suites about reassignment, restated as data (``reassignment_cases.jsonl``), run on our core.

Throttles are the brokers' business: steps that set them are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from controller.core.reassignment.assignment import Assignment
from controller.core.reassignment.generator import generate
from controller.core.znode_paths import REASSIGN_PARTITIONS
from controller.errors import MalformedError
from controller.runtime.zookeeper import codecs
from tests.support.core.cases import key_named
from tests.support.core.harness import MachineHarness
from tests.support.core.reassignments import (
    active,
    ask,
    assigned,
    check_moved,
    copy_all,
    join,
    ongoing,
    request,
)
from tests.support.core.world import Key, World
from tests.support.reference_rows import Row, load

ROWS = load("reassignment_cases.jsonl")
ALGEBRA = [id_ for id_, row in ROWS.items() if row["suite"] == "ControllerContextTest"]
CODEC = ["K325", "K327", "K536", "K537"]
TOOL = ["K324", "K338", "K339", "K340"]
FLOWS = [id_ for id_ in ROWS if id_ not in {*ALGEBRA, *CODEC, *TOOL, "K146", "K312", "K321"}]


# --- algebra and codec -----------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", ALGEBRA)
def test_the_assignment_algebra_is_kafkas(id_: str) -> None:
    given, when, then = (ROWS[id_][part] for part in ("given", "when", "then"))
    plan = Assignment(*(tuple(given.get(name, ())) for name in ("replicas", "adding", "removing")))
    if "reassign_to" in when:
        plan = plan.reassign_to(when["reassign_to"])
    for name, wanted in then.items():
        found = getattr(plan, name)
        assert (list(found) if isinstance(found, tuple) else found) == wanted, name


@pytest.mark.parametrize("id_", CODEC)
def test_the_reassignment_znode_is_kafkas(id_: str) -> None:
    when, then = ROWS[id_]["when"], ROWS[id_]["then"]
    if "encode" in when:
        entries = [(*key_named(name), tuple(ids)) for name, ids in when["encode"].items()]
        assert json.loads(codecs.encode_reassignments(entries)) == then["json"]
    elif "decode" in when:
        with pytest.raises(MalformedError, match="malformed"):
            codecs.decode_reassignments(REASSIGN_PARTITIONS, when["decode"].encode(), 0)
    else:
        # The tool refuses; whoever writes the znode by hand gets it back with nothing moved.
        rig = active(0, 1, foo=[[0, 1]])
        wanted = {key_named(n): ids for part in when["partitions"] for n, ids in part.items()}
        rig.world.ask_reassignment(wanted)
        rig.run()
        assert rig.world.reassignment is None
        assert rig.world.topics["foo"].version == 0


# --- flows -----------------------------------------------------------------------------------------------


def rig_of(given: Row) -> MachineHarness:
    world = World(*given["brokers"])
    rig = MachineHarness.active(world)
    topics: dict[str, dict[int, list[int]]] = {}
    for name, value in given.get("topics", {}).items():
        if isinstance(value, dict):
            topics[name] = {int(n): ids for n, ids in value.items()}
        else:
            topic, number = key_named(name)
            topics.setdefault(topic, {})[number] = value
    for name, assignment in topics.items():
        world.create_topic(name, assignment)
    rig.run()
    return rig


def keyed(named: Mapping[str, Any]) -> dict[Key, Any]:
    return {key_named(name): value for name, value in named.items()}


def listed(rig: MachineHarness, value: Any) -> dict[Key, Sequence[int]]:
    """What the legacy tool writes."""
    if isinstance(value, str):
        used = {int(b) for b in value.removeprefix("generated over ").split(",")}
        current = {(t, n): ids for t, i in rig.world.topics.items() for n, ids in i.partitions.items()}
        plan = generate(current, [b for b in rig.world.brokers.values() if b.id in used])
        return {key: list(ids) for key, ids in plan.items()}
    return {(e["topic"], e["partition"]): e["replicas"] for e in value["partitions"]}


def perform(rig: MachineHarness, action: Row, errors: dict[str, str]) -> None:
    match action["op"]:
        case "zk_create":
            rig.world.ask_reassignment(listed(rig, action["value"]))
            rig.run()
        case "api_reassign":
            errors.update(ask(rig, keyed(action["assignment"])))
        case "api_cancel":
            errors.update(ask(rig, dict.fromkeys(map(key_named, action["partitions"]))))
        case "api_mixed":
            cancelled = dict.fromkeys(map(key_named, action["cancel"]))
            errors.update(ask(rig, {**cancelled, **keyed(action["assignment"])}))
        case "list_reassignments":
            _expect_listed(rig, action)
        case "await" if "isr_includes" in action:
            join(rig, action["isr_includes"], "foo")
        case "await" | "expect":
            assert ongoing(rig)
        case "expect_absent_eventually":
            copy_all(rig)
            assert rig.world.reassignment is None
        case op:
            assert op in (
                "throttle",
                "set_throttle",
                "expect_throttle",
                "remove_throttle",
                "throttle_replica",
                "verify",
            )


def _expect_listed(rig: MachineHarness, action: Row) -> None:
    found = ongoing(rig)
    if "expect_keys" in action:
        assert list(found) == action["expect_keys"]
        return
    for name, wanted in action["expect"].items():
        move = found.pop(name)
        # The order within ``replicas`` is the target first, as the algebra has it.
        assert sorted(move.replicas) == sorted(wanted["replicas"])
        assert [list(move.adding), list(move.removing)] == [wanted["adding"], wanted["removing"]]
    assert found == {}


@pytest.mark.parametrize("id_", FLOWS)
def test_flow(id_: str) -> None:
    row = ROWS[id_]
    when, then = row["when"], row["then"]
    rig = rig_of(row["given"])
    actions = when.get("actions", [])
    if "api_reassign" in when:
        actions = [{"op": "api_reassign", "assignment": when["api_reassign"]}]
    if "list_reassignments" in when:
        missing, every = when["list_reassignments"]
        assert every == "all"
        assert ongoing(rig) == ongoing(rig, [key_named(missing)]) == then["reassignments"]
    errors: dict[str, str] = {}
    for action in actions:
        perform(rig, action, errors)
    assert {n: e for n, e in errors.items() if e != "NONE"} == then.get("errors", {})
    copy_all(rig)
    for key in rig.world.states:
        check_moved(rig, key, rig.world.topics[key[0]].partitions[key[1]])
    check(rig, then)


def check(rig: MachineHarness, then: Row) -> None:
    assert ongoing(rig) == {}
    assert rig.world.reassignment is None
    for name, wanted in {**then.get("assignment", {}), **then.get("replicas", {})}.items():
        replicas = wanted["replicas"] if isinstance(wanted, dict) else wanted
        assert assigned(rig, *key_named(name)) == (replicas, [], [])
    for name, wanted in then.get("assignment_set", {}).items():
        # Ours restores the order, too (reference, section 14, point 8).
        assert assigned(rig, *key_named(name))[0] == wanted
    for name, brokers in then.get("absent_from", {}).items():
        for broker_id in _listed(brokers):
            assert key_named(name) not in rig.world.folders.get(broker_id, set())
    if "brokers_used" in then:
        used = {b for info in rig.world.topics.values() for ids in info.partitions.values() for b in ids}
        assert sorted(used) == then["brokers_used"]


def _listed(brokers: int | Iterable[int]) -> Iterable[int]:
    return [brokers] if isinstance(brokers, int) else brokers


@pytest.mark.parametrize("id_", TOOL)
def test_what_the_tool_refuses_the_api_refuses(id_: str) -> None:
    row = ROWS[id_]
    wanted = next(iter(row["when"].values()))
    given = row["given"]
    rig = rig_of({"topics": {"foo": {"0": [0, 1], "1": [2, 3]}}, **given})
    (reply,) = rig.ask(request(keyed(wanted)))
    refused = {f"{a.topic}-{a.partition}": a.error.name for a in reply.partitions if a.error.name != "NONE"}
    assert (
        refused
        == {
            "K324": {"foo-1": "INVALID_REPLICA_ASSIGNMENT"},
            "K338": {"t-1": "UNKNOWN_TOPIC_OR_PARTITION"},
            "K339": {"t-0": "INVALID_REPLICA_ASSIGNMENT"},
            "K340": {"t-0": "INVALID_REPLICA_ASSIGNMENT"},
        }[id_]
    )


def test_a_broker_with_a_failed_disk_gets_new_replicas_as_new() -> None:
    """K146: without isNew it would not create them."""
    row = ROWS["K146"]
    rig = rig_of({"brokers": row["given"]["brokers"], "topics": {"filler-0": [1], "t-0": [0]}})
    rig.world.lost[1] = {("filler", 0)}
    rig.world.notify_log_dir(1)
    rig.run()
    rig.forget()
    rig.world.ask_reassignment({("t", 0): [1]})
    rig.run()
    assert "1 LISR t-0 leader 0 epoch 1 isr [0] new" in rig.lines("LISR")
    copy_all(rig)
    check_moved(rig, ("t", 0), [1])
    stored = rig.world.states[("t", 0)]
    wanted = row["then"]["state"]["t-0"]
    assert {name: getattr(stored, name) for name in wanted} == wanted
    assert rig.world.reassignment is None


def test_states_of_moves_are_told_apart() -> None:
    """K321: unknown partitions are refused, a cancelled move is done."""
    row = ROWS["K321"]
    first, _, second, _ = row["when"]["actions"]
    rig = rig_of({"brokers": [0, 1, 2, 3], "topics": row["given"]["replicas"]})
    errors: dict[str, str] = {}
    seen = []
    for action in (first, second):
        perform(rig, action, errors)
        seen.append({name: name not in ongoing(rig) for name in ("foo-0", "foo-1")})
    assert seen == row["then"]["done"]
    assert {n: e for n, e in errors.items() if e != "NONE"} == row["then"]["errors"]


def test_leaders_that_write_their_isr_themselves() -> None:
    """K312: brokers of a protocol without AlterPartition tell of it by notification, and the moves are completed."""
    row = ROWS["K312"]
    rig = rig_of(row["given"])
    wanted = keyed(row["when"]["api_reassign"])
    assert set(ask(rig, wanted).values()) == {"NONE"}
    for key in wanted:
        stored, partition = rig.world.states[key], rig.partition(*key)
        joined = [*stored.isr, *(b for b in partition.replicas if b not in stored.isr)]
        rig.world.shrink_or_grow(*key, joined)
    rig.world.notify_isr(*wanted)
    rig.run()
    assert row["then"]["ongoing"] == []
    check(rig, row["then"])
    for key, replicas in wanted.items():
        check_moved(rig, key, replicas)
