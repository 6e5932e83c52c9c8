"""Somebody else comes in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from broker_stub.control.replicas import Replica, Replicas, Role
from tests.provers.sim.actors.operators import Operator
from tests.provers.sim.checks.ledger import SCRIBBLE
from tests.provers.sim.checks.stored import Topic
from tests.provers.sim.environment.disk import Disk, Folder
from tests.provers.sim.odd.asking import Edits
from tests.provers.sim.plans.conflicts import KINDS, Conflicts
from tests.provers.sim.plans.faults import Faults
from tests.provers.sim.plans.plan import (
    FAULTS,
    OPERATIONS,
    PROVOCATIONS,
    RIVALS,
    VICTIM,
    WRITE,
    _conflict,
    _restored,
    _thwarted,
    plan,
)
from tests.provers.sim.plans.restores import Restores
from tests.provers.sim.simulate import simulate
from tests.provers.sim.zookeeper.ensemble import Ensemble
from tests.provers.sim.zookeeper.messages import Code, Create, Data, Delete, Get, Multi, Operation, Reply, Set

TOPIC = f"/brokers/topics/{VICTIM}"
STATE = f"{TOPIC}/partitions/0/state"
STATE_DATA = {"leader": 1, "leader_epoch": 3, "isr": [1, 2], "controller_epoch": 1, "version": 1}


class _Cluster(SimpleNamespace):
    """As much of one as conflicts look at."""

    def __init__(self) -> None:
        ensemble = Ensemble()
        connection = ensemble.connect(0, 60_000, 0)
        assert connection is not None
        ledger = SimpleNamespace(
            transactions=0,
            controller_epoch=1,
            elected={},
            topics={},
            states={},
            written={},
            scribbled=set(),
            touched=set(),
            restoring=None,
            misnaming=None,
            misnamed={},
            believed=set(),
        )

        def agreed(_: object) -> None:
            ledger.transactions += 1

        def ask(op: Operation) -> Any:
            ledger.transactions += 2  # a session begins, and ends
            ensemble.request(connection, op, 0)
            reply = connection.outbox.popleft()
            assert isinstance(reply, Reply)
            return reply.value if reply.code is Code.OK else None

        ensemble.on_agreed = agreed
        super().__init__(
            ledger=ledger,
            tampered=False,
            by_hand=False,
            brokers={1: None, 2: None},
            active=lambda: SimpleNamespace(name="controller-1", alive=False),
            ask_zookeeper=ask,
            trace_line=lambda _: None,
            node=ensemble.servers[0].tree.node,
            nodes_below=lambda path: sorted(
                node.children if (node := ensemble.servers[0].tree.node(path)) else ()
            ),
            oddities=SimpleNamespace(edits=Edits()),
            operator=SimpleNamespace(begin=lambda kind, arguments: None),
        )
        for path in ("/brokers", "/brokers/ids", "/brokers/topics", "/admin"):
            ask(Create(path))


@pytest.fixture
def cluster() -> Any:
    return _Cluster()


def stored(cluster: Any, path: str) -> tuple[Any, int]:
    found = cluster.ask_zookeeper(Get(path))
    assert isinstance(found, Data)
    return json.loads(found.data or b"null"), found.stat.version


def armed(cluster: Any, moment: str, kind: str, rival: str, count: int = 1, times: int = 1) -> Conflicts:
    conflicts = Conflicts(cluster)
    conflicts.begin(moment, kind, count, times, rival, "delete", ("t", False))
    return conflicts


def with_state(cluster: Any) -> None:
    cluster.ask_zookeeper(Create(TOPIC, json.dumps({"version": 2, "partitions": {"0": [1, 2]}}).encode()))
    for path in (f"{TOPIC}/partitions", f"{TOPIC}/partitions/0"):
        cluster.ask_zookeeper(Create(path))
    cluster.ask_zookeeper(Create(STATE, json.dumps(STATE_DATA).encode()))


def test_just_before_a_write_another_one_lands_and_the_write_has_the_wrong_version(cluster: Any) -> None:
    with_state(cluster)
    conflicts = armed(cluster, "write", "state", "shrunk")
    write = Multi((Set(STATE, b"ours", 0),))
    conflicts.arrives("controller-1", write)
    assert cluster.ask_zookeeper(write) == (Code.BAD_VERSION,)
    assert stored(cluster, STATE) == ({**STATE_DATA, "isr": [1]}, 1)
    assert cluster.tampered
    conflicts.arrives("controller-1", Multi((Set(STATE, b"ours", 1),)))
    assert conflicts.made == 1, "once was asked for"


def test_only_those_of_the_kind_count_and_only_those_of_the_cluster(cluster: Any) -> None:
    with_state(cluster)
    conflicts = armed(cluster, "write", "state", "touched", count=2, times=2)
    conflicts.arrives("producer-1", Set(STATE, b"", 0))
    conflicts.arrives("controller-1", Set(TOPIC, b"", 0))
    conflicts.served("controller-1", Get(STATE))
    for made in (0, 1, 2, 2):
        conflicts.arrives("broker-1", Set(STATE, b"", 0))
        assert conflicts.made == made


def test_just_after_a_read_what_was_read_is_no_more(cluster: Any) -> None:
    conflicts = armed(cluster, "read", "topic", "renewed")
    before = cluster.node(TOPIC).czxid
    conflicts.served("controller-1", Get(TOPIC))
    assert cluster.node(TOPIC).czxid > before
    assert cluster.by_hand


def test_what_was_put_down_there_goes_too(cluster: Any) -> None:
    with_state(cluster)
    armed(cluster, "write", "topic", "removed").arrives("controller-1", Delete(TOPIC))
    assert cluster.node(TOPIC) is None


def test_a_state_is_created_a_moment_before(cluster: Any) -> None:
    cluster.ask_zookeeper(Create(TOPIC, b"{}"))
    parents = (Create(f"{TOPIC}/partitions"), Create(f"{TOPIC}/partitions/0"))
    ours = Multi((*parents, Create(STATE, json.dumps(STATE_DATA).encode())))
    armed(cluster, "write", "state", "created_first").arrives("controller-1", ours)
    assert stored(cluster, STATE)[0]["leader"] in (1, 2)
    assert cluster.ask_zookeeper(ours)[0] is Code.NODE_EXISTS


def test_a_topic_of_clients_is_never_removed(cluster: Any) -> None:
    cluster.ask_zookeeper(Create("/brokers/topics/t0", b"{}"))
    conflicts = armed(cluster, "write", "topic", "removed")
    conflicts.arrives("controller-1", Set("/brokers/topics/t0", b"", 0))
    assert (conflicts.made, cluster.by_hand) == (0, False)
    conflicts.forget()
    conflicts.arrives("controller-1", Set(TOPIC, b"", 0))
    assert conflicts.made == 0, "everything is mended"


def test_a_list_is_replaced_also_one_that_does_not_decode(cluster: Any) -> None:
    listed: list[tuple[str, int, list[int]]] = []
    cluster.tools = SimpleNamespace(listed=lambda *move: listed.append(move))
    cluster.ledger.topics = {"t0": None}
    cluster.ask_zookeeper(Create("/brokers/ids/2"))
    path = "/admin/reassign_partitions"
    cluster.ask_zookeeper(Create(path, SCRIBBLE))
    armed(cluster, "write", "reassignment", "another_request").arrives("controller-1", Delete(path, 0))
    assert listed == [("t0", 0, [2])]
    assert stored(cluster, path)[0]["partitions"] == [{"topic": "t0", "partition": 0, "replicas": [2]}]


def test_an_answer_is_lost_of_who_writes(cluster: Any) -> None:
    lost: list[tuple[str, str]] = []
    cluster.faults = SimpleNamespace(lose_commit=lambda *what: lost.append(what))
    conflicts = armed(cluster, "write", "deletion", "unanswered", times=2)
    for client in ("controller-2", "controller-1", "controller-1"):
        conflicts.arrives(client, Multi((Delete("/admin/delete_topics/t"),)))
    assert lost == [("controller-2", "reply"), ("controller-1", "reply")]


def test_who_keeps_a_znode_busy_makes_it_first(cluster: Any) -> None:
    for path in ("/config", "/config/topics"):
        cluster.ask_zookeeper(Create(path))
    path = "/config/topics/t"
    conflicts = armed(cluster, "write", "config", "busy", times=2)
    for version in (0, 1):
        conflicts.arrives("controller-1", Create(path, b"ours"))
        assert stored(cluster, path) == ({"version": 1, "config": {}}, version)


def test_each_piece_of_litter_is_another_one(cluster: Any) -> None:
    """As a controller that deletes a topic finds the former ones, and deletes them."""
    conflicts = armed(cluster, "write", "topic", "littered", times=3)
    for count in (1, 2, 3):
        conflicts.arrives("controller-1", Delete(TOPIC))
        assert len(cluster.node(TOPIC).children) == count


def test_a_maintenance_is_taken_over_by_an_operator(cluster: Any) -> None:
    cluster.ask_zookeeper(Create("/controllers"))
    path = "/controllers/maintenance"
    cluster.ask_zookeeper(Create(path, b'{"version":1,"automatic":true}'))
    conflicts = armed(cluster, "write", "ours", "taken_over")
    conflicts.arrives("controller-1", Set("/controllers/forgotten", b"", 0))
    assert conflicts.made == 0
    conflicts.arrives("controller-1", Set(path, b"", 0))
    assert stored(cluster, path) == ({"version": 1, "automatic": False}, 1)


# --- what was there before -----------------------------------------------------------------------------------


@pytest.fixture
def with_history(cluster: Any) -> Any:
    """Of a state there were two others before; the topic has an id, and a controller leads."""
    with_state(cluster)
    former = [{**STATE_DATA, "leader_epoch": epoch} for epoch in (1, 2)]
    cluster.ledger.written = {(VICTIM, 0): [json.dumps(data).encode() for data in (*former, STATE_DATA)]}
    cluster.ledger.states = {(VICTIM, 0): SimpleNamespace(version=0, leader=1)}
    cluster.ledger.topics = {VICTIM: Topic("its-own", {0: (1, 2)})}
    cluster.ask_zookeeper(
        Set(TOPIC, b'{"version": 3, "topic_id": "its-own", "partitions": {"0": [1, 2]}}', 0)
    )
    cluster.ask_zookeeper(Create("/controller", b"{}"))
    return cluster


@pytest.mark.parametrize(("ago", "epoch"), [(1, 2), (2, 1), (3, 3)])
@pytest.mark.parametrize("when", ["now", "between"])
def test_a_state_is_put_back_as_it_was_some_versions_ago(
    with_history: Any, ago: int, epoch: int, when: str
) -> None:
    Conflicts(with_history).restore(when, "put_back_state", VICTIM, 0, ago, ())
    done = epoch != STATE_DATA["leader_epoch"]
    assert stored(with_history, STATE) == ({**STATE_DATA, "leader_epoch": epoch}, int(done))
    assert (with_history.node("/controller") is None) == (when == "between" and done)
    assert with_history.ledger.restoring is None


def test_a_state_is_put_back_just_before_a_write_unless_it_names_who_is_not_assigned(
    with_history: Any,
) -> None:
    conflicts = Conflicts(with_history)
    conflict = (WRITE, "state", 1, 2, "put_back_state", "delete", ("t", False))
    conflicts.restore("write", "put_back_state", VICTIM, 0, 1, conflict)
    with_history.ledger.topics = {VICTIM: Topic("its-own", {0: (1, 3)})}
    conflicts.arrives("controller-1", Multi((Set(STATE, b"ours", 0),)))
    assert (conflicts.made, stored(with_history, STATE)[1]) == (0, 0)
    with_history.ledger.topics = {VICTIM: Topic("its-own", {0: (1, 2)})}
    conflicts.arrives("controller-1", Multi((Set(STATE, b"ours", 0),)))
    assert (conflicts.made, stored(with_history, STATE)[1]) == (1, 1)


def test_a_topic_loses_its_id_and_gets_it_back_where_nobody_alive_knows_it(with_history: Any) -> None:
    conflicts = Conflicts(with_history)
    conflicts.restore("now", "unnamed", VICTIM, 0, 1, ())
    assert "topic_id" not in stored(with_history, TOPIC)[0]
    conflicts.restore("between", "misnamed", VICTIM, 0, 1, ())
    assert stored(with_history, TOPIC)[0]["topic_id"] not in ("", "its-own")
    assert with_history.node("/controller") is None
    with_history.ledger.misnamed = {VICTIM: True}
    conflicts.forget()
    assert stored(with_history, TOPIC)[0]["topic_id"] != "its-own", "who leads knows it"
    with_history.ledger.misnamed = {VICTIM: False}
    done: list[object] = []
    disks = [Disk(folders={(VICTIM, 0): Folder("its-own")}), Disk(folders={(VICTIM, 0): Folder("other")})]
    with_history.brokers = {
        id_: SimpleNamespace(id=id_, disks=[disk], kill=partial(done.append, id_))
        for id_, disk in enumerate(disks, start=1)
    }
    with_history.data_lost = lambda *what: done.append(what)
    with_history.ledger.excuse = done.append
    conflicts.forget()
    assert stored(with_history, TOPIC)[0]["topic_id"] == "its-own"
    assert done == [1], "who leads proposes nothing any more"
    with_history.ledger.misnamed = {}
    conflicts.forget()
    assert done[1:] == [2, (2, [(VICTIM, 0)]), (VICTIM, 0)]
    assert [len(disk.folders) for disk in disks] == [1, 0]


def test_where_an_older_state_was_believed_who_refuses_to_lead_is_restarted_and_others_begin_anew(
    cluster: Any,
) -> None:
    killed: list[int] = []
    disks = {id_: Disk(folders={("t", 0): Folder("id")}) for id_ in (1, 2)}

    def broker(id_: int, role: Role) -> SimpleNamespace:
        replicas = Replicas(id_, [Replica("t", 0, role=role)])
        running = SimpleNamespace(_handlers=SimpleNamespace(replicas=replicas))
        return SimpleNamespace(id=id_, broker=running, disks=[disks[id_]], kill=partial(killed.append, id_))

    cluster.brokers = {1: broker(1, Role.OFFLINE), 2: broker(2, Role.FOLLOWER)}
    cluster.ledger.states = {("t", 0): SimpleNamespace(leader=1)}
    cluster.ledger.excuse, cluster.data_lost = lambda *_: None, lambda *_: None
    conflicts = Conflicts(cluster)
    conflicts.forget()
    assert not killed, "nothing was put back"
    cluster.ledger.believed = {("t", 0)}
    conflicts.forget()
    assert killed == [1]
    cluster.brokers[1] = broker(1, Role.LEADER)
    for _ in range(2):
        conflicts.forget()
    assert killed == [1, 2], "once"
    assert [len(disks[id_].folders) for id_ in (1, 2)] == [1, 0]


def test_all_that_plans_name_is_there() -> None:
    kinds = {what.rpartition(" ")[2] for what in RIVALS}
    assert kinds == KINDS.keys()
    for rivals, provocations in RIVALS.values():
        assert [name for name in rivals if not hasattr(Conflicts, name)] == []
        assert set(provocations) <= {*OPERATIONS, *PROVOCATIONS, *FAULTS}
    assert [name for name in PROVOCATIONS if not hasattr(Operator, name)] == []
    assert [name for name in FAULTS if not hasattr(Faults, name)] == []
    options = plan(1).options
    restored = [_restored(Random(seed), options) for seed in range(300)]
    assert {what for _, what, *_ in restored} == {"put_back_state", "unnamed", "misnamed"}
    assert [what for _, what, *_ in restored if not hasattr(Restores, what)] == []
    drawn = [_conflict(Random(seed), options) for seed in range(300)]
    assert {kind for _, kind, *_ in drawn} == kinds
    thwarted = [_thwarted(Random(seed), options) for seed in range(300)]
    assert {kind for _, kind, *_ in thwarted} == kinds - {"broker"}
    assert {(moment, count, rival) for moment, _, count, _, rival, *_ in thwarted} == {
        (WRITE, 1, "touched"),
        (WRITE, 1, "unanswered"),
    }


@pytest.mark.slow
def test_in_runs_they_come_in_between() -> None:
    stories: Callable[[int], list[str]] = lambda seed: simulate(plan(seed), telling=True).story  # noqa: E731
    seeds = [seed for seed in range(1, 40) if plan(seed).options.conflict][:8]
    assert any("--- in between: " in line for seed in seeds for line in stories(seed))
