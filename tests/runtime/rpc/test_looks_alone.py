"""Handlers that look at the cluster, by themselves: what changes meanwhile is seen, and what they count is all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.core.cluster.quarantine import Quarantine
from controller.core.context import CoreSettings
from controller.core.explain.partitions import explain_partition
from controller.core.model import Cluster, Flapping, Partition, PartitionState, Topic
from controller.core.requests.elections import ElectLeadersReply, PartitionElected
from controller.core.requests.errors import ErrorCode
from controller.core.requests.topics import CreateTopicsReply, TopicCreated
from controller.runtime.audit.auditor import BrokerAudit, Verdict
from controller.runtime.audit.problems import ProblemKind, ReplicaProblem
from controller.runtime.observe.history import About
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.rpc import audit, inspection_service
from controller.runtime.rpc.admin_service import AdminService
from controller.runtime.rpc.inspection_service import InspectionRefusedError, InspectionService
from controller.runtime.rpc.methods import ADMIN_SERVICE, ASKED, request_of, response_of
from controller.runtime.rpc.plan_queue import AbandonedError, BusyError
from controller.runtime.zookeeper import cluster_reader
from proto.gen import admin_service_pb2 as admin
from proto.gen import inspection_pb2 as pb
from proto.gen import maintenance_pb2
from proto.security.access import Openness
from tests.support.core.world import a_broker, state


def cluster_of(*topics: str) -> Cluster:
    cluster = Cluster(1, 7)
    cluster.brokers.update({b: a_broker(b, 50 + b) for b in (1, 2)})
    for name in topics:
        topic = Topic(name, czxid=1)
        partition = topic.partitions[0] = Partition(topic, 0, (1, 2))
        partition.leadership, partition.state = state(2, (1, 2), 3, 5), PartitionState.ONLINE
        cluster.add_topic(topic)
    return cluster


class Leading:
    """A controller that leads, as its services see it; its settings are read by ``read``."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine = SimpleNamespace(cluster=cluster, settings=CoreSettings(), event_id=9)
        self.machine.outbox = SimpleNamespace(pending=lambda _: 4)
        self.senders: Any = SimpleNamespace(
            unacknowledged=lambda _: "", not_told=lambda *_: "", refusal=lambda *_: None, status={}
        )
        self.auditor: Any = SimpleNamespace(brokers={}, newer_states=lambda id_: (id_ - 1, ""))
        self.term: Any = SimpleNamespace(
            machine=self.machine,
            session=None,
            senders=self.senders,
            auditor=self.auditor,
            won=SimpleNamespace(epoch=7),
            refuses=lambda _: None,
        )
        self.about: About | None = None
        self.daemon: Any = SimpleNamespace(
            state_log=SimpleNamespace(not_written="File exists", dropped=3),
            leading=self.term,
            term=self.term,
            metrics=ControllerMetrics(CollectorRegistry()),
            recent=SimpleNamespace(last_about=lambda *_: self.about),
            openness=Openness.BY_SETTING,
            current_controller=1,
            standby=None,
        )
        self.meanwhile: Callable[[], object] = lambda: None
        monkeypatch.setattr(cluster_reader, "read_configs", self.read)
        monkeypatch.setattr(inspection_service, "_problems", lambda *_: [])

    async def read(self, _session: object, _names: object) -> tuple[Any, Any, Any]:
        self.meanwhile()
        return {}, {}, {}

    @property
    def inspection(self) -> InspectionService:
        return InspectionService(self.daemon)


# --- what changes while settings are read --------------------------------------------------------------------


async def test_a_partition_that_goes_while_its_settings_are_read_is_not_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leading = Leading(cluster_of("t"), monkeypatch)
    explained: Any = await leading.inspection._partition(leading.term, "t", 0)
    assert explained.leader == 2
    leading.meanwhile = lambda: leading.machine.cluster.remove_topic("t")
    with pytest.raises(InspectionRefusedError, match="no partition t-0") as refused:
        await leading.inspection._partition(leading.term, "t", 0)
    assert refused.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_plans_are_made_of_the_cluster_after_its_settings_were_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leading = Leading(cluster_of("t"), monkeypatch)
    leading.meanwhile = lambda: leading.machine.cluster.brokers.pop(2)
    found = await leading.inspection._on_snapshot(leading.term, lambda snapshot, _: sorted(snapshot.brokers))
    assert found == [1]


