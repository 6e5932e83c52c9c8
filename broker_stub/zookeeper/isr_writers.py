"""The two implementations of `IsrWriter` (reference, section 8.4).

`AlterPartitionWriter` sends ISR changes to the controller (since 2.7). `NotificationWriter` writes the partition state
to ZooKeeper and notifies the controller afterwards, in batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from broker_stub.control.requests import Key
from broker_stub.data_identity import UNKNOWN, of_broker
from broker_stub.replication.ports import IsrProposal, IsrResult, IsrUnanswered
from broker_stub.rpc.peers import Peers, PeerUnavailable
from broker_stub.zookeeper.client import StoreUnavailable
from broker_stub.zookeeper.codecs import (
    MalformedZnode,
    PartitionState,
    decode_directories,
    decode_state,
    encode_state,
    state_path,
)
from proto.addresses import join_address
from proto.error_names import error_name
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as wire

_log = structlog.get_logger("broker_stub.zookeeper.isr_writers")

#: Kafka's values, milliseconds (reference, section 8.4).
CHECK_INTERVAL_MS = 2_500
QUIET_MS = 5_000
SILENCE_MAX_MS = 60_000
#: Proposals in one request: the controller refuses more. Those left out are not answered, so they are made again.
PROPOSALS_MAX = 100_000


class ControllerFinder(Protocol):
    """Finds the controller (`broker_stub.zookeeper.client.ClusterStore`)."""

    async def controller_endpoint(self) -> tuple[str, int] | None:
        """Host and port; None: no active controller. Raises StoreUnavailable, MalformedZnode."""
        ...


class StateStore(Protocol):
    """Partition states in ZooKeeper (`broker_stub.zookeeper.client.ClusterStore`). All raise StoreUnavailable."""

    async def get_state(
        self, topic: str, partition: int, *, latest: bool = False
    ) -> tuple[bytes, int] | None:
        """The state and its version; None: the znode does not exist. ``latest``: not from a server that is behind."""
        ...

    async def set_state(self, topic: str, partition: int, data: bytes, version: int) -> int | None:
        """The new version; None: the znode had another version or does not exist."""
        ...

    async def get_registration(self, broker_id: int) -> tuple[bytes, int] | None:
        """A broker's registration and its broker epoch; None: it is not registered."""
        ...

    async def notify_isr_changes(self, partitions: Sequence[Key]) -> None: ...


