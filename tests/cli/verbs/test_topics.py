"""``pctl topics``: what is created is what was shown, and who has it in the end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.cli.common import attribution, progress
from controller.cli.computed.dry_run import DryRun
from controller.cli.pctl import partitions, topics
from controller.client import admin
from controller.core.effects import TopicInfo
from controller.exit_codes import EXIT_FAILED, EXIT_USAGE
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, inspection_pb2
from tests.support.cli.verbs import Asked, in_vain, typed
from tests.support.core.world import a_broker, state


def cluster(*partitions: PartitionInfo, deleting: tuple[str, ...] = ()) -> ClusterState:
    info = TopicInfo("t", "id", {p.partition: p.replicas for p in partitions}, {}, {}, version=0, czxid=1)
    return ClusterState(
        100,
        "c:1",
        7,
        brokers={b: a_broker(b, b) for b in (1, 2, 3)},
        topics={"t": info} if partitions else {},
        partitions=list(partitions),
        deleting=list(deleting),
    )


LED, LEADERLESS = (PartitionInfo("t", 0, (1, 2), state(leader, (1, 2), 1, 1)) for leader in (1, -1))
NEW = PartitionInfo("t", 1, (2, 3), state(2, (2, 3), 0, 0))


def described(**problems: str) -> inspection_pb2.DescribeTopicsResponse:
    """``problems``: of the leaders of partitions p0, p1."""
    made = inspection_pb2.DescribeTopicsResponse()
    topic = made.topics.add(name="t")
    for name, problem in problems.items():
        topic.partitions.add(partition=int(name[1:]), leader_problem=problem)
    return made


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "POLL_EVERY_S", 0)


def created(**answer: Any) -> pb.CreateTopicsResponse:
    made = pb.CreateTopicsResponse()
    topic = made.topics.add(name="t", **answer)
    topic.assignments[0].broker_ids.extend([1, 2])
    return made


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ("", (-1, -1, {}, {})),
        ("--partitions 3 --replication-factor 2 --config a=b", (3, 2, {}, {"a": "b"})),
        ("--replica-assignment 1:2,2:3", (-1, -1, {0: [1, 2], 1: [2, 3]}, {})),
    ],
)
def test_what_is_not_said_is_left_to_the_controller(
    options: str, sent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(CreateTopics=created()).install(monkeypatch, topics)
    assert typed(f"topics create t {options} --no-wait").exit_code == 0
    (topic,) = asked.of("CreateTopics")[0].topics
    assignments = {n: list(ids.broker_ids) for n, ids in topic.assignments.items()}
    assert (topic.num_partitions, topic.replication_factor, assignments, dict(topic.configs)) == sent


@pytest.mark.parametrize(
    ("options", "defaults"),
    [
        ("", True),
        ("--partitions 3", False),
        ("--replication-factor 2", False),
        ("--replica-assignment 1:2", False),
    ],
)
def test_defaults_are_called_so_where_nothing_else_was_said(
    options: str, defaults: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    Asked(CreateTopics=created()).install(monkeypatch, topics)
    shown = typed(f"topics create t {options} --no-wait")
    assert "created topic t with 1 partition of 2 replicas" in shown.stderr
    assert ("these are the defaults" in shown.stderr) == defaults


def test_where_new_partitions_are_to_be_is_asked_for_and_how_many_there_are_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = pb.CreatePartitionsResponse()
    added = answer.results.add(name="t").assignments
    for number in (4, 5):
        added[number].broker_ids.extend([3, 2])
    asked = Asked(CreatePartitions=answer).install(monkeypatch, topics)
    shown = typed("topics alter t --partitions 6 --replica-assignment 3:2,3:2")
    assert "Add 2 partitions to the 4 of t?" in shown.stderr
    ((topic,),) = [request.topics for request in asked.of("CreatePartitions")]
    assert [list(ids.broker_ids) for ids in topic.assignments] == [[3, 2], [3, 2]]


def test_who_waits_for_leaders_in_vain_hears_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = created()
    answer.topics[0].assignments[1].broker_ids.extend([2, 3])
    unled = PartitionInfo("t", 1, (2, 3), None)
    Asked(cluster(LEADERLESS, unled), CreateTopics=answer).install(monkeypatch, topics)
    in_vain(monkeypatch)
    shown = typed("--timeout 0.1 topics create t")
    why = "t-0 (1, 2 of the ISR [1, 2] is alive, but no new leader is elected yet), t-1 (no state yet)"
    assert (
        shown.exit_code,
        f"2 of its partitions have no leader that has acknowledged it: {why};" in shown.stderr,
    ) == (
        EXIT_FAILED,
        True,
    )


def test_a_creation_that_would_be_refused_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_on_copy(*_: Any) -> DryRun:
        refused = created(error_code=common_pb2.TOPIC_ALREADY_EXISTS, error_message="it is there")
        return DryRun([refused], {"writes": [{"path": "/x"}], "pushes": {}, "notes": []})

    monkeypatch.setattr(topics, "run_on_copy", run_on_copy)
    Asked().install(monkeypatch, topics)
    shown = typed("topics create t --dry-run")
    assert (shown.exit_code, shown.stdout, "it is there" in shown.stderr) == (EXIT_FAILED, "", True)


@pytest.mark.parametrize("option", ["--partitions 1", "--replication-factor 2"])
def test_an_assignment_says_how_many(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked().install(monkeypatch, topics)
    shown = typed(f"topics create t --replica-assignment 1:2 {option}")
    assert (shown.exit_code, asked.methods) == (EXIT_USAGE, [])


def test_a_topic_is_there_once_its_leaders_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that is not new, and has no leader, is none of its business."""
    told = iter([described(p1="it was not told yet"), described(p1="")])
    asked = Asked(
        cluster(LEADERLESS),
        cluster(LEADERLESS, NEW),
        CreatePartitions=altered(),
        DescribeTopics=lambda _: next(told),
    ).install(monkeypatch, topics)
    shown = typed("topics alter t --partitions 2 --yes")
    assert (shown.exit_code, asked.methods.count("DescribeTopics")) == (0, 2)
    assert "topic t has 2 partitions" in shown.stderr


