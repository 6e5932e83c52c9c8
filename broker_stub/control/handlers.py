"""The handlers of control requests: parse, check epochs, decide, change the disk, log, respond.

One lock serialises the three handlers and the update of the broker epoch (reference, section 10, "Common gate").
They block on the disk, so they run outside the event loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog
from google.protobuf.message import DecodeError

from broker_stub.control import pages
from broker_stub.control.gates import ControllerTerm, Gate, Refusal
from broker_stub.control.metadata import MetadataCache
from broker_stub.control.replicas import (
    Answer,
    Applied,
    IsrChange,
    Plan,
    Reject,
    Replica,
    Replicas,
    Step,
    Transition,
)
from broker_stub.control.requests import (
    ControlRequest,
    Header,
    Key,
    Malformed,
    read_header,
    read_leader_and_isr,
    read_stop_replica,
    read_update_metadata,
)
from proto.gen import broker_control_pb2 as wire
from proto.gen import common_pb2 as codes
from proto.rate_limit import RateLimit

_log = structlog.get_logger("broker_stub.control.handlers")
_LIARS_MAX = 1000
_Request = TypeVar(
    "_Request",
    wire.LeaderAndIsrRequest,
    wire.StopReplicaRequest,
    wire.UpdateMetadataRequest,
    wire.DescribeStateRequest,
)


class Storage(Protocol):
    """What the handlers need of the disk."""

    def apply(self, steps: Sequence[Step]) -> Applied: ...

    def fail(self, path: Path, why: str) -> Iterable[Key]:
        """A data directory has failed. Returns its replicas."""
        ...


class StateLog(Protocol):
    """What the handlers need of the state-change log (`proto.statelog.writer.StateLogWriter`)."""

    def append(
        self,
        records: Iterable[dict[str, Any]],
        *,
        cause: str,
        controller_epoch: int = -1,
        event_id: int = 0,
        count: int = 1,
    ) -> None: ...


class DataPlane(Protocol):
    """Applies control requests to the data. Called in the order of the requests, under the lock."""

    def apply(self, cause: str, transitions: Sequence[Transition]) -> dict[Key, str]:
        """Apply role changes. Returns the partitions whose log failed, with the reason."""
        ...

    def metadata_changed(self, removed: Sequence[Key]) -> None:
        """The metadata cache changed; ``removed`` partitions are being or were deleted."""
        ...

    def on_disk(self, topics: Collection[str]) -> list[wire.LogDirReplica]:
        """Sizes of the replicas of these topics, or of all."""
        ...


class NoData:
    """Stands for the data plane of a broker without data."""

    def apply(self, cause: str, transitions: Sequence[Transition]) -> dict[Key, str]:  # noqa: ARG002
        return {}

    def metadata_changed(self, removed: Sequence[Key]) -> None:
        pass

    def on_disk(self, topics: Collection[str]) -> list[wire.LogDirReplica]:  # noqa: ARG002
        return []


class UnreadableRequest(Exception):  # noqa: N818  (the sender's fault)
    """The bytes do not decode as the method's request message."""


