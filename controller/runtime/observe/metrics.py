"""Prometheus metrics: Kafka's controller metrics (reference, section 11.1) on a registry of our own.

Names are Kafka's type and name in snake case: ``kafka.controller:KafkaController,ActiveControllerCount`` is
``kafka_controller_kafkacontroller_activecontrollercount``, as the usual JMX exporter rules print it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_PREFIX = "kafka_controller"
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ZooKeeperMetrics:
    """Requests and connection of the current session (``kafka.server`` in the original)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._latency = Histogram(
            "kafka_server_zookeeperclientmetrics_zookeeperrequestlatency_seconds",
            "Time from sending a ZooKeeper request to its answer.",
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


class ControllerMetrics:
    """Counters and histograms the controller feeds."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.zookeeper = ZooKeeperMetrics(registry)
        self.failover_seconds = Gauge(
            "partition_controller_failover_seconds",
            "Duration of the last failover, by phase; phase ready is the whole.",
            ["phase"],
            registry=registry,
        )
        self.failovers = Counter(
            "partition_controller_failovers", "Failovers this process completed.", registry=registry
        )
        self.event_seconds = Histogram(
            f"{_PREFIX}_controllerstats_rateandtime_seconds",
            "Processing time of events, by controller state (RateAndTimeMs in the original).",
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
        self.pushes = Counter(
            "partition_controller_pushes",
            "Control requests by broker, kind and result.",
            ["broker_id", "kind", "result"],
            registry=registry,
        )
        self.push_seconds = Histogram(
            f"{_PREFIX}_controllerchannelmanager_requestrateandqueuetime_seconds",
            "Time from sending a control request to its answer, by broker.",
            ["broker_id"],
            registry=registry,
            buckets=_SECONDS,
        )
        self.rejects = Counter(
            "partition_controller_rejects", "Refused actions, by category.", ["error"], registry=registry
        )
        self.requests = Counter(
            "partition_controller_requests",
            "Requests of brokers, by method and top-level error.",
            ["method", "error"],
            registry=registry,
        )
        self.altered_partitions = Counter(
            "partition_controller_altered_partitions",
            "Proposed in-sync sets, by what became of them.",
            ["error"],
            registry=registry,
        )
        self.isr_changes = Counter(
            "partition_controller_isr_changes",
            "In-sync sets that lost members (shrink) or got new ones (expand), whoever decided it.",
            ["direction"],
            registry=registry,
        )
        self.resignations = Counter(
            "partition_controller_resignations", "Terms that ended, by reason.", ["reason"], registry=registry
        )


class GaugeSource(Collector):
    """Gauges computed when scraped, from whatever ``read`` returns.

    ``read`` yields (name, help, labels, value); the same name may come with several labels.
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