def altered() -> pb.CreatePartitionsResponse:
    made = pb.CreatePartitionsResponse()
    made.results.add(name="t").assignments[1].broker_ids.extend([2, 3])
    return made


def test_what_was_shown_is_what_is_asked_for_and_only_once_it_is_agreed_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another broker may have registered since."""
    asked = Asked(CreatePartitions=altered()).install(monkeypatch, topics)
    shown = typed("topics alter t --partitions 2 --no-wait")
    assert shown.exit_code == EXIT_USAGE
    assert json.loads(shown.stdout) == [{"topic": "t", "partition": 1, "replicas": [2, 3]}]
    assert [r.validate_only for r in asked.of("CreatePartitions")] == [True]
    assert typed("topics alter t --partitions 2 --no-wait --yes").exit_code == 0
    (last,) = asked.of("CreatePartitions")[-1].topics
    assert [list(ids.broker_ids) for ids in last.assignments] == [[2, 3]]


def test_each_partition_gets_the_replicas_that_were_shown_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map of protobuf has no order."""
    answer = pb.CreatePartitionsResponse()
    added = answer.results.add(name="t").assignments
    for number in range(1040, 1000, -1):
        added[number].broker_ids.append(number)
    asked = Asked(CreatePartitions=answer).install(monkeypatch, topics)
    assert typed("topics alter t --partitions 1041 --no-wait --yes").exit_code == 0
    (last,) = asked.of("CreatePartitions")[-1].topics
    assert [list(ids.broker_ids) for ids in last.assignments] == [[number] for number in range(1001, 1041)]


def test_every_broker_of_an_assignment_has_an_id_that_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    Asked().install(monkeypatch, topics)
    for ids in (f"1:{2**31}", f"{2**31}:1"):
        shown = typed(f"topics create t --replica-assignment {ids}")
        assert (shown.exit_code, "broker ids must be at most" in shown.stderr) == (EXIT_FAILED, True)


