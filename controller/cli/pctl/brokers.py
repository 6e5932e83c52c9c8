"""``pctl brokers``: the registered brokers and their states; ``pctl audit``: whether they hold what they were told."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import click
import msgspec

from controller.cli.common.cluster_state import fail_without_cluster, note_problems
from controller.cli.common.lazy import Later, LazyListingVerbs
from controller.cli.common.options import Options, Verb, on_cluster
from controller.cli.common.output import fail, note, print_data, print_rows
from controller.cli.common.requests import ask
from controller.cli.computed.from_brokers import brokers_told, or_from_brokers
from controller.client import admin
from controller.core.brokers.stop_approvals import standing
from controller.core.cluster.features import levels_of, missing
from controller.core.model import Broker
from controller.errors import ControllerError
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import ConnectionLossError, Session
from proto.addresses import join_address
from proto.gen import history_pb2, maintenance_pb2
from proto.gen import inspection_pb2 as pb
from proto.statelog.writer import format_ts

#: Records about brokers that are gone, read to find when they went.
_RECORDS_MAX = 10_000
_COLUMNS = (
    "broker",
    "state",
    "epoch",
    "endpoint",
    "rack",
    "leaders",
    "replicas",
    "in_sync",
    "pending_pushes",
    "push_problem",
    "since",
)


# fmt: off
_LATER = {
    "decommission": Later("moving.decommission", "Move every replica off brokers, so that they can go for good."),
    "replace": Later("moving.decommission", "Move every replica of one broker to another one."),
    "swap": Later("moving.decommission", "Exchange all replicas of two brokers."),
    "forget": Later("moving.decommission", "Declare that a broker will not return: deletions do not wait for it."),
}
# fmt: on


@click.group(cls=LazyListingVerbs, later=_LATER)
@click.pass_context
def brokers(context: click.Context) -> None:
    """List brokers: state, epoch, load, and pending pushes; decommission, replace, swap or forget them.

    STATE is gone (it has replicas, and is not registered; SINCE its last sign, if the active controller noticed)
    and perhaps forgotten (an operator said that it will not return), ready, or one or more of: drained, shutting
    down, approved to stop, ignored (by the controller), flapping (it comes and goes: it gets no leaderships back
    until it is up for a growing time; pctl explain broker), incompatible (the broker does not support a finalized
    feature; the controller ignores it when it registers again).
    """
    if context.invoked_subcommand is None:
        _list(context.ensure_object(Options))


@or_from_brokers(brokers_told)
@on_cluster
async def _list(options: Options, session: Session) -> None:
    cluster_state = await cluster_reader.look(session)
    await fail_without_cluster(options.zookeeper, session, cluster_state)
    descriptions, shutting_down = await _described_by_the_controller(options, cluster_state)
    gone = cluster_state.gone
    since = await _gone_since(options, session, gone) if descriptions is not None and gone else {}
    load = _loads(cluster_state)
    rows: list[dict[str, Any]] = []
    for id_, broker in sorted(cluster_state.brokers.items()):
        description = descriptions.get(id_) if descriptions is not None else None
        rows.append(
            {
                "broker": id_,
                "state": _state(cluster_state, broker, descriptions, shutting_down),
                "epoch": broker.epoch,
                "endpoint": join_address(broker.endpoints[0].host, broker.endpoints[0].port),
                "rack": broker.rack,
                **load(id_),
                "pending_pushes": description.pending_pushes if description else None,
                "push_problem": description.push_problem if description else None,
            }
        )
    rows += [
        {
            "broker": id_,
            "state": ["gone", *(["forgotten"] if id_ in cluster_state.forgotten else [])],
            **load(id_),
            "since": since.get(id_),
        }
        for id_ in gone
    ]
    rows.sort(key=lambda row: row["broker"])
    print_rows(rows, _COLUMNS, options.output)
    note_problems(cluster_state)


def _loads(cluster_state: ClusterState) -> Callable[[int], dict[str, int]]:
    """How many partitions a broker leads, has, and is in sync for."""
    states = [p.state for p in cluster_state.partitions if p.state is not None]
    led = Counter(state.leader for state in states)
    held = Counter(id_ for p in cluster_state.partitions for id_ in p.replicas)
    in_sync = Counter(id_ for state in states for id_ in state.isr)
    return lambda id_: {"leaders": led[id_], "replicas": held[id_], "in_sync": in_sync[id_]}


async def _gone_since(options: Options, session: Session, gone: Collection[int]) -> dict[int, str]:
    """The last signs of brokers that are gone, or when the active controller noticed that they went; without those that
    went before its time."""
    # Not imported above: only brokers that are gone need it.
    from controller.analysis import lines

    wanted = history_pb2.HistoryFilter(kinds=["broker"], brokers=sorted(gone))
    request = history_pb2.ListHistoryRequest(filter=wanted, limit=_RECORDS_MAX)
    try:
        answer = await ask(options, session, "ListHistory", request)
    except admin.RequestFailedError as error:
        note(f"pctl: {error}")
        return {}
    records = [msgspec.json.decode(text) for text in answer.records]
    return {
        r["replica"]: format_ts(lines.time_of(r["ts"]) - r.get("silent_us", 0))
        for r in records
        if r["to"] == "offline" and r.get("replica") in gone
    }


async def _described_by_the_controller(
    options: Options, cluster_state: ClusterState
) -> tuple[dict[int, Any] | None, Collection[int]]:
    """The controller's descriptions of brokers, None if no controller answers, and the brokers shutting down."""
    endpoint = cluster_state.controller_endpoint
    answer = (
        await admin.describe_cluster(endpoint, options.timeout_s, options.tls)
        if endpoint
        else "no controller is active"
    )
    if isinstance(answer, str) or answer.error_code:
        why = admin.not_described(answer)
        note(f"pctl: from ZooKeeper alone ({why}): pushes and brokers that are shutting down are not known")
        return None, ()
    request = maintenance_pb2.DescribeMaintenanceRequest()
    try:
        described = await admin.ask(endpoint, "DescribeMaintenance", request, options.timeout_s, options.tls)
    except admin.RequestFailedError as error:
        note(f"pctl: {error}")
        return {b.broker_id: b for b in answer.brokers}, ()
    return {b.broker_id: b for b in answer.brokers}, described.shutting_down


