"""``pctl cluster``, ``controllers``, ``quarantine``: the state of the cluster, the candidates, and who leads (of a
cluster of Kafka's brokers a controller of ours, or one of them); what is left out because it raised again, and its
release."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import click

from controller.cli.common.attribution import author_option, author_or_user, reason_option
from controller.cli.common.cluster_state import fail_without_cluster, maintenance_fields, note_problems
from controller.cli.common.confirmation import confirm, yes_allowed, yes_option
from controller.cli.common.options import BROKER, Listing, ListingVerbs, Options, Verb, Verbs, on_cluster
from controller.cli.common.output import fail, note, print_fields, print_rows
from controller.cli.common.requests import ask
from controller.client import admin
from controller.core.cluster.quarantine import Suspect
from controller.core.cluster.term_history import PATH as TERM_HISTORY
from controller.core.cluster.term_history import TermRecord
from controller.core.effects import Problem
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED
from controller.runtime.zookeeper import cluster_reader, single_codecs
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from controller.runtime.zookeeper.session import Session
from proto.gen import common_pb2
from proto.gen import maintenance_pb2 as pb

#: Seconds between two looks for the next controller.
_LOOK_S = 0.1


@click.command(cls=Listing)
@click.pass_obj
@on_cluster
async def cluster(options: Options, session: Session) -> None:
    """Show the active controller and the state of the cluster."""
    cluster_state = await cluster_reader.look(session, configs=True)
    await fail_without_cluster(options.zookeeper, session, cluster_state)
    staying = [p for p in cluster_state.partitions if not cluster_state.is_deleting(p.topic)]
    gone, spare = cluster_state.gone, _spare(cluster_state, staying)
    registered = len(cluster_state.brokers)
    of_all = f" of {registered + len(gone)}" if gone else ""
    fields: dict[str, Any] = {
        "controller": cluster_state.controller_id if cluster_state.controller_id >= 0 else "none",
        "controller_endpoint": cluster_state.controller_endpoint,
        "controller_epoch": cluster_state.controller_epoch,
        "candidates": [c.controller_id for c in cluster_state.controllers],
        "brokers": f"{registered}{of_all}" if options.output == "table" else registered,
        "brokers_gone": gone,
        "topics": len(cluster_state.topics),
        "partitions": len(cluster_state.partitions),
        "unavailable_partitions": sum(not cluster_state.is_led(p) for p in staying),
        "under_replicated_partitions": sum(p.under_replicated() for p in staying),
        "under_min_isr_partitions": sum(n < 0 for n in spare),
        "at_min_isr_partitions": sum(n == 0 for n in spare),
        "not_on_preferred_leader": sum(
            cluster_state.is_led(p) and not p.on_preferred_leader for p in staying
        ),
        "topics_being_deleted": cluster_state.deleting,
        "unreadable_znodes": len(cluster_state.problems),
        "in_quarantine": [str(suspect.subject) for suspect in cluster_state.quarantine.quarantined()],
        **maintenance_fields(cluster_state.maintenance),
    }
    if cluster_state.controller_endpoint:
        answer = await admin.describe_cluster(
            cluster_state.controller_endpoint, options.timeout_s, options.tls
        )
        if isinstance(answer, str) or answer.error_code:
            fields["controller_answers"] = f"no ({admin.not_described(answer)})"
        else:
            fields["controller_answers"] = "yes"
            fields["pending_pushes"] = sum(b.pending_pushes for b in answer.brokers)
            fields["brokers_refusing_pushes"] = [b.broker_id for b in answer.brokers if b.refuses_pushes]
            if answer.unguarded:
                # Not imported above: it imports the log, which takes long and no other output needs.
                from proto.security.access import EVERYONE_MAY

                fields["access"] = EVERYONE_MAY
    print_fields(fields, options.output)
    note_problems(cluster_state)


def _spare(cluster_state: ClusterState, partitions: Iterable[PartitionInfo]) -> list[int]:
    """How many replicas in sync each partition with a state has beyond min.insync.replicas."""
    found = (p.spare_in_sync(cluster_state.min_isr(p.topic)) for p in partitions)
    return [n for n in found if n is not None]


@click.group(cls=ListingVerbs)
@click.pass_context
def controllers(context: click.Context) -> None:
    """List the candidates and the active controller among them; move, resign or claim control."""
    if context.invoked_subcommand is None:
        _list(context.ensure_object(Options))


@on_cluster
async def _list(options: Options, session: Session) -> None:
    cluster_state = await _look(session)
    await fail_without_cluster(options.zookeeper, session, cluster_state)
    memories = await asyncio.gather(*(_memory(options, c) for c in cluster_state.controllers))
    rows = [
        {
            "controller": c.controller_id,
            "role": "active" if c.active else "standby",
            "memory": memory,
            "grpc": c.endpoint,
            "http": c.http,
        }
        for c, memory in zip(cluster_state.controllers, memories, strict=True)
    ]
    print_rows(rows, ("controller", "role", "memory", "grpc", "http"), options.output)
    if (given := cluster_state.resignation) is not None:
        note(
            f"handed back to Kafka's brokers by {given.author}: {given.reason} (pctl controllers claim ends that)"
        )
    note_problems(cluster_state)


@controllers.command("history")
@click.pass_obj
@on_cluster
async def history(options: Options, session: Session) -> None:
    """List the last terms: who led, from when to when, why it ended, and how long nobody led before it."""
    await fail_without_cluster(options.zookeeper, session, await _look(session))
    (found,) = await single_codecs.read_nodes(session, [TERM_HISTORY])
    if isinstance(found, Problem):
        fail(f"{found.path}: {found.problem}")
    terms: Sequence[TermRecord] = found.value if found is not None else ()
    now_ms = time.time() * 1000
    rows = [
        {
            "controller_epoch": term.controller_epoch,
            "controller": term.controller_id,
            "from": _time(term.from_ms),
            "until": _time(term.until_ms) if term.until_ms else None,
            "seconds": None
            if term.end_unknown
            else round(_lasted_s(term.from_ms, term.until_ms or now_ms), 1),
            "vacant_before_s": _vacant_s(before, term),
            "why": term.why or "it leads",
        }
        for before, term in zip([None, *terms], terms, strict=False)
    ]
    columns = ("controller_epoch", "controller", "from", "until", "seconds", "vacant_before_s", "why")
    print_rows(rows, columns, options.output)


def _vacant_s(before: TermRecord | None, term: TermRecord) -> float | None:
    """How long nobody led; None: it is not known. Who led under the epochs in between recorded nothing, as Kafka's
    controllers."""
    if before is None or before.end_unknown or before.controller_epoch + 1 != term.controller_epoch:
        return None
    return round(_lasted_s(before.until_ms, term.from_ms), 3)


def _lasted_s(from_ms: float, until_ms: float) -> float:
    """Between two wall clocks, of which the second may be behind the first."""
    return max(0.0, until_ms - from_ms) / 1000


def _time(ms: int) -> str:
    """A time as text. The wall clock that it is of may be wrong: what cannot be shown becomes the last that can."""
    return f"{datetime.fromtimestamp(min(ms / 1000, 253402300799), UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


async def _memory(options: Options, candidate: cluster_reader.ControllerInfo) -> str:
    """What a standby has in memory for a failover; empty for the active controller."""
    if candidate.active:
        return ""
    answer = await admin.describe_cluster(candidate.endpoint, options.timeout_s, options.tls)
    if isinstance(answer, str):
        return "it does not answer"
    if answer.error_code != common_pb2.NOT_CONTROLLER:
        return "it does not say"
    if not answer.HasField("standby"):
        return "off"
    standby = answer.standby
    behind = f", {standby.behind} behind for {standby.behind_s:.1f} s" if standby.behind else ""
    return f"{standby.warmth}: {standby.states} states{behind}"


async def _look(session: Session) -> ClusterState:
    return await cluster_reader.look(session, topics=())


@controllers.command()
@click.option("--to-kafka", is_flag=True, help="hand back to Kafka's brokers until pctl controllers claim")
@reason_option(required=True)
@author_option
@yes_option
@click.pass_obj
@on_cluster
async def resign(
    options: Options, session: Session, to_kafka: bool, reason: str, author: str | None, yes: bool
) -> None:
    """Let a standby take over from the active controller, or with --to-kafka a broker of Kafka."""
    before = await _look(session)
    if before.controller_id >= 0 and not before.controller_endpoint:
        fail(f"broker {before.controller_id} is the controller: nothing was changed", EXIT_REFUSED)
    confirm("Hand control back to Kafka's brokers?" if to_kafka else "Let a standby take over?", yes=yes)
    request = pb.ResignControllerRequest(to_kafka=to_kafka, reason=reason, author=author_or_user(author))
    try:
        await ask(options, session, "ResignController", request)
    except admin.RefusedError as error:
        _fail(error)
    await _follow(options, session, before)


@controllers.command()
@click.argument("controller", type=BROKER)
@reason_option(required=True)
@author_option
@yes_option
@click.pass_obj
@on_cluster
async def move(
    options: Options, session: Session, controller: int, reason: str, author: str | None, yes: bool
) -> None:
    """Let CONTROLLER, a standby, take over from the active controller at once."""
    before = await _look(session)
    if before.controller_id == controller and before.controller_endpoint:
        note(f"nothing to do: controller {controller} is active")
        return
    candidates = [c.controller_id for c in before.controllers]
    if controller not in candidates:
        fail(f"controller {controller} is no candidate: there are {candidates}", EXIT_REFUSED)
    confirm(f"Let controller {controller} take over from {before.controller_id}?", yes=yes)
    request = pb.ResignControllerRequest(reason=reason, author=author_or_user(author), successor=controller)
    try:
        await ask(options, session, "ResignController", request)
    except admin.RefusedError as error:
        _fail(error)
    if (now := await _follow(options, session, before)) != controller:
        fail(f"controller {now} took over instead: {controller} was not elected in time")


@controllers.command()
@yes_allowed
@click.pass_obj
@on_cluster
async def claim(options: Options, session: Session) -> None:
    """Claim control from Kafka's brokers now, also after resign --to-kafka."""
    before = await _look(session)
    if not before.controllers:
        fail("no controller of ours is registered: nothing was changed", EXIT_REFUSED)
    if before.controller_endpoint and before.resignation is None:
        note(f"nothing to do: controller {before.controller_id} is active")
        return
    refused: admin.RequestFailedError | None = None
    for candidate in before.controllers:
        try:
            await admin.ask(
                candidate.endpoint,
                "ClaimController",
                pb.ClaimControllerRequest(),
                options.timeout_s,
                options.tls,
            )
            await _follow(options, session, before)
            return
        except admin.RequestFailedError as error:
            refused = error
    assert refused is not None
    _fail(refused)


