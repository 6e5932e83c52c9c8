"""What the pages show, as JSON values: made from the state of the controller that leads, between its steps."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from shlex import quote
from typing import Any

from controller.core.brokers import stop_approvals
from controller.core.model import Attribution, Cluster, Partition
from controller.core.topics.deletion_status import deletions
from controller.planning.cluster_health import (
    Finding,
    Seen,
    Tally,
    Told,
    Unfinished,
    Wrong,
    unfinished,
    wrong,
)
from controller.runtime.daemon import Daemon, Role
from controller.runtime.http.console.survey import Counts, OfBroker, Survey, Tile
from controller.runtime.state import attention
from controller.runtime.term import Term
from controller.runtime.zookeeper.cluster_reader import ControllerInfo

#: Brokers, and lines of what needs attention, that one answer has.
BROKERS_MAX, ATTENTION_MAX = 5000, 100
#: The command that shows more of a finding, or ends it.
COMMANDS: Mapping[Wrong | Unfinished, str] = {
    Wrong.NO_CONTROLLER: "pctl controllers",
    Wrong.BROKERS_GONE: "pctl brokers",
    Wrong.UNAVAILABLE: "pctl partitions --unavailable",
    Wrong.UNDER_MIN_ISR: "pctl partitions --under-min-isr",
    Wrong.UNDER_REPLICATED: "pctl partitions --under-replicated",
    Wrong.UNREADABLE: "pctl cluster",
    Wrong.QUARANTINED: "pctl quarantine list",
    Wrong.LOG_NOT_WRITTEN: "pctl health",
    Wrong.PAUSED: "pctl maintenance resume",
    Wrong.MAINTENANCE: "pctl maintenance leave",
    Wrong.FROZEN: "pctl unfreeze",
    Wrong.FLAPPING: "pctl brokers",
    Wrong.SHARED_ENDPOINT: "pctl brokers",
    Wrong.OTHER_CLUSTER: "pctl brokers",
    Wrong.PUSH_PROBLEM: "pctl brokers",
    Wrong.IGNORED: "pctl brokers",
    Wrong.WENT_BACK: "pctl audit",
    Unfinished.PUSHES: "pctl brokers",
    Unfinished.REASSIGNMENTS: "pctl reassign list",
    Unfinished.SHUTDOWNS: "pctl maintenance show",
    Unfinished.DELETIONS: "pctl topics list",
}


def state(daemon: Daemon) -> dict[str, Any]:
    """What every controller knows of itself."""
    term, session = daemon.term, daemon.session
    event = term.machine.current_event if term is not None else None
    return {
        "controller_id": daemon.settings.controller_id,
        "role": daemon.role.value,
        "active": daemon.active,
        "current_controller": daemon.current_controller,
        "controller_epoch": term.won.epoch if term is not None else None,
        "zookeeper_connected": bool(session and session.connected),
        "taking_over": term is not None and not term.machine.ready,
        "event": event.kind.value if event is not None else None,
        "events_queued": term.machine.queue_size if term is not None else 0,
        "in_memory": _in_memory(daemon) if daemon.role is Role.STANDBY else None,
    }


def _in_memory(daemon: Daemon) -> dict[str, Any] | None:
    """What a standby keeps for its next term; None: nothing."""
    if daemon.standby is None:
        return None
    mirror = daemon.standby.mirror
    behind_s = round(mirror.behind_s(time.monotonic()), 1)
    return {
        "warmth": mirror.warmth.value,
        "states": mirror.size,
        "behind": mirror.behind,
        "behind_s": behind_s,
    }


def controllers(found: Iterable[ControllerInfo], own_id: int) -> list[dict[str, Any]]:
    return [
        {
            "id": one.controller_id,
            "active": one.active,
            "this": one.controller_id == own_id,
            "grpc": one.endpoint,
            "http": one.http,
        }
        for one in sorted(found, key=lambda one: one.controller_id)
    ]


def overview(daemon: Daemon, term: Term, survey: Survey) -> dict[str, Any]:
    """One screen: is the cluster well, what is wrong, what is going on."""
    cluster = term.machine.cluster
    told = {id_: _told(term, id_) for id_ in cluster.brokers}
    pending = sum(map(term.machine.outbox.pending, list(term.machine.outbox.queues)))
    deleting = [status.topic for status in deletions(cluster)]
    seen = Seen(
        daemon.settings.controller_id,
        survey.tally,
        told,
        # What is in quarantine counts as unreadable for the controller.
        cluster.problems.keys() - term.quarantine.paths().keys(),
        cluster.maintenance,
        cluster.forgotten,
        [str(suspect.subject) for suspect in term.quarantine.quarantined()],
        brokers=cluster.brokers,
        cluster_id=cluster.cluster_id,
        log_problem=(daemon.state_log.not_written, daemon.state_log.dropped),
    )
    going_on = unfinished(
        pending, deleting, sorted(cluster.shutting_down), len(cluster.reassignments.ongoing)
    )
    findings = [_finding(one) for one in wrong(seen)]
    return {
        "cluster_id": cluster.cluster_id,
        "current": survey.changes == term.changes,
        "well": not findings,
        "findings": findings,
        "unfinished": [_finding(one) for one in going_on],
        "attention": attention(daemon)[:ATTENTION_MAX],
        "counts": {
            "topics": len(survey.names),
            **survey.total._asdict(),
            "deleting": len(deleting),
            "events_queued": term.machine.queue_size,
        },
        "maintenance": {
            "paused": _attribution(cluster.maintenance.paused),
            "maintenance": _attribution(cluster.maintenance.entered),
        },
        "brokers": _brokers(term, survey),
    }


def _finding(found: Finding) -> dict[str, Any]:
    command = COMMANDS.get(found.what, "pctl health")
    return {"what": found.what.value, "count": found.number, "text": found.text, "command": command}


def _attribution(mark: Attribution | None) -> dict[str, str] | None:
    return None if mark is None else {"author": mark.author, "reason": mark.reason}


def _told(term: Term, broker_id: int) -> Told:
    flapping = term.machine.cluster.flapping.get(broker_id)
    losses, hold_s = (flapping.losses, flapping.hold_us // 1_000_000) if flapping else (0, 0)
    return Told(_push_problem(term, broker_id), losses, hold_s, *term.auditor.newer_states(broker_id))


def _push_problem(term: Term, broker_id: int) -> str:
    status = term.senders.status.get(broker_id)
    return "" if status is None else status.problem or status.refused_partitions


def _brokers(term: Term, survey: Survey) -> list[dict[str, Any]]:
    """Registered brokers, and those that are gone and have replicas."""
    cluster = term.machine.cluster
    ids = sorted(cluster.brokers.keys() | survey.tally.lacking.keys())[:BROKERS_MAX]
    approvals = stop_approvals.standing(cluster.brokers, cluster.approvals)
    return [
        _broker(term, id_, survey.brokers.get(id_) or OfBroker(), may_stop=id_ in approvals) for id_ in ids
    ]


def _broker(term: Term, broker_id: int, counted: OfBroker, *, may_stop: bool) -> dict[str, Any]:
    cluster = term.machine.cluster
    broker = cluster.brokers.get(broker_id)
    audit = term.auditor.brokers.get(broker_id)
    return {
        "id": broker_id,
        "rack": broker.rack if broker is not None else None,
        "gone": broker is None,
        "shutting_down": broker_id in cluster.shutting_down,
        "drained": broker_id in cluster.maintenance.drained,
        "may_stop": may_stop,
        "failed_disk_replicas": len(cluster.offline_dirs.get(broker_id, ())),
        "endpoints": [f"{e.listener}://{e.host}:{e.port}" for e in broker.endpoints] if broker else [],
        "replicas": counted.replicas,
        "led": counted.led,
        "out_of_sync": counted.out_of_sync,
        "pending": term.machine.outbox.pending(broker_id),
        "problem": _push_problem(term, broker_id),
        "audit": audit.verdict.value if audit is not None else None,
        "differences": len(audit.known) if audit is not None else 0,
    }


def tile(found: Tile) -> dict[str, Any]:
    return {"first": found.first, "last": found.last, "size": found.size, **found.counts._asdict()}


def topic_row(name: str, counts: Counts) -> dict[str, Any]:
    return {"name": name, **counts._asdict()}


def partition_row(cluster: Cluster, partition: Partition, min_isr: int) -> dict[str, Any]:
    """One partition; ``worst``: what is wrong with it, None: nothing."""
    state = partition.leadership
    worst = Tally(cluster.brokers).add(
        partition.topic.name,
        partition.number,
        partition.replicas,
        state,
        min_isr,
        deleting=cluster.deletion_requested(partition.topic.name),
    )
    return {
        "partition": partition.number,
        "leader": state.leader if state is not None else -1,
        "leader_epoch": state.leader_epoch if state is not None else None,
        "partition_epoch": state.partition_epoch if state is not None else None,
        "controller_epoch": state.controller_epoch if state is not None else None,
        "recovering": bool(state is not None and state.recovery),
        "replicas": list(partition.replicas),
        "isr": list(state.isr) if state is not None else [],
        "adding": list(partition.adding),
        "removing": list(partition.removing),
        "offline": [b for b in partition.replicas if not cluster.is_online(partition, b)],
        "worst": worst.value if worst is not None else None,
    }


def explain_command(topic: str, partition: int) -> str:
    return f"pctl explain partition {quote(topic)} {partition}"
