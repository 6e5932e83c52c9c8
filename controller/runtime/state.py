"""The state of a running controller as operators see it: for /state, gRPC and the gauges."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec

from controller import __version__
from controller.core.brokers import stop_approvals
from controller.core.brokers.registrations import of_other_clusters, shared_endpoints
from controller.core.model import Cluster, Maintenance, Partition, PartitionState
from controller.core.names import counted
from controller.core.topics.deletion_status import DeletionPhase, DeletionStatus, deletions
from controller.core.znode_paths import broker_path
from controller.runtime.audit.auditor import BrokerAudit
from controller.runtime.audit.problems import all_problems
from controller.runtime.daemon import Daemon, Role
from controller.runtime.kafka.endpoints import kafka_brokers
from controller.runtime.observe.loop_lag import in_turns, unhurried
from controller.runtime.observe.metrics import ZOOKEEPER, GaugeSource, state_of
from controller.runtime.term import Term, now_us

#: Partitions that /state lists by name; the counts cover all.
_NAMED_MAX = 100
#: The rest after a count of all partitions, in times of what it took; most of that was others' time.
REST = 3

Gauge = tuple[str, str, dict[str, str], float]


async def state(daemon: Daemon) -> dict[str, Any]:
    """The whole state as JSON values (documented in docs/operations.md), counted in turns with others."""
    settings, session, term = daemon.settings, daemon.session, daemon.term
    view: dict[str, Any] = {
        "version": __version__,
        "controller_id": settings.controller_id,
        "role": daemon.role.value,
        "active": daemon.active,
        "grpc": daemon.grpc_endpoint,
        "http": daemon.http_endpoint,
        "access": daemon.openness.value,
        "current_controller": daemon.current_controller,
        "zookeeper": {
            "connect": settings.zookeeper,
            "connected": bool(session and session.connected),
            "session_timeout_ms": session.negotiated_ms if session else None,
            "lease_remaining_ms": round(session.lease_remaining_s() * 1000)
            if session and not session.over
            else 0,
            "multi_read": bool(session and session.multi_read),
        },
        "takeover": _takeover(daemon),
        "state_log": {
            "directory": str(settings.state_log_dir),
            "written": daemon.state_log.written,
            "queued": daemon.state_log.queued,
            "dropped": daemon.state_log.dropped,
        },
    }
    view["certificates"] = [
        {"setting": found.setting, "file": str(found.file), "not_after": found.not_after.isoformat()}
        for found in daemon.certificates.expiries()
    ]
    if term is not None:
        view["term"] = await _term(daemon, term)
    return view


def attention(daemon: Daemon) -> list[str]:
    """What somebody has to look at although this controller leads, or could take over, one line each."""
    term = daemon.term
    if term is None:
        return [f"no controller can be elected: {daemon.cannot_elect}"] if daemon.cannot_elect else []
    found = [
        f"broker {id_} {why}"
        for id_, status in sorted(term.senders.status.items())
        for why in status.refused.values()
    ]
    found += [
        f"broker {id_} {status.refused_partitions}"
        for id_, status in sorted(term.senders.status.items())
        if status.refused_partitions and not status.refused
    ]
    found += [
        f"broker {id_} holds {counted(len(audit.known), 'partition')} otherwise than told (pctl audit)"
        for id_, audit in sorted(term.auditor.brokers.items())
        if audit.known
    ]
    cluster = term.machine.cluster
    found += shared_endpoints(cluster.brokers)
    found += of_other_clusters(cluster.brokers, cluster.cluster_id)
    found += [f"in quarantine: {suspect}" for suspect in term.quarantine.quarantined()]
    if ahead := daemon.outranked.problem(term.won.epoch, time.monotonic()):
        found.append(ahead)
    return found


def _takeover(daemon: Daemon) -> dict[str, Any]:
    claimant = daemon.claimant
    holder, wait_s = claimant.holder, claimant.wait_s()
    return {
        "mode": claimant.mode.value,
        "controller_held_by": claimant.held.value,
        "claims_over_brokers": len(claimant.claims),
        "next_claim_in_s": None if wait_s is None else round(wait_s, 1),
        "handed_back": msgspec.to_builtins(claimant.resignation) if claimant.resignation else None,
        "holder_session_timeout_ms": holder.negotiated_ms if holder and not holder.over else None,
    }


def _not_led(term: Term) -> dict[str, str]:
    """Kafka brokers that came while this controller led without ``kafka_takeover``."""
    if term.leads_kafka:
        return {}
    why = "a Kafka broker, which is not led: kafka_takeover is off"
    return {broker_path(broker.id): why for broker in kafka_brokers(term.machine.cluster)}


async def _term(daemon: Daemon, term: Term) -> dict[str, Any]:
    machine, cluster = term.machine, term.machine.cluster
    offline: list[Partition] = []
    async for some in in_turns(cluster.partitions()):
        offline += [p for p in some if p.state is not PartitionState.ONLINE]
    not_led = _not_led(term)
    return {
        "controller_epoch": term.won.epoch,
        "cluster_id": cluster.cluster_id,
        "maintenance": msgspec.to_builtins(cluster.maintenance, str_keys=True),
        "stop_approvals": msgspec.to_builtins(
            stop_approvals.standing(cluster.brokers, cluster.approvals), str_keys=True
        ),
        "failover_completed": machine.ready,
        "event_id": machine.event_id,
        "event": machine.current_event.kind.value if machine.current_event else None,
        "events_queued": machine.queue_size,
        "topics": len(cluster.topics),
        "partitions": sum(len(t.partitions) for t in cluster.topics.values()),
        "topics_to_delete": {status.topic: _deletion(status) for status in deletions(cluster)},
        "partitions_not_online": len(offline),
        "partitions_not_online_first": [
            {
                "partition": p.name,
                "state": p.state.value,
                "replicas": list(p.replicas),
                "isr": list(p.leadership.isr) if p.leadership else None,
            }
            for p in offline[:_NAMED_MAX]
        ],
        "attention": attention(daemon),
        "replica_problems": [
            {**p._asdict(), "kind": p.kind.value}
            for p in islice(all_problems(cluster, term.senders, term.auditor), _NAMED_MAX)
        ],
        "problems": {**cluster.some_problems(), **not_led},
        "problems_count": len(cluster.problems) + len(not_led),
        "suspects": msgspec.to_builtins(term.quarantine.suspects),
        "brokers": {str(id_): _broker(term, id_) for id_ in sorted(cluster.brokers)},
    }


def _deletion(status: DeletionStatus) -> dict[str, Any]:
    retry_at = status.retry_at_us
    return {
        "state": status.phase.value,
        "reason": str(status.reason or ""),
        "replicas_left": status.replicas_left,
        "retry_in_s": None if retry_at is None else max(round((retry_at - now_us()) / 1e6, 1), 0.0),
    }


def _broker(term: Term, broker_id: int) -> dict[str, Any]:
    broker = term.machine.cluster.brokers[broker_id]
    status = term.senders.status.get(broker_id)
    audit = term.auditor.brokers.get(broker_id, BrokerAudit(broker.epoch))
    return {
        "epoch": broker.epoch,
        "endpoints": [f"{e.listener}://{e.host}:{e.port}" for e in broker.endpoints],
        "rack": broker.rack,
        "shutting_down": broker_id in term.machine.cluster.shutting_down,
        "offline_replicas": len(term.machine.cluster.offline_dirs.get(broker_id, ())),
        "pending": term.machine.outbox.pending(broker_id),
        "acknowledged_requests": status.acknowledged_requests if status else 0,
        "acknowledged_partitions": status.acknowledged_partitions if status else 0,
        "seconds_since_ack": _rounded(status.age_s if status else None),
        "problem": status.problem if status else "",
        "refuses": bool(status and status.refused),
        "refused_partitions": len(status.not_led) if status else 0,
        "audit": audit.verdict.value,
        "audit_why": audit.why,
        "differences": len(audit.known),
        "seconds_since_compared": _rounded(audit.age_s),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


class Census(NamedTuple):
    """``led``, ``held``: partitions led and replicas held, by broker id."""

    led: Counter[int]
    held: Counter[int]
    offline: int
    imbalanced: int


async def census(cluster: Cluster, *, hurry: bool = True) -> Census:
    """Count all partitions, in turns with others."""
    led, held, offline, imbalanced = Counter[int](), Counter[int](), 0, 0
    async for some in (in_turns if hurry else unhurried)(cluster.partitions()):
        led.update(p.leadership.leader for p in some if p.leadership is not None)
        held.update(chain.from_iterable(p.replicas for p in some))
        offline += sum(map(cluster.counts_as_offline, some))
        imbalanced += sum(map(cluster.is_imbalanced, some))
    return Census(led, held, offline, imbalanced)


def instant(term: Term) -> object:
    """Another one once the cluster state may have changed, and in the midst of another event, which may change it."""
    return term.won.epoch, term.changes, term.machine.current_event


class _Counts(NamedTuple):
    """Values that need a look at all partitions."""

    with_leadership: int
    offline: int
    imbalanced: int
    deletions: tuple[DeletionStatus, ...]


_NOTHING = _Counts(0, 0, 0, ())


class Gauges:
    """Kafka's controller gauges (reference, section 11.1); 0 on a controller that is not active. ``refresh`` before a
    scrape counts partitions, if something may have changed since: in slices, and resting between two counts, so that
    a million of them hold nothing up."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._key: object = None
        self._counts = _NOTHING
        #: The next count may begin then.
        self._again_s = 0.0
        GaugeSource(lambda: _gauges(daemon, self._counts), daemon.registry)

    async def refresh(self) -> None:
        term = self._daemon.leading
        if term is None:
            self._key, self._counts = None, _NOTHING
            return
        key = instant(term)
        began_s = time.monotonic()
        if key == self._key or (self._key is not None and began_s < self._again_s):
            return
        self._counts, self._key = await _counted(term.machine.cluster), key
        self._again_s = time.monotonic() + REST * (time.monotonic() - began_s)


