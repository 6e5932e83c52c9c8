"""Prometheus metrics: Kafka's controller metrics (reference, section 11.1) on a separate registry.

Names are Kafka's type and name in snake case: ``kafka.controller:KafkaController,ActiveControllerCount`` is
``kafka_controller_kafkacontroller_activecontrollercount``, as the usual JMX exporter rules print it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.core.events import EventKind

_PREFIX = "kafka_controller"
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

#: No event is being handled.
IDLE = 0
#: Value of the gauge ZkMigrationState on a controller that keeps its metadata in ZooKeeper.
ZOOKEEPER = 4

#: The gauge ControllerState by event (reference, section 11.1). Events without a state of Kafka's count as idle.
_STATES = {
    EventKind.FAILOVER: 1,
    EventKind.RECONNECTED: 1,
    EventKind.BROKER_CHANGE: 2,
    EventKind.TOPIC_CHANGE: 3,
    EventKind.PARTITION_MODIFICATIONS: 3,
    EventKind.CREATE_TOPICS: 3,
    EventKind.CREATE_PARTITIONS: 3,
    EventKind.TOPIC_DELETION: 4,
    EventKind.TOPIC_DELETION_RETRY: 4,
    EventKind.STOP_REPLICA_RESPONSE: 4,
    EventKind.DELETION_PROGRESS: 4,
    EventKind.DELETE_TOPICS: 4,
    EventKind.REASSIGNMENT: 5,
    EventKind.REASSIGNMENT_IN_SYNC: 5,
    EventKind.ALTER_REASSIGNMENTS: 5,
    EventKind.LEADER_REBALANCE: 6,
    EventKind.PREFERRED_ELECTION: 7,
    EventKind.ELECT_LEADERS: 7,
    EventKind.CONTROLLED_SHUTDOWN: 8,
    EventKind.ALTER_PARTITION: 9,
    EventKind.ISR_CHANGE: 9,
    EventKind.LEADER_AND_ISR_RESPONSE: 10,
    EventKind.LOG_DIR: 11,
    # Kafka has 13 for defaults and 14 for one topic; which it is, is known only when the event is handled.
    EventKind.CONFIG_CHANGE: 14,
    EventKind.LIST_REASSIGNMENTS: 15,
    EventKind.UPDATE_FEATURES: 17,
}


def state_of(kind: EventKind | None) -> int:
    """The value of ControllerState while an event of this kind is being handled; None: no event is."""
    return IDLE if kind is None else _STATES.get(kind, IDLE)


class ZooKeeperMetrics:
    """ZooKeeper requests and connection changes (``kafka.server`` in Kafka)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._latency = Histogram(
            "kafka_server_zookeeperclientmetrics_zookeeperrequestlatency_seconds",
            "Time from sending a ZooKeeper request to its response.",
            registry=registry,
            buckets=_SECONDS,
        )
        self._transitions = Counter(
            "kafka_server_sessionexpirelistener_zookeeper_transitions",
            "ZooKeeper connection changes: connected, suspended (disconnects), expired.",
            ["state"],
            registry=registry,
        )

    def observe(self, seconds: float) -> None:
        self._latency.observe(seconds)

    def state(self, name: str) -> None:
        self._transitions.labels(name).inc()


class StandbyMetrics:
    """What a standby has in memory, and what came of it at the last failover."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.states = Gauge(
            "partition_controller_standby_states",
            "Partition states that this standby has in memory.",
            registry=registry,
        )
        self.behind = Gauge(
            "partition_controller_standby_behind_states",
            "Partition states and topics that have changed and are not read again yet.",
            registry=registry,
        )
        self.behind_seconds = Gauge(
            "partition_controller_standby_behind_seconds",
            "Age of the oldest such change.",
            registry=registry,
        )
        self.undigested = Gauge(
            "partition_controller_standby_undigested_topics",
            "Topics whose digests are still to be computed: until then a failover has to.",
            registry=registry,
        )
        self.wrong = Counter(
            "partition_controller_standby_wrong",
            "States and topics that were another than in ZooKeeper although no change was heard of: a defect.",
            registry=registry,
        )
        self.used = Gauge(
            "partition_controller_failover_states",
            "Partition states of the last failover, by where they came from.",
            ["source"],
            registry=registry,
        )


class AuditMetrics:
    """What the comparison of brokers and state znodes with the cluster state did."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.told_again = Counter(
            "partition_controller_audit_told_again",
            "Partitions told again, because a broker held something else.",
            ["broker_id"],
            registry=registry,
        )
        self.compared = Counter(
            "partition_controller_whole_states_compared",
            "Brokers compared before they were told the whole state, by what of it they got.",
            ["outcome"],
            registry=registry,
        )
        self.states_checked = Counter(
            "partition_controller_audit_states_checked",
            "Partition state znodes compared with the cluster state.",
            registry=registry,
        )
        self.states_edited = Counter(
            "partition_controller_audit_states_edited",
            "State znodes found edited by others, by what became of them.",
            ["outcome"],
            registry=registry,
        )