def test_a_topic_whose_size_nobody_tells_is_deleted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(
        cluster(LED),
        DescribeReplicas=admin.NoAnswerError("nobody answers"),
        DeleteTopics=pb.DeleteTopicsResponse(responses=[pb.DeletedTopic(name="t")]),
    ).install(monkeypatch, topics, attribution)
    shown = typed("topics delete t --yes --no-wait")
    assert (shown.exit_code, json.loads(shown.stdout)[0]["size"]) == (0, "unknown")
    assert asked.methods == ["DescribeReplicas", "DeleteTopics"]


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (None, "the controller does not know it yet"),
        ({"error_code": 5}, "the controller knows no leader yet"),
        ({"leader_problem": "broker 1 refuses it"}, "broker 1 refuses it"),
        ({}, ""),
    ],
)
def test_why_a_leader_does_not_lead_yet(problem: dict[str, Any] | None, told: str) -> None:
    made = None if problem is None else inspection_pb2.TopicPartitionDescription(**problem)
    assert topics._leader_problem(made) == told


def test_a_topic_is_deleted_once_its_marker_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic's own znode goes before, and the controller may know nothing of it; and who names it twice deletes it
    once."""
    deleted = pb.DeleteTopicsResponse(responses=[pb.DeletedTopic(name="t")])
    asked = Asked(
        cluster(LED),
        cluster(deleting=("t",)),
        cluster(deleting=("t",)),
        cluster(),
        DescribeReplicas=inspection_pb2.DescribeReplicasResponse(),
        DeleteTopics=deleted,
        ListTopicDeletions=pb.ListTopicDeletionsResponse(),
    ).install(monkeypatch, topics, attribution)
    assert typed("topics delete t t --yes").exit_code == 0
    assert [[t.name for t in r.topics] for r in asked.of("DeleteTopics")] == [["t"]]
    assert asked.methods.count("ListTopicDeletions") == 2


def test_a_partition_that_its_topic_does_not_name_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what the controller says beside its yes is told."""
    asked = Asked(
        cluster(NEW),
        cluster(LED, NEW),
        CreateTopics=created(error_message="names with dots collide"),
        DescribeTopics=described(p0=""),
    ).install(monkeypatch, topics)
    shown = typed("topics create t")
    assert (shown.exit_code, asked.methods.count("DescribeTopics")) == (0, 1)
    assert "t-0 (its topic does not name it)" in shown.stderr
    assert "topic t: names with dots collide" in shown.stderr


def test_a_topic_that_somebody_else_deletes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    Asked(cluster(LED, deleting=("t",)), CreateTopics=created()).install(monkeypatch, topics)
    shown = typed("topics create t")
    assert (shown.exit_code, "somebody else asked for that" in shown.stderr) == (EXIT_FAILED, True)


