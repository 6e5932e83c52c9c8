"""OpenTelemetry: one trace for each event, from its arrival to the last acknowledgement that it caused.

| span | from | to |
|---|---|---|
| the event (``BrokerChange``) | it arrived | it is decided, and all of it is durable |
| ``queue`` | it arrived | it began to be handled |
| ``election``, ``brokers``, ... | a phase of a failover began | ended |
| ``Read...``, ``Commit`` | ZooKeeper was asked | it answered |
| ``LeaderAndIsr``, ... | a request was sent to a broker | the broker answered, maybe after the event's end |

Spans are made when what they tell is over. They are sent by a thread of the library, in batches; what a collector
that is away or slow does not take is dropped. Spans name no topics and nobody who asked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from controller.core.events import Finished
from controller.core.records import FailoverPhase, LogBatch, PushAcknowledged
from controller.errors import ConfigError
from controller.runtime.config import Settings
from controller.runtime.observe.trace_ids import TraceIds
from proto.security.access import ACCEPTED
from proto.security.callers import is_loopback
from proto.security.grpc_channels import GrpcTls

if TYPE_CHECKING:
    # The packages are an extra.
    from opentelemetry.sdk.trace.export import SpanExporter

_SETTING = "otlp_endpoint"
_INSTALL = "nothing, unless the packages of partition-controller[traces] are installed"
_BEYOND = (
    "https:// for another machine than this one, so that spans are encrypted, or insecure_listen = accepted"
)


class Traces:
    """Tells one collector of the events of this process."""

    def __init__(self, ids: TraceIds, exporter: SpanExporter, controller_id: int) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        class Named(RandomIdGenerator):
            """The id of an event's own span is known before it is made."""

            trace = span = ""

            def generate_trace_id(self) -> int:
                return int(self.trace, 16)

            def generate_span_id(self) -> int:
                if not self.span:
                    return super().generate_span_id()
                span, self.span = self.span, ""
                return int(span, 16)

        self.ids = ids
        self._named = Named()
        who = {
            "service.name": "partition-controller",
            "service.instance.id": str(controller_id),
            "partition_controller.process": ids.process,
        }
        self._provider = TracerProvider(
            resource=Resource.create(who), id_generator=self._named, shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("partition-controller")

    def finished(self, done: Finished, controller_epoch: int) -> None:
        """An event is over. It is told of after its last step's work, which must not move its beginning."""
        from opentelemetry.context import Context

        # In this order: a pause between the two makes the event earlier, never later than what it caused.
        end = time.time_ns() - (time.monotonic_ns() - done.ended_us * 1000)
        arrived = end - (done.took_us + done.queued_us) * 1000
        self._named.trace = self.ids.of(controller_epoch, done.event_id)
        self._named.span = self.ids.root(controller_epoch, done.event_id)
        attributes = {"controller_epoch": controller_epoch, "event_id": done.event_id}
        span = self._tracer.start_span(done.kind.value, Context(), attributes=attributes, start_time=arrived)
        span.end(end)
        self._child(controller_epoch, done.event_id, "queue", arrived, arrived + done.queued_us * 1000)

    def recorded(self, batch: LogBatch, controller_epoch: int) -> None:
        """Phases and acknowledgements are spans; other records are not."""
        for phase in batch.of(FailoverPhase):
            # The whole is the event's own span.
            if phase.phase != "ready":
                self._lasted(
                    controller_epoch, batch.event_id, phase.phase, phase.duration_us, {"count": phase.count}
                )
        for ack in batch.of(PushAcknowledged):
            told: dict[str, str | int] = {"broker": ack.broker_id, "count": ack.count}
            self._lasted(controller_epoch, batch.event_id, ack.message, ack.duration_us, told, ack.error)

    def performed(self, name: str, count: int, controller_epoch: int, event_id: int, took_us: int) -> None:
        """ZooKeeper answered."""
        self._lasted(controller_epoch, event_id, name, took_us, {"count": count})

    def close(self) -> None:
        """Send what is left, for some seconds at most."""
        self._provider.shutdown()

    def _lasted(
        self,
        controller_epoch: int,
        event_id: int,
        name: str,
        duration_us: int,
        attributes: Mapping[str, str | int],
        error: str = "",
    ) -> None:
        end = time.time_ns()
        began = end - duration_us * 1000
        self._child(controller_epoch, event_id, name, began, end, attributes, error)

    def _child(
        self,
        controller_epoch: int,
        event_id: int,
        name: str,
        began_ns: int,
        end_ns: int,
        attributes: Mapping[str, str | int] | None = None,
        error: str = "",
    ) -> None:
        from opentelemetry import trace

        if not event_id:
            return
        parent = trace.SpanContext(
            int(self.ids.of(controller_epoch, event_id), 16),
            int(self.ids.root(controller_epoch, event_id), 16),
            is_remote=False,
            trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
        )
        context = trace.set_span_in_context(trace.NonRecordingSpan(parent))
        span = self._tracer.start_span(name, context, attributes=dict(attributes or {}), start_time=began_ns)
        if error:
            span.set_status(trace.Status(trace.StatusCode.ERROR, error))
        span.end(end_ns)


def open_traces(settings: Settings, tls: GrpcTls | None, ids: TraceIds) -> Traces:
    """Traces that are sent to the collector of ``otlp_endpoint``. Raises ConfigError."""
    endpoint, source = settings.otlp_endpoint, settings.sources.get(_SETTING, "")
    address = urlsplit(endpoint)
    encrypted = address.scheme == "https"
    if not encrypted and settings.insecure_listen != ACCEPTED and not is_loopback(address.hostname or ""):
        raise ConfigError(_SETTING, endpoint, _BEYOND, source)
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise ConfigError(_SETTING, endpoint, _INSTALL, source) from None
    credentials = tls.channel_credentials() if encrypted and tls is not None else None
    exporter = OTLPSpanExporter(address.netloc, insecure=not encrypted, credentials=credentials, timeout=5)
    return Traces(ids, exporter, settings.controller_id)