async def _counted(cluster: Cluster) -> _Counts:
    found = await census(cluster, hurry=False)
    return _Counts(found.led.total(), found.offline, found.imbalanced, tuple(deletions(cluster)))


def _gauges(daemon: Daemon, counts: _Counts) -> Iterator[Gauge]:
    yield from _certificate_gauges(daemon)
    prefix = "kafka_controller_kafkacontroller_"
    term = daemon.leading
    cluster = term.machine.cluster if term else None
    if term is None:
        counts = _NOTHING
    event = term.machine.current_event if term else None
    handled = event.kind if event else None
    deleting = counts.deletions
    pending = [d for d in deleting if d.phase in (DeletionPhase.INELIGIBLE, DeletionPhase.WAITING)]
    for name, text, value in (
        ("activecontrollercount", "1 on the active controller.", int(term is not None)),
        ("globaltopiccount", "Topics.", len(cluster.topics) if cluster else 0),
        ("globalpartitioncount", "Partitions with leadership information.", counts.with_leadership),
        ("offlinepartitionscount", "Partitions without a leader.", counts.offline),
        (
            "preferredreplicaimbalancecount",
            "Partitions not led by their preferred replica.",
            counts.imbalanced,
        ),
        ("activebrokercount", "Registered brokers.", len(cluster.brokers) if cluster else 0),
        ("fencedbrokercount", "Always 0 with ZooKeeper.", 0),
        ("controllerstate", "The event being handled, by Kafka's numbers; 0: none.", state_of(handled)),
        ("zkmigrationstate", "4 when active: metadata is in ZooKeeper.", ZOOKEEPER if term else 0),
        ("topicstodeletecount", "Topics to be deleted.", len(deleting)),
        ("replicastodeletecount", "Their replicas not deleted yet.", sum(d.replicas_left for d in deleting)),
        ("topicsineligibletodeletecount", "Topics whose deletion has to wait; see /state.", len(pending)),
        (
            "replicasineligibletodeletecount",
            "Replicas that cannot be deleted for now.",
            sum(d.replicas_ineligible for d in deleting),
        ),
        (
            "malformedznodescount",
            "Znodes that do not decode; see /state.",
            len(cluster.problems) if cluster else 0,
        ),
    ):
        yield prefix + name, text, {}, value
    yield (
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "Leaders elected from outside the ISR in this term.",
        {},
        cluster.unclean_elections if cluster else 0,
    )
    yield from _flapping_gauges(cluster or Cluster(-1))
    yield (
        "kafka_server_metadataloader_currentcontrollerid",
        "Last controller id read from /controller; -1: unknown.",
        {},
        daemon.current_controller,
    )
    suspects = term.quarantine.suspects.values() if term else ()
    yield (
        "partition_controller_quarantined",
        "What is left out because it raised in two terms.",
        {},
        sum(suspect.quarantined for suspect in suspects),
    )
    yield from _maintenance_gauges(cluster.maintenance if cluster else Maintenance())
    yield from _role_gauges(daemon)
    yield from _queue_gauges(daemon)