def test_topics_are_listed_with_how_many_partitions_lack_what(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without a leader may have all of its replicas in sync."""
    known = cluster(
        LED,
        PartitionInfo("t", 1, (2, 3), state(-1, (2, 3), 1, 1)),
        PartitionInfo("t", 2, (2, 3), state(-1, (2,), 1, 1)),
        PartitionInfo("t", 3, (1, 2), state(1, (1,), 1, 1)),
        PartitionInfo("t", 4, (1, 2), state(2, (2,), 1, 1)),
    )
    internal = TopicInfo("__consumer_offsets", "id", {}, {}, {}, version=0, czxid=2)
    known.topics["__consumer_offsets"] = internal
    Asked(known).install(monkeypatch, topics)
    shown = typed("topics list")
    (row,) = json.loads(shown.stdout)
    assert (row["topic"], row["unavailable"], row["under_replicated"]) == ("t", 2, 3)
    assert "1 topic of internal topics is left out" in shown.stderr
    names = [row["topic"] for row in json.loads(typed("topics list --internal").stdout)]
    assert names == ["__consumer_offsets", "t"]


def test_a_topic_is_described_with_how_many_must_be_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    known = cluster(LED, NEW)
    known.configs = {"t": {"min.insync.replicas": "2"}}
    Asked(known, Audit=inspection_pb2.AuditResponse()).install(monkeypatch, topics)
    rows = json.loads(typed("topics describe t").stdout)
    assert [(row["partition"], row["min_isr"]) for row in rows] == [(0, 2), (1, 2)]
    nothing = inspection_pb2.DescribeReplicasResponse()
    asked = Asked(known, Audit=inspection_pb2.AuditResponse(), DescribeReplicas=nothing)
    asked.install(monkeypatch, topics, partitions)
    assert typed("topics describe t --sizes").exit_code == 0
    assert [list(request.topics) for request in asked.of("DescribeReplicas")] == [["t"]]


def test_a_topic_that_cannot_be_read_just_now_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    unread = cluster()
    unread.problems["/brokers/topics/t"] = "junk"
    told = described(p0="")
    asked = Asked(unread, cluster(LED), CreateTopics=created(), DescribeTopics=told).install(
        monkeypatch, topics
    )
    assert (typed("topics create t").exit_code, asked.methods.count("DescribeTopics")) == (0, 1)


def test_who_waits_for_a_deletion_hears_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pending = pb.ListTopicDeletionsResponse()
    pending.topics.add(name="t", pending_reason="broker 2 is gone", replicas_left=1)
    pending.topics.add(name="v")
    pending.topics.add(name="u", pending_reason="it is moved")
    known = cluster(LED)
    known.topics["v"] = TopicInfo("v", "id", {}, {}, {}, version=0, czxid=2)
    Asked(
        known,
        cluster(deleting=("t", "u", "v")),
        cluster(deleting=("u",)),
        DescribeReplicas=inspection_pb2.DescribeReplicasResponse(),
        DeleteTopics=pb.DeleteTopicsResponse(responses=[pb.DeletedTopic(name=name) for name in "tv"]),
        ListTopicDeletions=pending,
    ).install(monkeypatch, topics, attribution)
    shown = typed("topics delete t v --yes")
    assert (shown.exit_code, "u: " in shown.stderr) == (0, False)
    left = "t: broker 2 is gone, 1 replica left; v: waits for its brokers"
    assert f"0 of 2 topics are deleted: {left}" in shown.stderr


@pytest.mark.parametrize("refused", [False, True])
def test_partitions_that_are_only_tried_are_not_added(refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    async def run_on_copy(_: Any, __: Any, step: tuple[str, Any]) -> DryRun:
        tried.append(step)
        answer = altered()
        answer.results[0].error_code = common_pb2.INVALID_REQUEST if refused else common_pb2.NONE
        return DryRun([answer], {"writes": [{"path": "/x"}], "pushes": {}, "notes": []})

    monkeypatch.setattr(topics, "run_on_copy", run_on_copy)
    asked = Asked().install(monkeypatch, topics)
    shown = typed("topics alter t --partitions 2 --yes --dry-run")
    assert (shown.exit_code, asked.methods) == (EXIT_FAILED if refused else 0, [])
    ((method, request),) = tried
    assert (method, request.validate_only, request.topics[0].count) == ("CreatePartitions", False, 2)
    assert ("/x" in shown.stdout) is not refused


def test_a_topic_that_cannot_be_read_is_deleted_and_one_that_stays_is_said_to_be_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known, then = cluster(LED), cluster(deleting=("odd",))
    known.problems["/brokers/topics/odd"] = "junk"
    answers = [pb.DeletedTopic(name=name) for name in ("t", "odd")]
    asked = Asked(
        known,
        then,
        DescribeReplicas=inspection_pb2.DescribeReplicasResponse(),
        DeleteTopics=pb.DeleteTopicsResponse(responses=answers),
        ListTopicDeletions=pb.ListTopicDeletionsResponse(),
    ).install(monkeypatch, topics, attribution)
    in_vain(monkeypatch)
    shown = typed("--timeout 0.1 topics delete t odd --yes")
    assert [[t.name for t in r.topics] for r in asked.of("DeleteTopics")] == [["t", "odd"]]
    assert (shown.exit_code, "1 of 2 topics are still there" in shown.stderr) == (EXIT_FAILED, True)


def test_only_topics_that_were_accepted_are_said_to_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    known = cluster(LED)
    known.topics["u"] = TopicInfo("u", "id", {}, {}, {}, version=0, czxid=2)
    responses = [pb.DeletedTopic(name="t"), pb.DeletedTopic(name="u", error_code=common_pb2.INVALID_REQUEST)]
    Asked(
        known,
        DescribeReplicas=inspection_pb2.DescribeReplicasResponse(),
        DeleteTopics=pb.DeleteTopicsResponse(responses=responses),
    ).install(monkeypatch, topics, attribution)
    shown = typed("topics delete t u --yes --no-wait")
    assert (shown.exit_code, "1 topic is being deleted" in shown.stderr) == (EXIT_FAILED, True)
