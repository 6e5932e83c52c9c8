"""A controller that tells a collector of OpenTelemetry: one id from the watch to the last acknowledgement."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from controller.runtime.zookeeper import cluster_reader
from tests.integration.conftest import create, read_records
from tests.support.ports import free_port
from tests.support.runtime import clusters
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the spans that it is sent, by trace."""

    def __init__(self) -> None:
        self.traces: dict[str, dict[str, list[Span]]] = defaultdict(lambda: defaultdict(list))

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.traces[span.trace_id.hex()][span.name].append(span)
        return trace_service_pb2.ExportTraceServiceResponse()

    def with_spans(self, *names: str) -> str:
        """The trace that has all of these; empty: none has."""
        return next((id_ for id_, spans in list(self.traces.items()) if set(names) <= set(spans)), "")


@pytest.fixture
def collector() -> Iterator[tuple[Collector, int]]:
    server = grpc.server(ThreadPoolExecutor(2))
    kept = Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(kept, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield kept, port
    server.stop(None)


async def test_one_id_from_the_watch_to_the_last_acknowledgement(
    collector: tuple[Collector, int], zookeeper: str, tmp_path: Path
) -> None:
    kept, port = collector
    traced = {
        "PARTITION_CONTROLLER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    with (
        clusters.controller(zookeeper, tmp_path, changes=traced) as active,
        clusters.brokers(zookeeper, tmp_path, 2) as (first, _),
    ):
        async with cluster_reader.connected(zookeeper, 20_000) as session:
            await create(session, "t", {0: [1, 2]})
            await until(
                lambda: bool(kept.with_spans("TopicChange", "LeaderAndIsr", "Commit")), "a topic's trace"
            )
        first.terminate()
        # A controlled shutdown first, then the registration is gone.
        await until(
            lambda: bool(kept.with_spans("ControlledShutdown", "LeaderAndIsr")), "a trace of the shutdown"
        )
        await until(lambda: bool(kept.with_spans("BrokerChange", "UpdateMetadata")), "a trace of the loss")
        trace_id = kept.with_spans("ControlledShutdown", "LeaderAndIsr")
        spans = kept.traces[trace_id]
        (root,) = spans["ControlledShutdown"]
        assert not root.parent_span_id
        assert {span.parent_span_id for span in spans["LeaderAndIsr"]} == {root.span_id}
        assert min(span.start_time_unix_nano for span in spans["LeaderAndIsr"]) > root.start_time_unix_nano

        (told,) = [e for e in clusters.lines(active, "event_processed") if e.get("trace_id") == trace_id]
        assert told["handled"] == "ControlledShutdown"
        metrics = clusters.http(active, "/metrics", "application/openmetrics-text; version=1.0.0")
        exemplar = rf'state="ControlledShutdown".*# {{trace_id="{trace_id}"}}'
        assert re.search(rf"rateandtime_seconds_bucket.*{exemplar}", metrics)
        assert "trace_id" not in clusters.http(active, "/metrics"), (
            "not for those who do not ask for OpenMetrics"
        )
    written = [r for r in read_records(tmp_path / "log-1") if r.get("trace_id") == trace_id]
    assert {r["cause"] for r in written} == {"ControlledShutdown"}
    assert {"leader", "push", "ack"} <= {r["kind"] for r in written}


async def test_a_collector_that_is_away_holds_nothing_up(zookeeper: str, tmp_path: Path) -> None:
    traced = {"PARTITION_CONTROLLER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    with (
        clusters.controller(zookeeper, tmp_path, changes=traced) as active,
        clusters.brokers(zookeeper, tmp_path, 1),
    ):
        async with cluster_reader.connected(zookeeper, 20_000) as session:
            await create(session, "t", {0: [1]})
            handled = "TopicChange"
            await until(
                lambda: any(e["handled"] == handled for e in clusters.lines(active, "event_processed")),
                handled,
            )
        assert active.terminate() == 0
