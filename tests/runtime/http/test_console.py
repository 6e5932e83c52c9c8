"""The console without a browser: what its files may contain, what is counted, and what the API answers."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import click
import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request
from kazoo.client import KazooClient

from controller.cli.pctl.main import main as pctl
from controller.core import znode_paths
from controller.core.cluster.quarantine import Quarantine, SubjectKind, Suspect
from controller.core.model import Cluster, Partition, PartitionState, Topic
from controller.planning.cluster_health import Unfinished, Wrong
from controller.planning.context import take
from controller.planning.scenarios import Terms, broker_loss
from controller.runtime.config import Settings
from controller.runtime.http.console.files import HEADERS, INDEX, POLICY, File, files, sender
from controller.runtime.http.console.survey import Counts, Survey, tiles, total
from controller.runtime.http.console.views import COMMANDS, explain_command, partition_row
from controller.runtime.http.server import start_http
from controller.runtime.kafka.security.setup import access
from controller.runtime.rpc.translate.plan_data import plan_data
from proto.gen import admin_service_pb2 as pb
from proto.security.authorization import AllowAll
from proto.security.tokens import line_of, new_token
from proto.statelog.schema import QUIET
from tests.support.core.world import a_broker, state
from tests.support.runtime.admins import ask, move
from tests.support.runtime.inspections import three
from tests.support.runtime.sessions import until

# --- files ---------------------------------------------------------------------------------------------------

TEXTS = {path: file.body.decode() for path, file in files().items()}
SCRIPTS = {path: text for path, text in TEXTS.items() if path.endswith(".js")}
#: Ways from a text to markup or code. `style.width = ...` is none: the policy judges markup.
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser|createContextualFragment|srcdoc|\beval\b"
    r"|new Function|setTimeout\(\s*[\"'`]|setAttribute\(\s*[\"']on|javascript:"
)


def test_the_policy_lets_in_nothing_inline_and_nothing_from_elsewhere() -> None:
    assert "unsafe" not in POLICY
    assert "default-src 'none'" in POLICY
    assert "frame-ancestors 'none'" in POLICY
    # Also for browsers that know nothing of policies.
    assert {name: HEADERS[name] for name in ("X-Frame-Options", "X-Content-Type-Options")} == {
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
    }
    page = TEXTS["/ui"]
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)
    named = re.findall(r"(?:src|href)=\"([^#\"]+)\"", page)
    assert named
    assert set(named) <= TEXTS.keys()


@pytest.mark.parametrize("path", SCRIPTS)
def test_no_text_becomes_markup(path: str) -> None:
    assert not SINKS.search(SCRIPTS[path])
    imported = re.findall(r"from \"\./([\w.]+)\"", SCRIPTS[path])
    assert {f"/ui/{name}" for name in imported} <= SCRIPTS.keys()


def test_every_script_is_used() -> None:
    imported = {name for text in SCRIPTS.values() for name in re.findall(r"from \"\./([\w.]+)\"", text)}
    assert {path.removeprefix("/ui/") for path in SCRIPTS} == imported | {"main.js"}
    assert TEXTS["/ui"] == TEXTS["/ui/"]
    assert f"/ui/{INDEX}" not in TEXTS


@pytest.mark.parametrize("text", [*COMMANDS.values(), explain_command("t", 3)])
def test_the_commands_on_the_pages_exist(text: str) -> None:
    program, *words = text.split()
    assert program == "pctl"
    found: click.Command = pctl
    while (
        words
        and isinstance(found, click.Group)
        and (inner := found.get_command(click.Context(found), words[0]))
    ):
        found, words = inner, words[1:]
    options = {name for parameter in found.params for name in parameter.opts}
    arguments = [p for p in found.params if isinstance(p, click.Argument)]
    assert found is not pctl
    assert {word for word in words if word.startswith("-")} <= options
    assert len([word for word in words if not word.startswith("-")]) <= len(arguments)


def test_each_finding_has_a_command() -> None:
    assert set(COMMANDS) | {Wrong.CONTROLLER_SILENT} == {*Wrong, *Unfinished}
    ends: dict[Wrong | Unfinished, str] = {
        Wrong.PAUSED: "pctl maintenance resume",
        Wrong.MAINTENANCE: "pctl maintenance leave",
        Wrong.FROZEN: "pctl unfreeze",
        # These show it.
        Wrong.NO_CONTROLLER: "pctl controllers",
        Wrong.BROKERS_GONE: "pctl brokers",
        Wrong.UNAVAILABLE: "pctl partitions --unavailable",
        Wrong.UNDER_MIN_ISR: "pctl partitions --under-min-isr",
        Wrong.UNDER_REPLICATED: "pctl partitions --under-replicated",
        Wrong.UNREADABLE: "pctl cluster",
        Wrong.LOG_NOT_WRITTEN: "pctl health",
        Wrong.QUARANTINED: "pctl quarantine list",
        Wrong.PUSH_PROBLEM: "pctl brokers",
        Unfinished.PUSHES: "pctl brokers",
        Unfinished.REASSIGNMENTS: "pctl reassign list",
        Unfinished.SHUTDOWNS: "pctl maintenance show",
        Unfinished.DELETIONS: "pctl topics list",
    }
    assert {what: COMMANDS[what] for what in ends} == ends
    assert explain_command("a b'; rm", 0) == "pctl explain partition 'a b'\"'\"'; rm' 0"


async def test_a_browser_asks_each_time_whether_a_file_is_still_the_same() -> None:
    send = sender(File(b"x", "text/css", '"tag"'))
    for known, status in (("", 200), ('W/"tag"', 304), ('"a", "tag"', 304)):
        answer = await send(make_mocked_request("GET", "/ui/x", headers={"If-None-Match": known}))
        assert (answer.status, answer.headers["Cache-Control"], answer.headers["ETag"]) == (
            status,
            "no-cache",
            '"tag"',
        )


# --- counts --------------------------------------------------------------------------------------------------


def a_cluster() -> Cluster:
    cluster = Cluster(1, 7)
    cluster.brokers.update({b: a_broker(b, 50 + b) for b in (1, 2)})
    topic = Topic("t")
    for number, leadership in enumerate(
        (state(1, (1, 2), 3, 5), state(1, (1,), 3, 5), state(-1, (9,), 3, 5), None)
    ):
        partition = Partition(topic, number, (9, 1) if number == 2 else (1, 2))
        partition.leadership, partition.state = leadership, PartitionState.ONLINE
        topic.partitions[number] = partition
    topic.partitions[0].adding = (2,)
    cluster.add_topic(topic)
    return cluster


def test_each_partition_counts_once_under_the_worst() -> None:
    cluster = a_cluster()
    survey = Survey(cluster.brokers)
    counts = [survey.count(p, min_isr=2) for p in cluster.partitions()]
    assert counts == [
        Counts(1, moving=1),
        Counts(1, under_min_isr=1),
        Counts(1, offline=1),
        Counts(1, offline=1),
    ]
    assert total(counts) == Counts(4, offline=2, under_min_isr=1, moving=1)
    assert {id_: (b.replicas, b.led, b.out_of_sync) for id_, b in survey.brokers.items()} == {
        1: (4, 2, 2),
        2: (3, 0, 2),
        9: (1, 0, 0),
    }
    assert survey.tally.lacking == {9: 1}
    rows = [partition_row(cluster, p, 2)["worst"] for p in cluster.partitions()]
    assert rows == [None, "under_min_isr_partitions", "unavailable_partitions", "unavailable_partitions"]


def test_partitions_that_are_being_deleted_are_not_counted_as_wrong() -> None:
    cluster = a_cluster()
    cluster.topics_to_delete.add("t")
    survey = Survey(cluster.brokers)
    counted = [survey.count(p, min_isr=2, deleting=True) for p in cluster.partitions()]
    assert total(counted) == Counts(4, moving=1)
    assert survey.tally.lacking == {9: 1}, "that broker has to delete it"
    assert [partition_row(cluster, p, 2)["worst"] for p in cluster.partitions()] == [None] * 4


@pytest.mark.parametrize(
    ("cells", "tiles_max", "made"), [(0, 5, 0), (5, 5, 5), (6, 5, 3), (100_000, 1200, 1191)]
)
def test_tiles_are_few_and_have_every_cell(cells: int, tiles_max: int, made: int) -> None:
    found = tiles([(n, Counts(1, offline=n % 2)) for n in range(cells)], tiles_max)
    assert len(found) == made <= tiles_max
    assert sum(tile.size for tile in found) == cells
    assert total([tile.counts for tile in found]) == (
        Counts(cells, offline=cells // 2) if cells else Counts()
    )
    assert all(a.last < b.first for a, b in itertools.pairwise(found))  # type: ignore[operator]


# --- the API -------------------------------------------------------------------------------------------------

RULES = """
[[allow]]
principals = ["User:reader", "User:half"]
operations = ["DESCRIBE"]
resources = ["cluster"]
[[allow]]
principals = ["User:reader"]
operations = ["DESCRIBE"]
resources = ["topic:*"]
[[allow]]
principals = ["User:half"]
operations = ["DESCRIBE"]
resources = ["topic:u"]
"""


class Pages:
    """Asks the API of one controller with a token."""

    def __init__(self, port: int, tokens: dict[str, str]) -> None:
        self._base, self._tokens = f"http://127.0.0.1:{port}", tokens

    def client(self, who: str) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(self._base, headers={"Authorization": f"Bearer {self._tokens[who]}"})

    async def get(self, path: str, who: str = "reader") -> tuple[int, Any]:
        async with self.client(who) as client, client.get(f"/ui/api/{path}") as answer:
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
            assert answer.headers["Cache-Control"] == "no-store"
            return answer.status, await answer.json()


@asynccontextmanager
async def pages(connect: str, zk: KazooClient, directory: Path) -> AsyncIterator[tuple[Pages, Any]]:
    tokens = {"reader": new_token(), "half": new_token()}
    file = directory / "tokens"
    file.write_text("\n".join(line_of(name, token) for name, token in tokens.items()))
    file.chmod(0o600)
    (directory / "rules").write_text(RULES)
    guarded = access(
        Settings(state_log_dir=directory, authorizer_file=directory / "rules", bearer_tokens_file=file), None
    )
    async with three(connect, zk, directory) as (active, _):
        active.daemon.authorizer, active.daemon.callers = guarded.authorizer, guarded.callers
        server, port = await start_http(active.daemon, "127.0.0.1", 0)
        try:
            yield Pages(port, tokens), active
        finally:
            await server.cleanup()


@pytest.mark.slow
async def test_what_the_pages_are_told(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with pages(zookeeper, zk, tmp_path) as (asked, active):
        _, known = await asked.get("overview")
        assert (known["state"]["role"], known["state"]["active"]) == ("active", True)
        cluster = known["cluster"]
        assert cluster["counts"]["partitions"] == 3
        assert [b["id"] for b in cluster["brokers"]] == [1, 2, 3]
        _, heat = await asked.get("heat")
        assert [(t["first"], t["partitions"]) for t in heat["tiles"]] == [("t", 2), ("u", 1)]
        _, heat = await asked.get("heat?topic=t&from=1")
        assert [(t["first"], t["last"]) for t in heat["tiles"]] == [(1, 1)]
        _, found = await asked.get("topics?after=t")
        assert [t["name"] for t in found["topics"]] == ["u"]
        _, found = await asked.get("topic?topic=t&limit=1")
        assert ([r["replicas"] for r in found["rows"]], found["more"]) == ([[1, 2, 3]], True)
        _, found = await asked.get("partition?topic=t&partition=1")
        assert found["row"]["leader"] == active.partition("t", 1).leadership.leader
        assert [rule["permitted"] for rule in found["why"]["rules"]] == [True, False, True]
        _, found = await asked.get("broker?id=2")
        assert found["words"][0].startswith("broker 2: ")
        _, found = await asked.get("audit")
        assert [b["broker_id"] for b in found["brokers"]] == [1, 2, 3]
        _, found = await asked.get("history?kinds=leader&topic=u&limit=5")
        assert [(r["kind"], r["topic"]) for r in found["records"]] == [("leader", "u")]


#: Names or numbers, or tiles as (first, last, size, partitions), and whether there are more or of how many. One of the
#: two partitions of t is in trouble, and the one of u is not.
LISTED: dict[str, tuple[Any, bool | int]] = {
    "topics": (["t", "u"], False),
    "topics?limit=1": (["t"], True),
    "topics?limit=2": (["t", "u"], False),
    "topics?match=U": (["u"], False),
    "topics?after=u": ([], False),
    "topics?after=s": (["t", "u"], False),
    "topics?trouble=1": (["t"], False),
    "topics?trouble=0": (["t", "u"], False),
    "heat": ([("t", "t", 1, 2), ("u", "u", 1, 1)], 2),
    "heat?tiles=1": ([("t", "u", 2, 3)], 2),
    "heat?from=u": ([("u", "u", 1, 1)], 1),
    "heat?to=t": ([("t", "t", 1, 2)], 1),
    "heat?topic=t": ([(0, 0, 1, 1), (1, 1, 1, 1)], 2),
    "heat?topic=t&from=1": ([(1, 1, 1, 1)], 1),
    "heat?topic=t&to=0": ([(0, 0, 1, 1)], 1),
    "heat?topic=t&tiles=1": ([(0, 1, 2, 2)], 2),
    "topic?topic=t": ([0, 1], False),
    "topic?topic=t&limit=1": ([0], True),
    "topic?topic=t&limit=2": ([0, 1], False),
    "topic?topic=t&after=0": ([1], False),
    "topic?topic=t&after=-1": ([0, 1], False),
    "topic?topic=t&trouble=1": ([1], False),
    "topic?topic=u&trouble=1": ([], False),
}


@pytest.mark.slow
async def test_lists_are_as_long_as_is_asked_for(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    zk.create("/config/topics/t", b'{"version":1,"config":{"min.insync.replicas":"2"}}', makepath=True)
    async with pages(zookeeper, zk, tmp_path) as (asked, active):
        rules, active.daemon.authorizer = active.daemon.authorizer, AllowAll()
        (answer,) = (await active.caller.alter(active.request(2, active.proposal([2], number=1)))).partitions
        assert (answer.error_code, answer.isr) == (0, [2])
        active.daemon.authorizer = rules
        assert (await asked.get("topic?topic=t"))[1]["min_isr"] == 2, "it is read by whoever asks first"
        for path, (wanted, more) in LISTED.items():
            status, found = await asked.get(path)
            assert status == 200, found
            if "topics" in found:
                shown = [row["name"] for row in found["topics"]]
            elif "tiles" in found:
                shown = [(t["first"], t["last"], t["size"], t["partitions"]) for t in found["tiles"]]
            else:
                shown = [row["partition"] for row in found["rows"]]
            assert (path, shown, found.get("more", found.get("of"))) == (path, wanted, more)
        _, found = await asked.get("topic?topic=t")
        assert {name: found[name] for name in ("name", "id", "partitions", "min_isr", "deleting")} == {
            "name": "t",
            "id": active.partition("t").topic.id,
            "partitions": 2,
            "min_isr": 2,
            "deleting": False,
        }
        _, found = await asked.get("partition?topic=t&partition=1")
        assert (found["min_isr"], found["row"]["worst"], found["command"]) == (
            2,
            "under_min_isr_partitions",
            "pctl explain partition t 1",
        )
        assert (await asked.get("topic?topic=u"))[1]["min_isr"] == 1
        async with asked.client("reader") as client, client.get("/metrics") as scraped:
            counted = "kafka_controller_kafkacontroller_globalpartitioncount 3.0"
            assert counted in (await scraped.text()).splitlines()
        async with asked.client("reader") as client, client.get("/") as index:
            assert "/metrics  for Prometheus" in (await index.text()).splitlines()
        for path in ("topic?topic=absent", "heat?topic=absent", "partition?topic=t&partition=2"):
            status, found = await asked.get(path)
            assert (path, status, found["error"]) == (path, 404, "UNKNOWN_TOPIC_OR_PARTITION")


@pytest.mark.slow
async def test_records_are_listed_newest_first(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with pages(zookeeper, zk, tmp_path) as (asked, _):

        async def listed(query: str) -> list[tuple[str, Any, Any]]:
            status, found = await asked.get(f"history?{query}")
            assert status == 200, found
            return [(r["kind"], r.get("topic"), r.get("partition")) for r in found["records"]]

        leaders = [("leader", "u", 0), ("leader", "t", 1), ("leader", "t", 0)]
        assert sorted(await listed("kinds=leader")) == sorted(leaders)
        assert await listed("kinds=leader&topic=t&partition=0") == [("leader", "t", 0)]
        assert len(await listed("kinds=leader&topic=t")) == 2
        assert [r[0] for r in await listed("broker=3&kinds=broker")] == ["broker"]
        assert not await listed("broker=0&kinds=broker")
        everything = await listed("limit=500")
        assert {"leader", "broker"} < {kind for kind, _, _ in everything}
        assert not {kind for kind, _, _ in everything} & QUIET
        assert await listed("limit=2") == everything[:2]
        _, found = await asked.get("history?limit=2")
        newest, second = (r["ts"] for r in found["records"])
        assert (newest >= second, found["more"], found["forgotten"]) == (True, True, False)
        assert 0 < int(found["oldest_us"]) <= datetime.fromisoformat(second).timestamp() * 1e6 + 1
        assert not await listed(f"since_us={time.time_ns() // 1000 + 3_600_000_000}")
        assert not await listed("until_us=1")
        assert (await asked.get("broker?id=2"))[1]["command"] == "pctl explain broker 2"


@pytest.mark.slow
async def test_what_would_happen_is_planned_as_for_pctl(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with pages(zookeeper, zk, tmp_path) as (asked, active):
        machine = active.term.machine
        snapshot = take(machine.cluster, machine.settings).snapshot({}, {}, {})
        plan = plan_data(broker_loss(snapshot, [3], Terms()), writes=False)
        _, found = await asked.get("plan?scenario=broker-loss&brokers=3")
        assert found["safe"] is plan["safe"] is False
        (step,) = found["steps"]
        (wanted,) = json.loads(msgspec.json.encode(plan["steps"]))
        assert {name: step[name] for name in wanted} == wanted
        assert (step["offline"], step["counts"]["offline"]) == (["u-0"], 1)
        _, found = await asked.get("plan?scenario=rolling-restart")
        assert [s["brokers"] for s in found["steps"]] == [[1], [2], [3]]
        _, found = await asked.get("plan?scenario=drain&brokers=1")
        assert found["steps"][0]["leaders"]["1"] == {"before": 1, "after": 0}
        _, found = await asked.get("stoppable?brokers=3")
        assert (found["stoppable"], {r["reason"] for r in found["reasons"]}) == (
            False,
            {"offline", "under_min_isr"},
        )
        status, found = await asked.get("vacate?broker=3")
        assert (status, found["message"][:21]) == (400, "t-0: no broker is lef")
        assert (await asked.get("vacate?broker=9"))[1] == {"moves": [], "of": 0}
        _, found = await asked.get("work")
        assert (found["reassignments"], found["deletions_count"]) == ([], 0)


@pytest.mark.slow
async def test_a_moment_of_the_past_is_as_it_was(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with pages(zookeeper, zk, tmp_path) as (asked, active):
        before_us = time.time_ns() // 1000
        await asyncio.to_thread(zk.delete, znode_paths.broker_path(3))
        await until(lambda: 3 not in active.term.machine.cluster.brokers, "broker 3 is gone")
        await until(lambda: active.partition("u", 0).leadership.leader == -1, "u-0 has no leader")
        _, scale = await asked.get("scale")
        assert int(scale["from_us"]) <= before_us <= int(scale["until_us"])
        assert sum(scale["counts"]["brokers"]) == 4
        _, first = await asked.get(f"moment?at_us={scale['from_us']}")
        assert (first["brokers"], first["counts"]["partitions"], first["tiles"]) == ([], 0, [])
        _, then = await asked.get(f"moment?at_us={before_us}")
        assert (then["brokers"], then["gone"], then["counts"]["offline"]) == ([1, 2, 3], [], 0)
        _, now = await asked.get(f"moment?at_us={time.time_ns() // 1000}")
        assert (now["brokers"], now["gone"], now["counts"]["offline"]) == ([1, 2], [3], 1)
        assert [t["first"] for t in then["tiles"]] == ["t", "u"]
        _, half = await asked.get(f"moment?at_us={before_us}", "half")
        assert [t["first"] for t in half["tiles"]] == ["u"]
        for wrong in (int(scale["from_us"]) - 1, before_us + 3_600_000_000):
            status, found = await asked.get(f"moment?at_us={wrong}")
            assert (status, found["error"]) == (400, "INVALID_REQUEST")


@pytest.mark.slow
async def test_what_is_under_way_and_what_is_wrong_is_shown(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with pages(zookeeper, zk, tmp_path) as (asked, active):
        cluster = active.term.machine.cluster
        active.daemon.authorizer, rules = AllowAll(), active.daemon.authorizer
        endpoint = active.daemon.grpc_endpoint
        moved = pb.AlterPartitionReassignmentsRequest(partitions=[move("u", 0, [1, 2])], reason="r")
        assert not (await ask(endpoint, "AlterPartitionReassignments", moved)).error_code
        await until(lambda: active.partition("u").adding == (1, 2), "the move")
        await asyncio.to_thread(zk.delete, znode_paths.broker_path(2))
        await until(lambda: 2 not in cluster.brokers, "broker 2 is gone")
        deleted = pb.DeleteTopicsRequest(topics=[pb.DeletableTopic(name="t")])
        assert not (await ask(endpoint, "DeleteTopics", deleted)).error_code
        await until(lambda: "t" in cluster.topics_to_delete, "the deletion is begun")
        cluster.offline_dirs[1] = {active.partition("t", 0)}
        active.daemon.authorizer = rules
        _, found = await asked.get("work")
        (shown,) = found["reassignments"]
        assert {name: shown[name] for name in ("topic", "partition", "adding", "removing", "queued")} == {
            "topic": "u",
            "partition": 0,
            "adding": [1, 2],
            "removing": [3],
            "queued": False,
        }
        isr = active.partition("u").leadership.isr
        assert (shown["replicas"], shown["synced"]) == ([1, 2, 3], len({1, 2} & set(isr)))
        assert "target 2 is not in the ISR [3]: its broker is not registered" in shown["why"]
        (deletion,) = found["deletions"]
        assert (deletion["topic"], deletion["replicas"], found["deletions_count"]) == ("t", 6, 1)
        assert deletion["phase"] != "deleted"
        await until(active.idle, "nothing is being sent")
        _, found = await asked.get("overview")
        cluster_ = found["cluster"]
        shown_brokers = {b["id"]: b for b in cluster_["brokers"]}
        assert (shown_brokers[2]["gone"], shown_brokers[2]["rack"], shown_brokers[2]["endpoints"]) == (
            True,
            None,
            [],
        )
        assert {b: shown_brokers[b]["failed_disk_replicas"] for b in (1, 2, 3)} == {1: 1, 2: 0, 3: 0}
        assert {b["may_stop"] for b in shown_brokers.values()} == {False}
        assert (cluster_["well"], cluster_["counts"]["deleting"]) == (False, 1)
        assert Wrong.BROKERS_GONE.value in {f["what"] for f in cluster_["findings"]}
        assert {f["what"] for f in cluster_["unfinished"]} >= {
            Unfinished.REASSIGNMENTS.value,
            Unfinished.DELETIONS.value,
        }
        row = partition_row(cluster, active.partition("t", 0), 1)
        assert row["offline"] == [1, 2]


@pytest.mark.slow
async def test_what_is_in_quarantine_is_called_so(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    """For the controller its znode is as one that cannot be read."""
    async with pages(zookeeper, zk, tmp_path) as (asked, active):
        raised = Suspect(SubjectKind.TOPIC, "t", "TopicChange", "KeyError: 7", "d", 1, 1, 0, quarantined=True)
        active.term.quarantine = Quarantine({"topic/t": raised})
        active.term.machine.cluster.problems.update(active.term.quarantine.paths())
        _, found = await asked.get("overview")
        findings = {f["what"]: f["text"] for f in found["cluster"]["findings"]}
        assert findings[Wrong.QUARANTINED.value] == "in quarantine: topic/t"
        assert Wrong.UNREADABLE.value not in findings


@pytest.mark.slow
async def test_a_log_that_cannot_be_written_is_wrong(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with pages(zookeeper, zk, tmp_path) as (asked, active):
        log = active.daemon.state_log
        assert log.flush()
        (tmp_path / "state-change.jsonl").unlink()
        (tmp_path / "state-change.jsonl").mkdir()
        log.append([{"kind": "log", "to": "lost"}], cause="A")
        assert log.flush()
        _, found = await asked.get("overview")
        findings = {f["what"]: f["text"] for f in found["cluster"]["findings"]}
        text = findings[Wrong.LOG_NOT_WRITTEN.value]
        lost = re.fullmatch(
            r"controller 1 cannot write its state-change log \(not a regular file\): (\d+) records? lost",
            text,
        )
        assert lost is not None, text
        # More may be lost since.
        assert 0 < int(lost[1]) <= log.dropped


@pytest.mark.slow
async def test_controllers_tell_of_themselves(server: Pages) -> None:
    _, (only,) = await server.get("controllers")
    assert (only["this"], only["role"], only["in_memory"]) == (True, "active", None)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["overview", "plan?scenario=preferred-election", "events"])
async def test_pages_of_other_sites_ask_in_vain(server: Pages, path: str) -> None:
    async with server.client("reader") as client:
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            async with client.get(f"/ui/api/{path}", headers={"Sec-Fetch-Site": site}) as answer:
                assert answer.status == status
                if status == 403:
                    assert await answer.text() == "asked by a page of another site\n"


@pytest.mark.slow
async def test_who_may_not_see_a_topic_is_told_nothing_of_it(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    """As by the RPCs: DESCRIBE on the cluster is not DESCRIBE on its topics."""
    async with pages(zookeeper, zk, tmp_path) as (asked, _):
        assert [t["first"] for t in (await asked.get("heat", "half"))[1]["tiles"]] == ["u"]
        assert [t["name"] for t in (await asked.get("topics", "half"))[1]["topics"]] == ["u"]
        for path in ("heat?topic=t", "topic?topic=t", "partition?topic=t&partition=0", "topic?topic=absent"):
            status, found = await asked.get(path, "half")
            assert (status, found["error"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
        assert (await asked.get("partition?topic=u&partition=0", "half"))[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("heat?tiles=0", "tiles = '0': must be from 1 to 1200"),
        ("heat?tiles=9999999999999999999999", "tiles"),
        ("topics?limit=501", "limit = '501': must be from 1 to 500"),
        ("topics?match=" + "x" * 301, "match: has 301 characters, must have at most 300"),
        ("topic?topic=t&after=x", "after = 'x'"),
        ("partition?topic=t", "partition = ''"),
        ("partition?topic=&partition=0", "partition.topic: must name a topic"),
        ("broker?id=-1", "id = '-1'"),
        ("plan?scenario=flood", "scenario = 'flood': must be one of broker-loss"),
        ("plan?scenario=drain&brokers=1,2", "brokers: must name one broker"),
        ("plan?scenario=broker-loss&brokers=99", "broker 99 not registered"),
        ("plan?scenario=broker-loss&brokers=" + ",".join(["1"] * 101), "brokers: has 101 entries"),
        ("stoppable?brokers=x", "brokers = 'x'"),
        ("moment?at_us=-1", "at_us = '-1'"),
        ("history?kinds=leader,nothing", "filter.kinds = 'nothing'"),
        ("history?topic=%3Cimg%3E", "filter.topic: topic name '<img>'"),
    ],
)
async def test_bad_questions_are_answered_by_name(server: Pages, path: str, named: str) -> None:
    status, found = await server.get(path)
    assert (status, found["error"]) == (400, "INVALID_REQUEST")
    assert named in found["message"]


@pytest.fixture
async def server(zookeeper: str, zk: KazooClient, tmp_path: Path) -> AsyncIterator[Pages]:
    async with pages(zookeeper, zk, tmp_path) as (asked, _):
        yield asked


@pytest.mark.slow
async def test_files_are_sent_once(server: Pages) -> None:
    async with server.client("reader") as client:
        async with client.get("/ui/main.js") as first:
            assert first.status == 200
            assert {name: first.headers[name] for name in HEADERS} == HEADERS
            assert (first.content_type, first.charset) == ("text/javascript", "utf-8")
        async with client.get("/ui/main.js", headers={"If-None-Match": first.headers["ETag"]}) as again:
            assert (again.status, await again.read()) == (304, b"")
        async with client.get("/ui/main.js", headers={"If-None-Match": '"other"'}) as other:
            assert other.status == 200


async def heard(answer: aiohttp.ClientResponse, name: str) -> Any:
    """The data of the next event of this name."""
    found = ""
    async for line in answer.content:
        text = line.decode().strip()
        if text.startswith("event:"):
            found = text.removeprefix("event:").strip()
        elif text.startswith("data:") and found == name:
            return json.loads(text.removeprefix("data:"))
    raise AssertionError(f"the stream ended without {name}")


async def has_room(client: aiohttp.ClientSession) -> bool:
    async with client.get("/ui/api/events") as answer:
        return answer.status == 200


@pytest.mark.slow
async def test_events_tell_of_changes_and_are_few(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with pages(zookeeper, zk, tmp_path) as (asked, _), asked.client("reader") as client:
        async with client.get("/ui/api/events") as stream:
            assert (stream.content_type, stream.headers["X-Content-Type-Options"]) == (
                "text/event-stream",
                "nosniff",
            )
            assert (await heard(stream, "state"))["active"] is True
            await asyncio.to_thread(
                zk.create, "/brokers/topics/fresh", b'{"version":3,"partitions":{"0":[1]}}'
            )
            while not any(r.get("topic") == "fresh" for r in (await heard(stream, "records"))["newest"]):
                pass
            streams = [await client.get("/ui/api/events") for _ in range(40)]
            assert [answer.status for answer in streams] == [200] * 31 + [503] * 9
        for answer in streams:
            answer.close()
        # Who has left makes room.
        await until(lambda: has_room(client), "room for another stream")