class LoopMetrics:
    """How late the event loop runs what is due."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lag_seconds = Histogram(
            "partition_controller_event_loop_lag_seconds",
            "Delay with which the event loop runs what is due.",
            registry=registry,
            buckets=_SECONDS,
        )
        self.lag_max_seconds = Gauge(
            "partition_controller_event_loop_lag_max_seconds",
            "Longest delay of the event loop since the process started.",
            registry=registry,
        )


def _leaderless_seconds(registry: CollectorRegistry) -> Histogram:
    return Histogram(
        "partition_controller_leaderless_seconds",
        "Time that partitions were without a leader, from the last sign of the broker that led them where it is known.",
        registry=registry,
        buckets=(0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 900, 3600),
    )


def _decision_cpu(registry: CollectorRegistry) -> Counter:
    return Counter(
        "partition_controller_decision_cpu_seconds",
        "Processor time in which decisions were made.",
        registry=registry,
    )


class ControllerMetrics:
    """Counters and histograms of the controller."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.zookeeper = ZooKeeperMetrics(registry)
        self.loop = LoopMetrics(registry)
        self.failover_seconds = Gauge(
            "partition_controller_failover_seconds",
            "Duration of the last failover, by phase; phase ready: the whole failover.",
            ["phase"],
            registry=registry,
        )
        self.failovers = Counter(
            "partition_controller_failovers", "Failovers this process completed.", registry=registry
        )
        self.event_seconds = Histogram(
            f"{_PREFIX}_controllerstats_rateandtime_seconds",
            "Processing time of events, by event (RateAndTimeMs in Kafka).",
            ["state"],
            registry=registry,
            buckets=_SECONDS,
        )
        self.queue_seconds = Histogram(
            f"{_PREFIX}_controllereventmanager_eventqueuetime_seconds",
            "Time events waited before they were processed.",
            registry=registry,
            buckets=_SECONDS,
        )
        self.decision_cpu = _decision_cpu(registry)
        self.pushes = Counter(
            "partition_controller_pushes",
            "Control requests by broker, kind and result.",
            ["broker_id", "kind", "result"],
            registry=registry,
        )
        self.push_seconds = Histogram(
            f"{_PREFIX}_controllerchannelmanager_requestrateandqueuetime_seconds",
            "Time from sending a control request to its response, by broker.",
            ["broker_id"],
            registry=registry,
            buckets=_SECONDS,
        )
        self.rejects = Counter(
            "partition_controller_rejects", "Refused actions, by category.", ["error"], registry=registry
        )
        self.requests = Counter(
            "partition_controller_requests",
            "Requests of brokers and operators, by method and top-level error.",
            ["method", "error"],
            registry=registry,
        )
        self.altered_partitions = Counter(
            "partition_controller_altered_partitions",
            "Proposed ISRs, by resulting error.",
            ["error"],
            registry=registry,
        )
        self.isr_changes = Counter(
            "partition_controller_isr_changes",
            "ISRs that lost members (shrink) or gained members (expand).",
            ["direction"],
            registry=registry,
        )
        self.leaderless_seconds = _leaderless_seconds(registry)
        self.audit = AuditMetrics(registry)
        self.standby = StandbyMetrics(registry)
        self.resignations = Counter(
            "partition_controller_resignations", "Terms that ended, by reason.", ["reason"], registry=registry
        )


class GaugeSource(Collector):
    """Gauges computed at each scrape.

    ``read`` yields (name, help, labels, value); the same name may occur with different labels.
    """

    def __init__(
        self,
        read: Callable[[], Iterable[tuple[str, str, dict[str, str], float]]],
        registry: CollectorRegistry,
    ) -> None:
        self._read = read
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        for name, text, labels, value in self._read():
            family = families.get(name)
            if family is None:
                family = families[name] = GaugeMetricFamily(name, text, labels=list(labels))
            family.add_metric(list(labels.values()), value)
        return families.values()