def _fail(error: admin.RequestFailedError) -> NoReturn:
    """OPERATION_NOT_ATTEMPTED: a controller protects the cluster; else it could not or may not do it."""
    if not isinstance(error, admin.RefusedError):
        fail(str(error))
    safe = error.error == "OPERATION_NOT_ATTEMPTED"
    fail(f"{error.error}: {error.message}", EXIT_REFUSED if safe else EXIT_FAILED)


async def _follow(options: Options, session: Session, before: ClusterState) -> int:
    """Wait for the change of controller, and say who it is. Returns its id."""
    deadline = time.monotonic() + options.timeout_s
    while time.monotonic() < deadline:
        raised = (await _look(session)).controller_epoch > before.controller_epoch
        # A look reads the controller first: only the next one is sure to find the one of this epoch.
        now = await _look(session)
        if raised and now.controller_id >= 0:
            kind = "controller" if now.controller_endpoint else "broker"
            note(f"{kind} {now.controller_id} is the controller, epoch {now.controller_epoch}")
            return now.controller_id
        await asyncio.sleep(_LOOK_S)
    return fail(f"accepted, but nobody has taken over within {options.timeout_s:g} s")


# --- quarantine ------------------------------------------------------------------------------------------


_SUSPECT_COLUMNS = (
    "name",
    "state",
    "event",
    "detail",
    "error",
    "times",
    "controller",
    "epoch",
    "last",
    "traceback",
)


