"""Making ISR changes durable, the two ways there are (reference, section 8.4).

`AlterPartitionWriter` asks the controller (from 2.7 on). `NotificationWriter` writes the state itself and tells
the controller afterwards, in batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from broker_stub.control.requests import Key
from broker_stub.replication.ports import IsrProposal, IsrResult, IsrUnanswered
from broker_stub.rpc.peers import Peers, PeerUnavailable, join_address
from broker_stub.zookeeper.client import StoreUnavailable
from broker_stub.zookeeper.codecs import (
    MalformedZnode,
    PartitionState,
    decode_state,
    encode_state,
    state_path,
)
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as wire

_log = structlog.get_logger("broker_stub.zookeeper.isr_writers")

#: Kafka's, milliseconds (reference, section 8.4).
CHECK_INTERVAL_MS = 2_500
QUIET_MS = 5_000
SILENCE_MAX_MS = 60_000


class ControllerFinder(Protocol):
    """What `broker_stub.zookeeper.client.ClusterStore` knows of the controller."""

    async def controller_endpoint(self) -> tuple[str, int] | None:
        """Raises StoreUnavailable, MalformedZnode."""
        ...


class StateStore(Protocol):
    """What `broker_stub.zookeeper.client.ClusterStore` does with partition states. All raise StoreUnavailable."""

    async def get_state(self, topic: str, partition: int) -> tuple[bytes, int] | None:
        """The state and its version; None: there is none."""
        ...

    async def set_state(self, topic: str, partition: int, data: bytes, version: int) -> int | None:
        """The new version; None: it had another version, or is gone."""
        ...

    async def notify_isr_changes(self, partitions: Sequence[Key]) -> None: ...


def error_name(code: int) -> str:
    """Kafka's name; a code that is newer than we are, by number."""
    known = codes.ErrorCode.DESCRIPTOR.values_by_number.get(code)
    return known.name if known else f"error {code}"


class AlterPartitionWriter:
    """Proposes ISRs to the active controller.

    ``broker_epoch()``: that of the present registration, -1 while there is none.
    """

    def __init__(
        self,
        peers: Peers,
        store: ControllerFinder,
        broker_id: int,
        broker_epoch: Callable[[], int],
        timeout_s: float = 10.0,
    ) -> None:
        self._peers, self._store = peers, store
        self._broker_id, self._broker_epoch = broker_id, broker_epoch
        self._timeout_s = timeout_s
        #: The controller that answered last; None: to be looked up.
        self._controller: tuple[str, int] | None = None

    async def propose(self, proposals: Sequence[IsrProposal]) -> Sequence[IsrResult | None]:
        """One result for each, in order; None where the answer leaves it out. Raises IsrUnanswered; the controller is
        then looked up anew."""
        if not proposals:
            return ()
        address = await self._find_controller()
        if (broker_epoch := self._broker_epoch()) < 0:
            raise IsrUnanswered("this broker is not registered: it has no broker epoch to propose ISRs with")
        partitions = [_partition_state(proposal) for proposal in proposals]
        request = wire.AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=broker_epoch, partitions=partitions
        )
        try:
            response = await self._peers.alter_partition(address, request, self._timeout_s)
        except PeerUnavailable as error:
            self._controller = None
            raise IsrUnanswered(str(error)) from error
        if response.error_code != codes.NONE:
            self._controller = None
            raise IsrUnanswered(
                f"controller {join_address(address)} refused the request of broker {self._broker_id}, broker"
                f" epoch {broker_epoch}: {error_name(response.error_code)}"
            )
        answers = {(answer.topic, answer.partition): answer for answer in response.partitions}
        if any(answer.error_code == codes.NOT_CONTROLLER for answer in answers.values()):
            # It takes itself for a zombie (check 2).
            self._controller = None
        found = ((proposal.key, answers.get(proposal.key)) for proposal in proposals)
        return [None if answer is None else _result(key, answer) for key, answer in found]

    async def _find_controller(self) -> tuple[str, int]:
        if self._controller is None:
            try:
                self._controller = await self._store.controller_endpoint()
            except (StoreUnavailable, MalformedZnode) as error:
                raise IsrUnanswered(f"the controller cannot be found: {error}") from error
        if self._controller is None:
            raise IsrUnanswered("there is no active controller")
        return self._controller


def _partition_state(proposal: IsrProposal) -> wire.AlterPartitionState:
    topic, partition = proposal.key
    return wire.AlterPartitionState(
        topic=topic,
        topic_id=proposal.topic_id or "",
        partition=partition,
        leader_epoch=proposal.leader_epoch,
        new_isr=proposal.isr,
        leader_recovery_state=codes.RECOVERED,
        partition_epoch=proposal.partition_epoch,
    )