@pytest.mark.parametrize("dynamic", [None, False, True])
@pytest.mark.parametrize("own", [False, True])
async def test_the_dynamic_default_of_unclean_elections_goes_before_the_own_setting(
    own: bool, dynamic: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    leading, asked = Leading(cluster_of("t"), monkeypatch), list[bool]()
    leading.machine.settings = CoreSettings(unclean_leader_election_enable=own)
    leading.machine.cluster.unclean_default = dynamic
    explain = explain_partition

    def explaining(*given: Any, unclean_allowed: bool, **more: Any) -> Any:
        asked.append(unclean_allowed)
        return explain(*given, unclean_allowed=unclean_allowed, **more)

    monkeypatch.setattr(inspection_service, "explain_partition", explaining)
    await leading.inspection._partition(leading.term, "t", 0)
    assert asked == [own if dynamic is None else dynamic]


@pytest.mark.parametrize(
    ("controller_epoch", "partition_epoch", "named"),
    [(7, 5, True), (7, 4, False), (7, 6, False), (6, 5, True), (2, 5, False)],
)
def test_the_deciding_event_is_that_of_the_present_state(
    controller_epoch: int, partition_epoch: int, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    leading = Leading(cluster_of("t"), monkeypatch)
    (partition,) = leading.machine.cluster.partitions()
    partition.leadership = state(2, (1, 2), 3, 5, controller_epoch=6)
    leading.about = About(9, "Why", controller_epoch, 1, partition_epoch)
    assert (leading.inspection._deciding(partition) is not None) is named


# --- answers -------------------------------------------------------------------------------------------------


async def test_the_cluster_is_described_with_all_its_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = Leading(cluster_of("t", "u"), monkeypatch)
    cluster = leading.machine.cluster
    cluster.problems = {f"/{n}": "odd" for n in range(250)}
    cluster.flapping = {2: Flapping(3, 0, 300_000_000)}
    service = AdminService(leading.daemon)
    told: Any = await service.methods()["DescribeCluster"](admin.DescribeClusterRequest())
    assert (told.problem_count, len(told.problems)) == (250, 100)
    assert (told.state_log_problem, told.state_log_dropped) == ("File exists", 3)
    shown = ("broker_id", "leader_count", "replica_count", "losses", "hold_s", "newer_states")
    assert [[getattr(b, name) for name in shown] for b in told.brokers] == [
        [1, 0, 2, 0, 0, 0],
        [2, 2, 2, 3, 300, 1],
    ]


async def test_who_resigns_while_it_counts_does_not_describe_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leading = Leading(cluster_of("t"), monkeypatch)

    async def resigning(_: Cluster) -> Any:
        leading.daemon.leading = None

    monkeypatch.setattr("controller.runtime.state.census", resigning)
    told: Any = await AdminService(leading.daemon).methods()["DescribeCluster"](
        admin.DescribeClusterRequest()
    )
    assert told.error_code == ErrorCode.NOT_CONTROLLER


async def test_who_resigns_while_it_counts_the_missing_does_not_describe_the_maintenance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leading = Leading(cluster_of("t", "u"), monkeypatch)
    monkeypatch.setattr("controller.core.cluster.automatic_maintenance.PASSED_MAX", 1)
    describe = AdminService(leading.daemon).methods()["DescribeMaintenance"]
    request = maintenance_pb2.DescribeMaintenanceRequest()
    leading.machine.cluster.registered_before.add(2)
    del leading.machine.cluster.brokers[2]
    told: Any = await describe(request)
    assert (told.error_code, list(told.gone)) == (ErrorCode.NONE, [2])
    describing = asyncio.ensure_future(describe(request))
    await asyncio.sleep(0)
    leading.daemon.leading = None
    told = await describing
    assert told.error_code == ErrorCode.NOT_CONTROLLER


_CREATED = [TopicCreated(f"t{n}", ErrorCode.NONE, assignment={0: (1, 2)}) for n in range(1000)]
_LARGE = [
    TopicCreated(f"t{n}", ErrorCode.NONE, assignment=dict.fromkeys(range(1000), (1,))) for n in range(60)
]
_ELECTED = [PartitionElected("t", n, ErrorCode.NONE, "", 1) for n in range(50_000)]


@pytest.mark.parametrize(
    ("method", "reply", "request_"),
    [
        ("CreateTopics", CreateTopicsReply(ErrorCode.NONE, _CREATED), admin.CreateTopicsRequest()),
        ("CreateTopics", CreateTopicsReply(ErrorCode.NONE, _LARGE), admin.CreateTopicsRequest()),
        (
            "ElectLeaders",
            ElectLeadersReply(ErrorCode.NONE, _ELECTED, "why"),
            admin.ElectLeadersRequest(all_partitions=True),
        ),
    ],
)
async def test_an_answer_about_thousands_gives_others_their_turn(
    method: str, reply: Any, request_: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(_: object) -> object:
        return reply

    leading = Leading(cluster_of("t"), monkeypatch)
    leading.term.ask = ask
    answering = asyncio.ensure_future(AdminService(leading.daemon).methods()[method](request_))
    turns = 0
    while not answering.done():
        turns += 1
        await asyncio.sleep(0)
    assert answering.result() == ASKED[method].show(reply)
    assert turns > 10


async def test_what_raised_twice_is_not_handed_to_the_machine_again(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = Leading(cluster_of("t"), monkeypatch)
    leading.term.refuses = lambda _: "SetPause, in 2 terms"
    told: Any = await AdminService(leading.daemon).methods()["ListPartitionReassignments"](
        admin.ListPartitionReassignmentsRequest()
    )
    assert (told.error_code, "SetPause, in 2 terms" in told.error_message) == (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        True,
    )


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (BusyError("busy"), ErrorCode.OPERATION_NOT_ATTEMPTED),
        (AbandonedError("over"), ErrorCode.NOT_CONTROLLER),
        (InspectionRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "no"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_why_a_look_was_not_taken_is_told(
    raised: Exception, error: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look(*_: Any) -> Any:
        raise raised

    leading = Leading(cluster_of(), monkeypatch)
    told: Any = await AdminService(leading.daemon)._looking("Plan", look)(pb.PlanRequest())
    assert (told.error_code, told.error_message) == (error, str(raised))


async def test_each_list_is_of_what_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = Leading(cluster_of("t"), monkeypatch)
    methods = AdminService(leading.daemon).methods()
    leading.term.quarantine = Quarantine()
    for name in ("ListQuarantine", "ListTopicDeletions", "DescribeMaintenance", "DescribeCluster"):
        told = await methods[name](request_of(ADMIN_SERVICE, name)())
        assert type(told) is response_of(ADMIN_SERVICE, name)


async def test_an_audit_tells_of_each_registered_broker_and_counts_what_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = ReplicaProblem("t", 0, 1, next(iter(ProblemKind)), "what", "mend")
    monkeypatch.setattr(audit, "PROBLEMS_MAX", 2)
    monkeypatch.setattr(audit, "all_problems", lambda *_: iter([problem] * 5))
    leading = Leading(cluster_of("t"), monkeypatch)
    gone = BrokerAudit(9)
    gone.ended(Verdict.EQUAL, "")
    leading.auditor.brokers = {9: gone}
    told = await audit.audit(leading.term, pb.AuditRequest(recorded=True))
    assert [b.broker_id for b in told.brokers] == [1, 2]
    assert (len(told.problems), told.problems_left) == (2, 3)


def test_when_a_broker_was_asked_is_told_in_milliseconds_and_how_long_ago_in_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit, "time", SimpleNamespace(time=lambda: 1_700_000_000.0))
    found: Any = SimpleNamespace(known={}, verdict=Verdict.EQUAL, why="", age_s=2.5, left=0)
    told = audit._show(1, found, set())
    assert (told.asked_at_ms, told.age_s) == (1_699_999_997_500, 2.5)
    assert not audit._show(1, BrokerAudit(1), set()).HasField("age_s")