def _certificate_gauges(daemon: Daemon) -> Iterator[Gauge]:
    for found in daemon.certificates.expiries():
        yield (
            "partition_controller_certificate_not_after_seconds",
            "When the first certificate in the file ends, seconds since 1970.",
            {"setting": found.setting, "file": str(found.file)},
            found.not_after.timestamp(),
        )


def _flapping_gauges(cluster: Cluster) -> Iterator[Gauge]:
    yield (
        "partition_controller_brokers_held_back",
        "Brokers that come and go, so that no leadership returns to them for now.",
        {},
        len(cluster.held_back()),
    )
    for broker_id in sorted(cluster.brokers):
        known = cluster.flapping.get(broker_id)
        yield (
            "partition_controller_broker_losses",
            "Times in a row that a broker was lost without a clean stop, in this term.",
            {"broker_id": str(broker_id)},
            known.losses if known else 0,
        )


def _maintenance_gauges(state: Maintenance) -> Iterator[Gauge]:
    for name, text, value in (
        ("paused", "1 while the controller starts no automatic work.", state.paused is not None),
        ("in_maintenance", "1 in maintenance mode, however entered.", state.entered is not None),
        ("frozen", "1 while the cluster is frozen.", state.freeze is not None),
        (
            "freeze_until_seconds",
            "When the freeze was meant to end, in seconds since 1970; 0: it is not frozen.",
            state.freeze.until_ms // 1000 if state.freeze else 0,
        ),
        ("maintenance_automatic", "1 in maintenance mode that was entered automatically.", state.automatic),
        ("drained_brokers", "Drained brokers: they get no leaderships.", len(state.drained)),
    ):
        yield f"partition_controller_{name}", text, {}, int(value)