@click.group(cls=Verbs)
def quarantine() -> None:
    """What the controller leaves out because it raised an unexpected exception in two terms."""


@quarantine.command("list", cls=Listing)
@click.pass_obj
@on_cluster
async def list_suspects(options: Options, session: Session) -> None:
    """List what raised.

    STATE is suspect (it raised in one term) or left out. TRACEBACK is a digest: equal ones are the same fault.
    """
    rows = [_suspect_row(name, suspect) for name, suspect in await _suspects(options, session)]
    print_rows(rows, _SUSPECT_COLUMNS, options.output)


def _suspect_row(name: str, suspect: pb.Suspect | Suspect) -> dict[str, Any]:
    return {
        "name": name,
        "state": "left out" if suspect.quarantined else "suspect",
        "event": suspect.event,
        "detail": suspect.detail,
        "error": suspect.error,
        "times": suspect.count,
        "controller": suspect.controller_id,
        "epoch": suspect.controller_epoch,
        "last": _time(suspect.at_ms),
        "traceback": suspect.digest,
    }


async def _suspects(options: Options, session: Session) -> list[tuple[str, pb.Suspect | Suspect]]:
    """From the controller; if none answers, which may be why somebody asks, from ZooKeeper."""
    try:
        answer = await ask(options, session, "ListQuarantine", pb.ListQuarantineRequest())
    except admin.RequestFailedError as error:
        note(f"pctl: from ZooKeeper alone ({error})")
        now = await cluster_reader.look(session, topics=())
        return [*sorted(now.quarantine.suspects.items())]
    return [(suspect.name, suspect) for suspect in answer.suspects]


@quarantine.command(cls=Verb)
@click.argument("name")
@reason_option(required=True)
@author_option
@yes_option
@click.pass_obj
@on_cluster
async def release(
    options: Options, session: Session, name: str, reason: str, author: str | None, yes: bool
) -> None:
    """Let the controller take NAME in again. It begins a new term for it, as after an election."""
    confirm(f"Release {name}? If it raises again, the controller fails over twice more.", yes=yes)
    request = pb.ReleaseQuarantineRequest(name=name, reason=reason, author=author_or_user(author))
    try:
        await ask(options, session, "ReleaseQuarantine", request)
    except admin.RefusedError as error:
        fail(f"{error.error}: {error.message}")
    note(f"released {name}")