class AlterPartitionWriter:
    """Sends ISR proposals to the active controller.

    ``broker_epoch()``: that of the present registration; -1: not registered.
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
        #: Address of the controller; None: it must be looked up.
        self._controller: tuple[str, int] | None = None

    async def propose(self, proposals: Sequence[IsrProposal]) -> Sequence[IsrResult | None]:
        """One result per proposal, in order; None: the response does not contain it. After an IsrUnanswered the
        controller is looked up again."""
        if not proposals:
            return ()
        address = await self._find_controller()
        if (broker_epoch := self._broker_epoch()) < 0:
            raise IsrUnanswered("this broker is not registered: it has no broker epoch to propose ISRs with")
        own = self._broker_id, broker_epoch
        partitions = [_partition_state(proposal, *own) for proposal in proposals[:PROPOSALS_MAX]]
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
                f"controller {join_address(*address)} refused the request of broker {self._broker_id}, broker"
                f" epoch {broker_epoch}: {error_name(response.error_code)}"
            )
        answers = {(answer.topic, answer.partition): answer for answer in response.partitions}
        if any(answer.error_code == codes.NOT_CONTROLLER for answer in answers.values()):
            # The receiver found that it is no longer the controller (check 2).
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


def _partition_state(proposal: IsrProposal, broker_id: int, broker_epoch: int) -> wire.AlterPartitionState:
    topic, partition = proposal.key
    epochs = zip(proposal.isr, proposal.isr_epochs, strict=False)
    return wire.AlterPartitionState(
        topic=topic,
        topic_id=proposal.topic_id or "",
        partition=partition,
        leader_epoch=proposal.leader_epoch,
        new_isr=proposal.isr,
        leader_recovery_state=codes.RECOVERED,
        partition_epoch=proposal.partition_epoch,
        isr_epochs=[broker_epoch if b == broker_id else epoch for b, epoch in epochs],
        isr_directories=proposal.isr_directories,
    )


def _result(key: Key, answer: wire.AlteredPartition) -> IsrResult:
    if answer.error_code != codes.NONE:
        return IsrResult(key, answer.error_code)
    isr = tuple(answer.isr)
    return IsrResult(key, codes.NONE, answer.leader, answer.leader_epoch, isr, answer.partition_epoch)


class PropagationTimer:
    """Decides when to notify the controller of ISR changes. Pure; ``now_ms`` is of a monotonic clock."""

    def __init__(self, now_ms: int) -> None:
        self._taken_ms = self._changed_ms = now_ms
        self._changed: dict[Key, None] = {}

    def changed(self, key: Key, now_ms: int) -> None:
        self._changed[key] = None
        self._changed_ms = now_ms

    def take(self, now_ms: int) -> Sequence[Key]:
        """Take the partitions to notify now: all changed ones, if no change came for `QUIET_MS` or nothing was taken
        for `SILENCE_MAX_MS`; else none."""
        quiet = now_ms - self._changed_ms >= QUIET_MS
        if not self._changed or not (quiet or now_ms - self._taken_ms >= SILENCE_MAX_MS):
            return ()
        keys, self._changed = tuple(self._changed), {}
        self._taken_ms = now_ms
        return keys

    def put_back(self, keys: Sequence[Key]) -> None:
        """The notification failed: return these partitions with the next `take`."""
        self._changed = dict.fromkeys(keys) | self._changed


class NotificationWriter:
    """Writes ISRs into the partition states, as their leader ``broker_id``. ``now_ms``: a monotonic clock.

    `run` must run as a task: it notifies the controller.
    """

    def __init__(self, store: StateStore, broker_id: int, now_ms: Callable[[], int]) -> None:
        self._store, self._broker_id, self._now_ms = store, broker_id, now_ms
        self._timer = PropagationTimer(now_ms())
        #: Proposals whose write may have landed or may still land, with the directories in it. Such a one cannot be
        #: refused any more: it is written again as it was.
        self._unanswered: dict[Key, tuple[IsrProposal, dict[int, int]]] = {}

    async def propose(self, proposals: Sequence[IsrProposal]) -> Sequence[IsrResult]:
        """One result per proposal, in order. Raises IsrUnanswered when ZooKeeper did not respond to one of the writes.

        INVALID_UPDATE_VERSION: another writer changed the state. UNKNOWN_TOPIC_OR_PARTITION: the znode does not exist.
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
        found = await self._store.get_state(*proposal.key)
        if found is not None and found[1] < proposal.partition_epoch:
            found = await self._store.get_state(*proposal.key, latest=True)
        stored = _decode_stored(proposal.key, found[0]) if found is not None else None
        seen = found[1] if found is not None else proposal.partition_epoch
        if stored is not None and seen == proposal.partition_epoch and stored[1] != proposal.leader_epoch:
            # A version tells one state from another only as long as ZooKeeper does not go back (docs/adr/0023).
            return IsrResult(proposal.key, codes.INVALID_UPDATE_VERSION)
        asked, directories = self._unanswered.get(proposal.key, (None, None))
        again = asked == proposal
        if not again or directories is None:
            directories = await self._directories(proposal, stored)
        if directories is None:
            return IsrResult(proposal.key, codes.INELIGIBLE_REPLICA)
        wanted = _wanted(self._broker_id, proposal, directories)
        if seen < proposal.partition_epoch and stored != wanted:
            # It went back, and the version may become another state's.
            if again:
                raise StoreUnavailable(f"ZooKeeper has version {seen} of {proposal.key}, which is older")
            return IsrResult(proposal.key, codes.INVALID_UPDATE_VERSION)
        self._unanswered[proposal.key] = proposal, directories
        if seen < proposal.partition_epoch:
            # As Kafka: the stored content is compared, not its writer or version.
            result = self._done(proposal, wanted, seen)
        else:
            result = await self._write_state(proposal, wanted)
        del self._unanswered[proposal.key]
        return result

    def _done(self, proposal: IsrProposal, state: PartitionState, version: int) -> IsrResult:
        self._timer.changed(proposal.key, self._now_ms())
        return IsrResult(proposal.key, codes.NONE, state.leader, state.leader_epoch, state.isr, version)

    async def _write_state(self, proposal: IsrProposal, state: PartitionState) -> IsrResult:
        topic, partition = proposal.key
        data, version = encode_state(state), proposal.partition_epoch
        new_version = await self._store.set_state(topic, partition, data, version)
        if new_version is None:
            found = await self._store.get_state(topic, partition)
            if found is None:
                return IsrResult(proposal.key, codes.UNKNOWN_TOPIC_OR_PARTITION)
            stored, version = _decode_stored(proposal.key, found[0]), found[1]
            if stored == state:
                new_version = version
            elif _written_by_us(proposal, state, stored, version):
                new_version = await self._store.set_state(topic, partition, data, version)
            if new_version is None:
                return IsrResult(proposal.key, codes.INVALID_UPDATE_VERSION)
        return self._done(proposal, state, new_version)

    async def _directories(
        self, proposal: IsrProposal, stored: PartitionState | None
    ) -> dict[int, int] | None:
        """The directories of the ISR's members, as the controller keeps them (docs/adr/0017): those that stay keep
        theirs, a new one's is in the registration that it fetched under. None: that registration is gone, or malformed,
        so that the controller counts the broker as gone.

        Raises StoreUnavailable.
        """
        before = stored if stored is not None else PartitionState(-1, -1, -1, ())
        directories = {b: d for b, d in before.directories.items() if b in proposal.isr}
        told = dict(zip(proposal.isr, proposal.isr_directories, strict=False))
        for broker_id, epoch in zip(proposal.isr, proposal.isr_epochs, strict=False):
            stays, tells = broker_id in before.isr, told.get(broker_id, UNKNOWN)
            own = broker_id == self._broker_id
            if (epoch < 0 and not own) or (stays and tells in (UNKNOWN, directories.get(broker_id))):
                continue
            registration = await self._store.get_registration(broker_id)
            if registration is None or (registration[1] != epoch and not own):
                return None
            registered = decode_directories(registration[0])
            if registered is None:
                return None
            whole = of_broker(registered)
            known = directories.get(broker_id, UNKNOWN) if stays else whole
            # It may be believed if the directory that the state names has not been lost since.
            if tells in registered and known in (UNKNOWN, whole, *registered):
                known = tells
            if known:
                directories[broker_id] = known
        return directories

    async def run(self) -> None:
        """Notify the controller of changes until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_MS / 1000)
            await self.propagate()

    async def propagate(self) -> None:
        """Notify the controller if it is time. After a failure the partitions stay for the next time."""
        keys = self._timer.take(self._now_ms())
        if not keys:
            return
        try:
            await self._store.notify_isr_changes(keys)
        except StoreUnavailable as error:
            _log.warning("controller not notified of ISR changes yet", partitions=len(keys), why=str(error))
            self._timer.put_back(keys)


def _wanted(leader: int, proposal: IsrProposal, directories: dict[int, int]) -> PartitionState:
    return PartitionState(leader, proposal.leader_epoch, proposal.controller_epoch, proposal.isr, directories)


def _decode_stored(key: Key, data: bytes) -> PartitionState | None:
    try:
        return decode_state(state_path(*key), data)
    except MalformedZnode as error:
        _log.warning("partition state is malformed", problem=str(error))
        return None


def _written_by_us(
    proposal: IsrProposal, state: PartitionState, stored: PartitionState | None, version: int
) -> bool:
    """Whether an unexpected version is our own earlier write, whose response was lost.

    Within a leader epoch only the leader writes the state; the controller increments the epoch with each of its
    changes. The controller epoch and the higher version exclude a recreated topic of the same name.
    """
    return stored is not None and version > proposal.partition_epoch and stored[:3] == state[:3]