def _role_gauges(daemon: Daemon) -> Iterator[Gauge]:
    for role in Role:
        yield (
            "partition_controller_role",
            "1 for the role this process is in.",
            {"role": role.value},
            int(daemon.role is role),
        )
    session = daemon.session
    yield (
        "partition_controller_lease_remaining_seconds",
        "Rest of the lease on this ZooKeeper session, by the local clock.",
        {},
        max(session.lease_remaining_s(), 0.0) if session and not session.over else 0.0,
    )
    log = daemon.state_log
    yield "partition_controller_state_log_queued", "Records waiting to be written.", {}, log.queued
    yield "partition_controller_state_log_written", "Records written.", {}, log.written
    yield "partition_controller_state_log_dropped", "Records dropped, and reported.", {}, log.dropped
    yield "partition_controller_state_log_bytes", "Bytes written, before compression.", {}, log.bytes_written
    yield "partition_controller_state_log_cpu_seconds", "Processor time of the writing thread.", {}, log.cpu_s


def _queue_gauges(daemon: Daemon) -> Iterator[Gauge]:
    term = daemon.term
    manager, channels = (
        "kafka_controller_controllereventmanager_",
        "kafka_controller_controllerchannelmanager_",
    )
    oldest = term.machine.oldest_queued_us() if term else None
    size = term.machine.queue_size if term else 0
    yield manager + "eventqueuesize", "Events waiting.", {}, size
    age = (now_us() - oldest) / 1e6 if oldest is not None else 0.0
    yield manager + "eventqueueage_seconds", "Age of the oldest waiting event.", {}, age
    total = 0
    if term is not None:
        for broker_id in list(term.machine.outbox.queues):
            pending = term.machine.outbox.pending(broker_id)
            total += pending
            label = {"broker_id": str(broker_id)}
            yield channels + "queuesize", "Partitions waiting to be sent to a broker.", label, pending
            status = term.senders.status.get(broker_id)
            waiting = (status.age_s or 0.0) if status and pending else 0.0
            yield channels + "queueage_seconds", "Since the last ack; 0: nothing waits.", label, waiting
            refuses = int(bool(status and status.refused))
            yield "partition_controller_broker_refuses_pushes", "1: a push was refused whole.", label, refuses
            yield from _audit_gauges(term, broker_id, label)
    yield channels + "totalqueuesize", "Sum over all brokers.", {}, total


def _audit_gauges(term: Term, broker_id: int, label: dict[str, str]) -> Iterator[Gauge]:
    status, audit = term.senders.status.get(broker_id), term.auditor.brokers.get(broker_id)
    refused = len(status.not_led) if status else 0
    differences = len(audit.known) if audit else 0
    age = (audit.age_s or 0.0) if audit else 0.0
    prefix = "partition_controller_"
    yield (
        prefix + "broker_refused_partitions",
        "Partitions of which LeaderAndIsr was refused.",
        label,
        refused,
    )
    yield prefix + "audit_differences", "Partitions held otherwise than told.", label, differences
    yield prefix + "audit_age_seconds", "Since a broker was compared; 0: not yet.", label, age