class ControlHandlers:
    """The broker's side of ``BrokerControl``. Thread-safe.

    ``sender`` is the caller's host. Each request may raise UnknownTerm: look at ZooKeeper, and call again with the
    ``term`` that was found.

    ``found``: the replicas that the disks held at start. ``on_storage_lost`` is called, outside the lock, when a data
    directory or a log fails.
    """

    def __init__(
        self,
        broker_id: int,
        storage: Storage,
        state_log: StateLog,
        found: Iterable[Replica] = (),
        on_storage_lost: Callable[[str], None] = lambda _why: None,
        data_plane: DataPlane | None = None,
    ) -> None:
        self.gate = Gate()
        self.metadata = MetadataCache()
        self.replicas = Replicas(broker_id, found)
        self._storage, self._state_log = storage, state_log
        self._on_storage_lost = on_storage_lost
        self._data_plane: DataPlane = data_plane or NoData()
        #: Term and broker epoch of the last full metadata snapshot that began.
        self._snapshot_term, self._snapshot_broker_epoch = (-1, -1), -1
        #: Hosts that named a controller epoch which ZooKeeper does not have: each is logged once.
        self._liars: set[str] = set()
        self._lock = threading.Lock()
        self._denials = RateLimit()

    def lifecycle(self, to: str, cause: str, reason: str) -> None:
        """Log a state of the broker itself: ``started``, ``registered`` or ``stopped``."""
        record = {"kind": "broker", "replica": self.replicas.broker_id, "to": to, "reason": reason}
        self._state_log.append([record], cause=cause, controller_epoch=self.gate.controller_epoch)

    def registered(self, broker_epoch: int) -> None:
        """The broker has registered; the czxid of the registration is its new broker epoch."""
        with self._lock:
            self.gate.broker_epoch = broker_epoch
        self.lifecycle("registered", "Registration", f"broker epoch {broker_epoch}")

    def control_denied(self, method: str, principal: str, host: str) -> None:
        """Log a control request of a caller who may not send any."""
        count = self._denials.admit()
        if not count:
            return
        record = {
            "kind": "request",
            "to": method,
            "principal": principal,
            "address": host,
            "error": codes.ErrorCode.Name(codes.CLUSTER_AUTHORIZATION_FAILED),
            **({"count": count} if count > 1 else {}),
        }
        self._state_log.append([record], cause=method, controller_epoch=self.gate.controller_epoch)

    def leader_and_isr(
        self, message: bytes, sender: str = "", term: ControllerTerm | None = None
    ) -> wire.LeaderAndIsrResponse:
        """Serve LeaderAndIsr (section 10.1). Raises UnreadableRequest, UnknownTerm."""
        request = self._parse(wire.LeaderAndIsrRequest, message, "LeaderAndIsr")
        items = read_leader_and_isr(request)
        error, answers = self._change_replicas(
            "LeaderAndIsr",
            request,
            sender,
            term,
            lambda: self.replicas.plan_leader_and_isr(items, self.metadata.is_live),
        )
        return wire.LeaderAndIsrResponse(
            error_code=error,
            partition_errors=_partition_errors(answers),
            controller_epoch=self._known_epoch(),
        )

    def stop_replica(
        self, message: bytes, sender: str = "", term: ControllerTerm | None = None
    ) -> wire.StopReplicaResponse:
        """Serve StopReplica (section 10.2). Raises UnreadableRequest, UnknownTerm."""
        request = self._parse(wire.StopReplicaRequest, message, "StopReplica")
        items = read_stop_replica(request)
        error, answers = self._change_replicas(
            "StopReplica", request, sender, term, lambda: self.replicas.plan_stop_replica(items)
        )
        return wire.StopReplicaResponse(
            error_code=error,
            partition_errors=_partition_errors(answers),
            controller_epoch=self._known_epoch(),
        )

    def update_metadata(
        self, message: bytes, sender: str = "", term: ControllerTerm | None = None
    ) -> wire.UpdateMetadataResponse:
        """Serve UpdateMetadata (section 10.2). Raises UnreadableRequest, UnknownTerm.

        A malformed partition is skipped and the rest is merged. The response is then INVALID_REQUEST, because it has no
        errors per partition.
        """
        request = self._parse(wire.UpdateMetadataRequest, message, "UpdateMetadata")
        header, update = read_header(request), read_update_metadata(request)
        if isinstance(update, Malformed) and not isinstance(header, Malformed):
            header = update  # refused as a whole: its controller epoch is not remembered
        with self._lock:
            admitted = self._admit("UpdateMetadata", header, sender, term)
            if isinstance(admitted, Refusal) or isinstance(update, Malformed):
                error = admitted.error if isinstance(admitted, Refusal) else codes.INVALID_REQUEST
                if error == codes.INVALID_REQUEST:
                    self.metadata.abandon_snapshot()
                return wire.UpdateMetadataResponse(error_code=error, controller_epoch=self._known_epoch())
            known = self.gate.controller_epoch, self.gate.term_zxid
            if known != self._snapshot_term or admitted.broker_epoch > self._snapshot_broker_epoch:
                self._snapshot_term = known
                self._snapshot_broker_epoch = max(admitted.broker_epoch, self._snapshot_broker_epoch)
                self.metadata.begin_snapshot()
            merged = self.metadata.merge(admitted.controller_id, update)
            invalid = codes.ErrorCode.Name(codes.INVALID_REQUEST)
            rejects = [Reject(item.key, invalid, item.reason) for item in merged.malformed]
            self._log_records("UpdateMetadata", admitted, [], rejects)
            self._data_plane.metadata_changed(merged.removed)
        _log.debug(
            "metadata updated",
            controller_epoch=admitted.controller_epoch,
            event_id=admitted.event_id,
            brokers=len(update.live_brokers),
            partitions=merged.updated,
            removed=len(merged.removed),
        )
        return wire.UpdateMetadataResponse(
            error_code=codes.INVALID_REQUEST if rejects else codes.NONE, controller_epoch=self._known_epoch()
        )

    def describe_state(
        self, message: bytes, sender: str = "", term: ControllerTerm | None = None
    ) -> wire.DescribeStateResponse:
        """Serve DescribeState: what earlier requests told, as digests and in pages. Raises UnreadableRequest,
        UnknownTerm.

        With a fence, requests of earlier controllers are refused from before it is read: under one lock, so none is
        carried out in between.
        """
        request = self._parse(wire.DescribeStateRequest, message, "DescribeState")
        fenced = request.HasField("fence")
        with self._lock:
            if fenced:
                header = read_header(request.fence)
                admitted = self._admit("DescribeState", header, sender, term, changes=False)
                if isinstance(admitted, Refusal):
                    return wire.DescribeStateResponse(
                        error_code=admitted.error, controller_epoch=self._known_epoch()
                    )
            response = pages.answer(request, self.gate, self._known_epoch(), self.replicas, self.metadata)
            response.fenced = fenced
        if request.HasField("log_dirs"):
            response.on_disk.extend(self._data_plane.on_disk(frozenset(request.log_dirs.topics)))
        return response

    def isr_changed(self, change: IsrChange) -> None:
        """An ISR change that this broker proposed as leader is durable."""
        with self._lock:
            after = change.after
            self.replicas.isr_changed(change.key, change.leader_epoch, after, change.partition_epoch)
            if change.before != after:  # else only the directories of its members were told
                self._append([change.record(self.replicas.broker_id)], "IsrChange")

    def replicas_failed(self, keys: Iterable[Key], why: str) -> None:
        """The disk failed for these replicas, outside of a request: take them offline and notify the controller."""
        with self._lock:
            offline = self._take_offline(keys, why)
        if offline:
            _log.error("replicas are offline", count=len(offline), reason=why)
            self._on_storage_lost(why)

    def directory_failed(self, path: Path, why: str) -> None:
        """A data directory failed, outside of a request: its replicas go offline, and the controller is notified."""
        with self._lock:
            self.replicas.directory_failed = True
            offline = self._take_offline(self._storage.fail(path, why), why)
        _log.error("data directory failed: its replicas are offline", count=len(offline), reason=why)
        self._on_storage_lost(why)

    def _take_offline(self, keys: Iterable[Key], why: str) -> list[Transition]:
        offline = self.replicas.fail(keys, why)
        self._append([t.record(self.replicas.broker_id) for t in offline], "StorageFailure")
        return offline

    def _append(self, records: list[dict[str, Any]], cause: str) -> None:
        if records:
            self._state_log.append(records, cause=cause, controller_epoch=self.gate.controller_epoch)

    def describe(self) -> dict[str, Any]:
        """The state of the control side as JSON-ready values."""
        with self._lock:
            return {
                "broker_id": self.replicas.broker_id,
                "broker_epoch": self.gate.broker_epoch,
                "controller_epoch": self.gate.controller_epoch,
                "replicas": self.replicas.describe(),
                "metadata": self.metadata.describe(),
            }

    def _parse(self, kind: type[_Request], message: bytes, cause: str) -> _Request:
        try:
            return kind.FromString(message)
        except DecodeError as error:
            reason = f"{len(message)} bytes are not a {kind.__name__}: {error}"
            with self._lock:
                self._reject_whole(cause, 0, Refusal(codes.INVALID_REQUEST, reason))
            raise UnreadableRequest(reason) from error

    def _change_replicas(
        self,
        cause: str,
        request: ControlRequest,
        sender: str,
        term: ControllerTerm | None,
        plan_of: Callable[[], Plan],
    ) -> tuple[codes.ErrorCode, list[Answer]]:
        with self._lock:
            admitted = self._admit(cause, read_header(request), sender, term)
            if isinstance(admitted, Refusal):
                return admitted.error, []  # a response with a top-level error lists no partitions
            plan = plan_of()
            applied = self._storage.apply(plan.steps)
            outcome = self.replicas.complete(plan, applied.failed)
            transitions = outcome.transitions
            if applied.lost:
                self.replicas.directory_failed = True
                transitions = transitions + self.replicas.fail(applied.gone, applied.lost)
            refused = self._data_plane.apply(cause, transitions)
            if refused:
                outcome = self.replicas.refuse(outcome._replace(transitions=transitions), refused)
                transitions = outcome.transitions
            self._log_records(cause, admitted, transitions, outcome.rejects)
        log = _log.bind(controller_epoch=admitted.controller_epoch, event_id=admitted.event_id)
        log.info(
            "replicas changed",
            cause=cause,
            partitions=len(outcome.answers),
            changed=len(transitions),
            refused=len(outcome.rejects),
        )
        for (topic, partition), why in list((applied.failed | refused).items())[:10]:
            log.error("replica is offline", topic=topic, partition=partition, reason=why)
        if applied.lost:
            log.error(
                "data directory failed: its replicas are offline",
                count=len(applied.gone),
                reason=applied.lost,
            )
        if applied.lost or refused:
            self._on_storage_lost(applied.lost or next(iter(refused.values())))
        return codes.NONE, outcome.answers

    def _known_epoch(self) -> int:
        """For the answers: with it, a controller that is refused learns which epoch it has to exceed."""
        return max(self.gate.controller_epoch, 0)

    def _admit(
        self,
        cause: str,
        header: Header | Malformed,
        sender: str,
        term: ControllerTerm | None,
        *,
        changes: bool = True,
    ) -> Header | Refusal:
        if isinstance(header, Malformed):
            refusal = Refusal(codes.INVALID_REQUEST, header.reason)
            self._reject_whole(cause, 0, refusal)
            return refusal
        refused = self.gate.admit(header, term, changes=changes)
        if refused is not None:
            if header.controller_epoch > self.gate.controller_epoch:
                refused = refused._replace(reason=f"{refused.reason} (sent by {sender or 'nobody known'})")
                if sender in self._liars:
                    return refused
                self._liars = {*self._liars, sender} if len(self._liars) < _LIARS_MAX else {sender}
            self._reject_whole(cause, header.event_id, refused)
            return refused
        return header

    def _reject_whole(self, cause: str, event_id: int, refusal: Refusal) -> None:
        reject = Reject(None, codes.ErrorCode.Name(refusal.error), refusal.reason)
        epoch = self.gate.controller_epoch
        self._state_log.append([reject.record()], cause=cause, controller_epoch=epoch, event_id=event_id)
        _log.warning("request refused", cause=cause, error=reject.error, reason=reject.reason)

    def _log_records(
        self, cause: str, header: Header, transitions: list[Transition], rejects: list[Reject]
    ) -> None:
        """Pass the records as a generator: the log's own thread builds them."""
        redundant = sum(reject.redundant for reject in rejects)
        count = len(transitions) + len(rejects) - redundant + (redundant > 0)
        if count == 0:
            return
        broker_id = self.replicas.broker_id

        def records() -> Iterable[dict[str, Any]]:
            yield from (transition.record(broker_id) for transition in transitions)
            yield from (reject.record() for reject in rejects if not reject.redundant)
            # After a failover the controller sends every replica its known state: one record covers them all.
            if redundant:
                yield {
                    "kind": "unchanged",
                    "to": cause,
                    "count": redundant,
                    "reason": "leader epochs already known",
                }

        self._state_log.append(
            records(),
            cause=cause,
            controller_epoch=header.controller_epoch,
            event_id=header.event_id,
            count=count,
        )


def _partition_errors(answers: list[Answer]) -> list[codes.PartitionError]:
    make = codes.PartitionError
    return [make(topic=a.key[0], partition=a.key[1], error_code=a.error) for a in answers]