def _state(
    cluster_state: ClusterState,
    broker: Broker,
    known: Mapping[int, Any] | None,
    shutting_down: Collection[int],
) -> list[str]:
    states = []
    if missing(broker, levels_of(cluster_state.feature)):
        states.append("incompatible")
    if known is not None and broker.id not in known:
        states.append("ignored")
    if broker.id in shutting_down:
        states.append("shutting down")
    if broker.id in cluster_state.maintenance.drained:
        states.append("drained")
    if broker.id in standing(cluster_state.brokers, cluster_state.approvals):
        states.append("approved to stop")
    if known is not None and broker.id in known and known[broker.id].hold_s:
        states.append("flapping")
    return states or ["ready"]


# --- audit -----------------------------------------------------------------------------------------------

#: Exit codes beside 0.
DIFFERENT, NOT_ALL_ASKED = 1, 3
_VERDICTS = {
    pb.AUDIT_NOT_YET: "not asked yet",
    pb.AUDIT_EQUAL: "equal",
    pb.AUDIT_DIFFERENT: "different",
    pb.AUDIT_PENDING: "pending",
    pb.AUDIT_UNREACHABLE: "not reached",
    pb.AUDIT_PARTIAL: "partly compared",
}
_AUDIT_COLUMNS = ("broker", "verdict", "differences", "compared_s_ago", "why")
_FINDING_COLUMNS = ("kind", "broker", "partitions", "topics")
#: Findings that are shown one by one without --all.
_LISTED_MAX = 20
_TOPICS_NAMED = 5
_PROBLEM_COLUMNS = ("topic", "partition", "broker", "kind", "what", "mend")


@click.command(cls=Verb)
@click.option("--topic", "topics", multiple=True, help="only this topic; may be repeated")
@click.option("--recorded", is_flag=True, help="what the controller's last looks found; ask no broker now")
@click.option(
    "--all", "everything", is_flag=True, help=f"each finding, also if there are more than {_LISTED_MAX}"
)
@click.pass_obj
def audit(options: Options, topics: tuple[str, ...], recorded: bool, everything: bool) -> None:
    """Compare what each broker holds with what the controller told it.

    Exit codes: 0 all equal, 1 differences or refused partitions (named), 3 not all brokers could be asked.
    """
    try:
        answer = asyncio.run(_audit(options, pb.AuditRequest(topics=topics, recorded=recorded)))
    except admin.RefusedError as error:
        fail(str(error))
    except (ControllerError, ConnectionLossError) as error:
        fail(options.message_of(error), NOT_ALL_ASKED)
    brokers = [_audited(found) for found in answer.brokers]
    problems = [_problem(found) for found in answer.problems]
    if options.output == "table":
        print_rows(brokers, _AUDIT_COLUMNS, options.output)
        if problems:
            click.echo()
            print_rows(_findings(problems), _FINDING_COLUMNS, options.output)
        if problems and (everything or len(problems) <= _LISTED_MAX):
            click.echo()
            print_rows(problems, _PROBLEM_COLUMNS, options.output)
        elif problems:
            note(f"{len(problems)} findings: --all shows each, and what would mend it")
    else:
        print_data(
            {"brokers": brokers, "findings": _findings(problems), "problems": problems}, options.output
        )
    if answer.problems_left:
        note(f"pctl: {answer.problems_left} more are not shown: name topics")
    sys.exit(_exit_code(answer))


async def _audit(options: Options, request: pb.AuditRequest) -> Any:
    async with options.connected() as session:
        return await ask(options, session, "Audit", request)


def _findings(problems: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many partitions, by kind and broker, and of which topics."""
    found: dict[tuple[str, int], Counter[str]] = {}
    for problem in problems:
        found.setdefault((problem["kind"], problem["broker"]), Counter())[problem["topic"]] += 1
    return [
        {"kind": kind, "broker": broker, "partitions": topics.total(), "topics": _counted(topics)}
        for (kind, broker), topics in sorted(found.items())
    ]


def _counted(topics: Counter[str]) -> str:
    shown = [f"{topic} ({count})" for topic, count in topics.most_common(_TOPICS_NAMED)]
    left = len(topics) - len(shown)
    return ", ".join([*shown, *([f"and {left} more topics"] if left else [])])


def _exit_code(answer: Any) -> int:
    if answer.problems or any(found.verdict == pb.AUDIT_DIFFERENT for found in answer.brokers):
        return DIFFERENT
    return 0 if all(found.verdict == pb.AUDIT_EQUAL for found in answer.brokers) else NOT_ALL_ASKED


def _audited(found: Any) -> dict[str, Any]:
    why = found.why
    if found.topics_left:
        why = f"{found.topics_left} more topics differ and are compared later"
    return {
        "broker": found.broker_id,
        "verdict": _VERDICTS[found.verdict],
        "differences": found.differences,
        "compared_s_ago": round(found.age_s) if found.HasField("age_s") else None,
        "why": why,
    }


def _problem(found: Any) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "partition": found.partition,
        "broker": found.broker_id,
        "kind": found.kind,
        "what": found.what,
        "mend": found.mend,
    }