def _result(key: Key, answer: wire.AlteredPartition) -> IsrResult:
    if answer.error_code != codes.NONE:
        return IsrResult(key, answer.error_code)
    isr = tuple(answer.isr)
    return IsrResult(key, codes.NONE, answer.leader, answer.leader_epoch, isr, answer.partition_epoch)


class PropagationTimer:
    """When to tell the controller what changed. Pure: ``now_ms`` is of any clock that only goes forward."""

    def __init__(self, now_ms: int) -> None:
        self._taken_ms = self._changed_ms = now_ms
        self._changed: dict[Key, None] = {}

    def changed(self, key: Key, now_ms: int) -> None:
        self._changed[key] = None
        self._changed_ms = now_ms

    def take(self, now_ms: int) -> Sequence[Key]:
        """What is to be told now, to be told once: all changes, if none came for `QUIET_MS` or if none were taken
        for `SILENCE_MAX_MS`; else nothing."""
        quiet = now_ms - self._changed_ms >= QUIET_MS
        if not self._changed or not (quiet or now_ms - self._taken_ms >= SILENCE_MAX_MS):
            return ()
        keys, self._changed = tuple(self._changed), {}
        self._taken_ms = now_ms
        return keys

    def put_back(self, keys: Sequence[Key]) -> None:
        """Those could not be told: they are due again when the next are."""
        self._changed = dict.fromkeys(keys) | self._changed


class NotificationWriter:
    """Writes ISRs into the partition states, as their leader ``broker_id``. ``now_ms``: a monotonic clock.

    `run` has to run beside it, for the controller to hear of the changes.
    """

    def __init__(self, store: StateStore, broker_id: int, now_ms: Callable[[], int]) -> None:
        self._store, self._broker_id, self._now_ms = store, broker_id, now_ms
        self._timer = PropagationTimer(now_ms())

    async def propose(self, proposals: Sequence[IsrProposal]) -> Sequence[IsrResult]:
        """One result for each, in order. Raises IsrUnanswered when ZooKeeper did not answer for any of them.

        INVALID_UPDATE_VERSION: somebody else has changed the state. UNKNOWN_TOPIC_OR_PARTITION: it is gone.
        """
        outcomes = await asyncio.gather(*map(self._write, proposals), return_exceptions=True)
        results: list[IsrResult] = []
        for outcome in outcomes:
            if isinstance(outcome, StoreUnavailable):
                raise IsrUnanswered(str(outcome)) from outcome
            if isinstance(outcome, BaseException):
                raise outcome
            results.append(outcome)
        return results

    async def _write(self, proposal: IsrProposal) -> IsrResult:
        topic, partition = proposal.key
        state = PartitionState(
            self._broker_id,
            proposal.leader_epoch,
            proposal.controller_epoch,
            proposal.isr,
        )
        data, version = encode_state(state), proposal.partition_epoch
        new_version = await self._store.set_state(topic, partition, data, version)
        if new_version is None:
            found = await self._store.get_state(topic, partition)
            if found is None:
                return IsrResult(proposal.key, codes.UNKNOWN_TOPIC_OR_PARTITION)
            stored, version = _understood(proposal.key, found[0]), found[1]
            if stored == state:
                # As the original: what is written is what counts, whoever wrote it and at whatever version.
                new_version = version
            elif _written_by_us(proposal, state, stored, version):
                new_version = await self._store.set_state(topic, partition, data, version)
            if new_version is None:
                return IsrResult(proposal.key, codes.INVALID_UPDATE_VERSION)
        self._timer.changed(proposal.key, self._now_ms())
        return IsrResult(proposal.key, codes.NONE, state.leader, state.leader_epoch, state.isr, new_version)

    async def run(self) -> None:
        """Tell the controller of changes until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_MS / 1000)
            await self.propagate()

    async def propagate(self) -> None:
        """Tell it now if it is time to; what ZooKeeper does not take stays for the next time."""
        keys = self._timer.take(self._now_ms())
        if not keys:
            return
        try:
            await self._store.notify_isr_changes(keys)
        except StoreUnavailable as error:
            _log.warning("ISR changes not told to the controller yet", partitions=len(keys), why=str(error))
            self._timer.put_back(keys)


def _understood(key: Key, data: bytes) -> PartitionState | None:
    try:
        return decode_state(state_path(*key), data)
    except MalformedZnode as error:
        _log.warning("partition state not understood", problem=str(error))
        return None


def _written_by_us(
    proposal: IsrProposal, state: PartitionState, stored: PartitionState | None, version: int
) -> bool:
    """Whether an unexpected version is our own earlier write, of which we had no answer.

    While a leader epoch lasts only its leader writes the state; the controller raises it with every change of
    its own. The controller epoch and a version that has grown tell a topic of the same name that is new.
    """
    return stored is not None and version > proposal.partition_epoch and stored[:3] == state[:3]
