"""Events as spans of OpenTelemetry: their ids, their order, and which endpoints are refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from controller.core.events import EventKind, Finished
from controller.core.records import BrokerChange, FailoverPhase, LogBatch, PushAcknowledged
from controller.errors import ConfigError
from controller.runtime.config import Settings
from controller.runtime.observe.trace_ids import NOT_TRACED, trace_ids
from controller.runtime.observe.traces import Traces, open_traces
from controller.runtime.term import now_us

IDS = trace_ids("0123456789abcdef" * 2)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traces(exporter: InMemorySpanExporter) -> Iterator[Traces]:
    opened = Traces(IDS, exporter, 3)
    yield opened
    opened.close()


def spans(traces: Traces, exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    traces.close()
    return {span.name: span for span in exporter.get_finished_spans()}


def test_an_id_names_process_epoch_and_event() -> None:
    assert IDS.of(7, 12) == "0123456789abcdef000000070000000c"
    assert IDS.root(7, 12) == "000000070000000c"
    assert len(IDS.of(2**31 - 1, 2**40)) == 32


def test_outside_any_event_and_untraced_there_is_no_id() -> None:
    assert IDS.of(7, 0) == NOT_TRACED.of(7, 12) == ""


def test_an_event_and_what_it_caused_are_one_trace(traces: Traces, exporter: InMemorySpanExporter) -> None:
    pushed = LogBatch([PushAcknowledged(2, "LeaderAndIsr", 40, 3000, "STALE_BROKER_EPOCH")], event_id=12)
    traces.recorded(pushed, 7)
    traces.recorded(
        LogBatch([FailoverPhase("brokers", 6, 2000), FailoverPhase("ready", 0, 9000)], event_id=12), 7
    )
    traces.recorded(LogBatch([BrokerChange(1, "offline")], event_id=12), 7)
    traces.performed("Commit", 500, 7, 12, 10)
    traces.finished(Finished(EventKind.FAILOVER, 12, 500, 8000, now_us()), 7)
    found = spans(traces, exporter)
    assert found.keys() == {"LeaderAndIsr", "brokers", "Commit", "ControllerFailover", "queue"}
    assert {f"{span.context.trace_id:032x}" for span in found.values()} == {IDS.of(7, 12)}
    root = found.pop("ControllerFailover")
    assert root.parent is None
    assert f"{root.context.span_id:016x}" == IDS.root(7, 12)
    assert {span.parent.span_id for span in found.values() if span.parent} == {root.context.span_id}
    assert len({span.context.span_id for span in found.values()} | {root.context.span_id}) == 5


def test_spans_last_as_long_as_what_they_tell(traces: Traces, exporter: InMemorySpanExporter) -> None:
    traces.recorded(LogBatch([PushAcknowledged(2, "LeaderAndIsr", 40, 3000)], event_id=12), 7)
    traces.finished(Finished(EventKind.BROKER_CHANGE, 12, 500, 8000, now_us()), 7)
    found = spans(traces, exporter)
    lasted = {name: ((span.end_time or 0) - (span.start_time or 0)) // 1000 for name, span in found.items()}
    assert lasted == {"LeaderAndIsr": 3000, "BrokerChange": 8500, "queue": 500}
    assert found["queue"].start_time == found["BrokerChange"].start_time


def test_an_event_that_is_told_of_late_began_before_what_it_caused(
    traces: Traces, exporter: InMemorySpanExporter
) -> None:
    minute = 60_000_000
    traces.recorded(LogBatch([PushAcknowledged(2, "LeaderAndIsr", 40, 3000)], event_id=12), 7)
    traces.finished(Finished(EventKind.CONTROLLED_SHUTDOWN, 12, 500, 1000, now_us() - minute), 7)
    found = spans(traces, exporter)
    assert (found["ControlledShutdown"].start_time or 0) < (found["LeaderAndIsr"].start_time or 0)


def test_a_refused_push_is_an_error(traces: Traces, exporter: InMemorySpanExporter) -> None:
    for error in ("", "STALE_BROKER_EPOCH"):
        traces.recorded(LogBatch([PushAcknowledged(2, "LeaderAndIsr", 1, 1, error)], event_id=1), 7)
    traces.close()
    fine, refused = exporter.get_finished_spans()
    assert fine.status.status_code is StatusCode.UNSET
    assert (refused.status.status_code, refused.status.description) == (
        StatusCode.ERROR,
        "STALE_BROKER_EPOCH",
    )


def test_what_belongs_to_no_event_is_no_span(traces: Traces, exporter: InMemorySpanExporter) -> None:
    traces.recorded(LogBatch([PushAcknowledged(2, "LeaderAndIsr", 1, 1)]), 7)
    assert spans(traces, exporter) == {}


@pytest.mark.parametrize("host", ["collector.example", "192.0.2.7", "[2001:db8::1]"])
def test_spans_leave_this_machine_encrypted_or_by_the_word(host: str) -> None:
    settings = Settings(otlp_endpoint=f"http://{host}:4317", sources={"otlp_endpoint": "environment"})
    with pytest.raises(ConfigError, match=r"otlp_endpoint.*environment.*https://|otlp_endpoint.*https://"):
        open_traces(settings, None, IDS)
    accepted = Settings(otlp_endpoint=f"http://{host}:4317", insecure_listen="accepted")
    open_traces(accepted, None, IDS).close()


def test_a_collector_by_tls_is_shown_what_others_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    class Exporter(InMemorySpanExporter):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__()
            opened.append((args, named))

    monkeypatch.setattr("opentelemetry.exporter.otlp.proto.grpc.trace_exporter.OTLPSpanExporter", Exporter)
    tls: Any = SimpleNamespace(channel_credentials=lambda: "credentials")
    for scheme, with_tls in (("https", tls), ("https", None), ("http", tls)):
        open_traces(Settings(otlp_endpoint=f"{scheme}://127.0.0.1:4317"), with_tls, IDS).close()
    assert [(args[0], named["insecure"], named["credentials"]) for args, named in opened] == [
        ("127.0.0.1:4317", False, "credentials"),
        ("127.0.0.1:4317", False, None),
        ("127.0.0.1:4317", True, None),
    ]


def test_without_the_packages_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"partition-controller\[traces\]"):
        open_traces(Settings(otlp_endpoint="http://127.0.0.1:4317"), None, IDS)
