"""The partitions that this broker hosts, and the checks of LeaderAndIsr and StopReplica. Pure.

Reference, sections 10.1 and 10.2. A request is handled in two steps, because the disk may fail: ``plan_*``
decides every partition and changes nothing; the caller then changes the folders; ``complete`` takes the failures of
the disk, changes the memory, and returns the answers and the records for the state-change log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from broker_stub.control.requests import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    NO_LEADER,
    Key,
    LeaderAndIsr,
    Malformed,
    StopReplica,
)
from proto.digest import Digest, hosted_item
from proto.gen import common_pb2 as codes


class Role(StrEnum):
    """The state of a local replica; the values are those of docs/state-change-log.md."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"
    STOPPED = "stopped"
    DELETED = "deleted"
    OFFLINE = "offline"


class Replica(msgspec.Struct, frozen=True, omit_defaults=True):
    """The local replica of one partition. Immutable, so that records of a change may be built later.

    ``topic_id`` is that of ``partition.metadata``. A follower's ``isr`` is empty: only the leader maintains it.
    Epochs are -1 until a request sets them. With ``role`` none they are those from before the start: no older state is
    taken.
    """

    topic: str
    partition: int
    topic_id: str | None = None
    role: Role = Role.NONE
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = NO_EPOCH
    controller_epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def reassigning(self) -> bool:
        """Whether a reassignment is ongoing (reference, section 8.1)."""
        return bool(self.adding or self.removing)

    @property
    def under_replicated(self) -> bool:
        """Whether the leader's ISR is too small; replicas that are being added do not count as missing."""
        wanted = len(set(self.replicas) - set(self.adding))
        return self.role is Role.LEADER and len(self.isr) < wanted

    @property
    def item(self) -> int:
        """What LeaderAndIsr told about this replica, as an item of a digest; 0 while it has no role."""
        if self.role not in (Role.LEADER, Role.FOLLOWER):
            return 0
        led_as = (self.partition_epoch, self.isr) if self.role is Role.LEADER else None
        return hosted_item(*self.key, self.topic_id or "", self.leader, self.leader_epoch, led_as)


class Step(NamedTuple):
    """One partition's part of a plan. ``after`` None: delete the folder. ``isr`` is only for the log record."""

    key: Key
    before: Replica | None
    after: Replica | None
    folder: bool  #: create the folder, write its topic id, or delete it
    save: bool  #: the state changed and must be written to the journal
    isr: tuple[int, ...] = ()
    note: str = ""


class Answer(NamedTuple):
    """The error code of one partition; answers have the order of the request."""

    key: Key
    error: codes.ErrorCode


class Reject(NamedTuple):
    """A refusal, for the state-change log."""

    key: Key | None
    error: str
    reason: str
    #: The request repeats the present state: refused as in Kafka, but not logged on its own.
    redundant: bool = False

    def record(self) -> dict[str, Any]:
        """The record of kind ``reject`` for the state-change log."""
        record: dict[str, Any] = {"kind": "reject", "error": self.error, "reason": self.reason}
        if self.key is not None:
            # A malformed request may have a name of any length; readers of the log refuse a negative partition.
            record["topic"] = self.key[0][:249]
            if self.key[1] >= 0:
                record["partition"] = self.key[1]
        return record


class Transition(NamedTuple):
    """A change of a replica's role, for the state-change log."""

    replica: Replica
    from_role: Role
    to_role: Role
    isr: tuple[int, ...] = ()
    reason: str = ""

    def record(self, broker_id: int) -> dict[str, Any]:
        """The record of kind ``replica`` for the state-change log."""
        record: dict[str, Any] = {
            "kind": "replica",
            "topic": self.replica.topic,
            "partition": self.replica.partition,
            "replica": broker_id,
            "from": self.from_role,
            "to": self.to_role,
        }
        if self.replica.leader_epoch != NO_EPOCH:
            record["leader"] = self.replica.leader
            record["leader_epoch"] = self.replica.leader_epoch
            record["isr"] = self.isr or self.replica.isr
            record["partition_epoch"] = self.replica.partition_epoch
        if self.reason:
            record["reason"] = self.reason
        return record


class IsrChange(NamedTuple):
    """A durable ISR change made by the leader, for the state-change log."""

    key: Key
    before: tuple[int, ...]
    after: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int

    def record(self, broker_id: int) -> dict[str, Any]:
        """As a record of kind ``isr``; ``broker_id`` is the leader."""
        return {
            "kind": "isr",
            "topic": self.key[0],
            "partition": self.key[1],
            "from": str(list(self.before)),
            "to": str(list(self.after)),
            "leader": broker_id,
            "leader_epoch": self.leader_epoch,
            "isr": self.after,
            "partition_epoch": self.partition_epoch,
        }


class Plan(NamedTuple):
    """What a request would do. ``answers`` are final unless the disk fails."""

    answers: list[Answer]
    steps: list[Step]
    rejects: list[Reject]


class Applied(NamedTuple):
    """The result on the disk. ``failed``: partition to reason; ``lost``: why a whole data directory is lost, or empty;
    ``gone``: its replicas."""

    failed: dict[Key, str]
    lost: str = ""
    gone: tuple[Key, ...] = ()


class Outcome(NamedTuple):
    """What a request did."""

    answers: list[Answer]
    transitions: list[Transition]
    rejects: list[Reject]


_MAY_BE_THERE = "it may be in a data directory that failed: that one is not deleted"


class _Refused(Exception):  # noqa: N818  (control flow inside this module)
    """A check refused one partition."""

    def __init__(self, error: codes.ErrorCode, reason: str, redundant: bool = False) -> None:
        self.error, self.reason, self.redundant = error, reason, redundant
        super().__init__(reason)


class Replicas:
    """The hosted partitions of broker ``broker_id``.

    Not thread-safe: the caller serialises the handlers (reference, section 10, "Common gate"). A refused partition
    leaves no entry; Kafka keeps an empty one, which has no visible effect.
    """

    def __init__(self, broker_id: int, found: Iterable[Replica] = ()) -> None:
        """``found``: what the disk holds at start, without roles."""
        self.broker_id = broker_id
        #: Whether one of several data directories has failed. A replica that is not hosted may be there.
        self.directory_failed = False
        #: Replicas that were added to a partition since then: an earlier one of them may be there, too.
        self._begun_beside: set[Key] = set()
        self._hosted: dict[Key, Replica] = {replica.key: replica for replica in found}
        #: It covers the replicas that lead or follow; ``_put`` keeps it up to date.
        self.digest = Digest()

    def __len__(self) -> int:
        return len(self._hosted)

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._hosted.values())

    def of_topic(self, topic: str) -> list[Replica]:
        """The hosted partitions of a topic; looks at all that are hosted."""
        return [replica for replica in self._hosted.values() if replica.topic == topic]

    def get(self, topic: str, partition: int) -> Replica | None:
        """The local replica of a partition; None: not hosted."""
        return self._hosted.get((topic, partition))

    def _put(self, key: Key, after: Replica | None) -> None:
        """Replace what is known about a replica; None: it is hosted no longer."""
        before = self._hosted.pop(key, None) if after is None else self._hosted.get(key)
        if after is not None:
            self._hosted[key] = after
        self.digest.replace(key[0], before.item if before else 0, after.item if after else 0)

    def plan_leader_and_isr(
        self, items: Sequence[LeaderAndIsr | Malformed], is_live: Callable[[int], bool]
    ) -> Plan:
        """Decide an admitted LeaderAndIsr request. ``is_live``: whether the metadata cache lists a broker as live."""
        return self._plan(items, lambda item: self._step_leader_and_isr(item, is_live))

    def plan_stop_replica(self, items: Sequence[StopReplica | Malformed]) -> Plan:
        """Decide an admitted StopReplica request."""
        return self._plan(items, self._step_stop_replica)

    @staticmethod
    def _plan(items: Sequence[Any], step_of: Callable[[Any], Step | None]) -> Plan:
        plan = Plan([], [], [])
        for item in items:
            error, reason, redundant = codes.NONE, "", False
            if isinstance(item, Malformed):
                error, reason = codes.INVALID_REQUEST, item.reason
            else:
                try:
                    step = step_of(item)
                    if step is not None:
                        plan.steps.append(step)
                except _Refused as refused:
                    error, reason, redundant = refused.error, refused.reason, refused.redundant
            plan.answers.append(Answer(item.key, error))
            if reason:
                plan.rejects.append(Reject(item.key, codes.ErrorCode.Name(error), reason, redundant))
        return plan

    def _step_leader_and_isr(self, item: LeaderAndIsr, is_live: Callable[[int], bool]) -> Step | None:
        """The checks of section 10.1, steps 2 to 4, in their order."""
        before = self._hosted.get(item.key)
        known = before if before is not None else Replica(*item.key)
        _refuse_offline(before)
        if before is None and self.directory_failed and not item.is_new:
            raise _Refused(
                codes.KAFKA_STORAGE_ERROR, "it may be in a data directory that failed: no other is made"
            )
        # A partition's first leader epoch is 0: nobody had a replica of it before.
        if before is None and self.directory_failed and item.leader_epoch > 0:
            self._begun_beside.add(item.key)
        if item.topic_id is not None and known.topic_id not in (None, item.topic_id):
            raise _Refused(
                codes.INCONSISTENT_TOPIC_ID,
                f"topic id {item.topic_id} differs from that of our replica, {known.topic_id}",
            )
        if item.leader_epoch < known.leader_epoch:
            raise _Refused(
                codes.STALE_CONTROLLER_EPOCH,
                f"leader epoch {item.leader_epoch} is older than ours, {known.leader_epoch}",
            )
        if item.leader_epoch == known.leader_epoch and known.role is not Role.NONE:
            return self._step_same_epoch(item, known)
        # Not told anything since the start. A leader epoch has one leader, unless ZooKeeper has forgotten it.
        if item.leader_epoch == known.leader_epoch > NO_EPOCH and item.leader != known.leader:
            raise _Refused(
                codes.STALE_CONTROLLER_EPOCH,
                f"leader {item.leader} of leader epoch {item.leader_epoch}: before the start it was {known.leader}",
            )
        if self.broker_id not in item.replicas:
            raise _Refused(
                codes.UNKNOWN_TOPIC_OR_PARTITION,
                f"broker {self.broker_id} is not among the replicas {list(item.replicas)}",
            )
        return self._step_new_epoch(item, before, known, is_live)

    def _step_same_epoch(self, item: LeaderAndIsr, known: Replica) -> Step | None:
        """An equal leader epoch changes no role. It may only assign a topic id, or omit it."""
        if item.topic_id is not None and known.topic_id is None:
            after = msgspec.structs.replace(known, topic_id=item.topic_id)
            return Step(item.key, known, after, True, True, item.isr, f"topic id {item.topic_id} assigned")
        if item.topic_id is None and known.topic_id is not None and item.leader != self.broker_id:
            return None  # Kafka then fetches without the topic id; the id on the disk stays
        raise _Refused(
            codes.STALE_CONTROLLER_EPOCH,
            f"leader epoch {item.leader_epoch} is not newer than ours: nothing to do",
            redundant=True,
        )

    def _step_new_epoch(
        self, item: LeaderAndIsr, before: Replica | None, known: Replica, is_live: Callable[[int], bool]
    ) -> Step:
        """The metadata part of makeLeaders and makeFollowers (section 10.1, steps 5 and 6)."""
        topic_id = known.topic_id or item.topic_id
        folder = before is None or topic_id != known.topic_id
        leading = item.leader == self.broker_id
        if not leading and not is_live(item.leader):
            after = msgspec.structs.replace(known, topic_id=topic_id)
            note = f"leader {item.leader} is not live: leader and role unchanged"
            return Step(item.key, before, after, folder, folder, note=note)
        if item.partition_epoch < known.partition_epoch and known.role is not Role.NONE:
            note = f"partition epoch {item.partition_epoch} is older than {known.partition_epoch}: skipped"
            return Step(item.key, before, known, False, False, note=note)
        after = Replica(
            item.key[0],
            item.key[1],
            topic_id,
            Role.LEADER if leading else Role.FOLLOWER,
            item.leader,
            item.leader_epoch,
            item.partition_epoch,
            item.controller_epoch,
            item.isr if leading else (),
            item.replicas,
            item.adding,
            item.removing,
        )
        return Step(item.key, before, after, folder, True, item.isr)

    def _step_stop_replica(self, item: StopReplica) -> Step | None:
        """The checks of section 10.2, "SR"."""
        before = self._hosted.get(item.key)
        _refuse_offline(before)
        if before is None and item.delete and self.directory_failed:
            raise _Refused(codes.KAFKA_STORAGE_ERROR, _MAY_BE_THERE)
        if before is None:
            # Delete the folder anyway: an earlier run may have left one that could not be loaded.
            return Step(item.key, None, None, True, False, note="was not hosted") if item.delete else None
        if (
            item.leader_epoch not in (EPOCH_DURING_DELETE, NO_EPOCH)
            and item.leader_epoch < before.leader_epoch
        ):
            raise _Refused(
                codes.FENCED_LEADER_EPOCH,
                f"leader epoch {item.leader_epoch} is older than ours, {before.leader_epoch}",
            )
        if item.delete:
            return Step(item.key, before, None, True, True)
        if before.role is Role.STOPPED:
            return None
        after = msgspec.structs.replace(before, role=Role.STOPPED)
        return Step(item.key, before, after, False, True)

    def complete(self, plan: Plan, failed: Mapping[Key, str]) -> Outcome:
        """Apply a plan in memory. ``failed``: partitions whose folder failed, with the reason."""
        outcome = Outcome(plan.answers, [], plan.rejects)
        undeleted: dict[Key, str] = {}
        for step in plan.steps:
            if step.key in failed:
                outcome.transitions.append(self._fail(step, failed[step.key]))
            elif step.after is None:
                if step.key in self._begun_beside:
                    undeleted[step.key] = _MAY_BE_THERE
                self._put(step.key, None)
                deleted = step.before or Replica(*step.key)
                outcome.transitions.append(Transition(deleted, deleted.role, Role.DELETED, reason=step.note))
            else:
                self._put(step.key, step.after)
                role = step.before.role if step.before else Role.NONE
                outcome.transitions.append(Transition(step.after, role, step.after.role, step.isr, step.note))
        amiss = {**failed, **undeleted}
        return _with_failures(outcome, amiss) if amiss else outcome

    def refuse(self, outcome: Outcome, failed: Mapping[Key, str]) -> Outcome:
        """Amend an outcome: the logs of the ``failed`` partitions failed when their roles were applied."""
        offline = [t for key, why in failed.items() if (t := self.take_offline(key, why)) is not None]
        transitions = [t for t in outcome.transitions if t.replica.key not in failed]
        return _with_failures(Outcome(outcome.answers, transitions + offline, outcome.rejects), failed)

    def take_offline(self, key: Key, why: str) -> Transition | None:
        """Mark a replica offline after a disk failure (section 10.1, step 7). None: not hosted, or already offline."""
        replica = self._hosted.get(key)
        if replica is None or replica.role is Role.OFFLINE:
            return None
        after = msgspec.structs.replace(replica, role=Role.OFFLINE)
        self._put(key, after)
        return Transition(after, replica.role, Role.OFFLINE, reason=why)

    def isr_changed(self, key: Key, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> None:
        """An ISR that we proposed as leader is durable. Ignored when a newer LeaderAndIsr came first."""
        replica = self._hosted.get(key)
        if (
            replica is not None
            and replica.leader_epoch == leader_epoch
            and replica.partition_epoch < partition_epoch
        ):
            self._put(key, msgspec.structs.replace(replica, isr=isr, partition_epoch=partition_epoch))

    def _fail(self, step: Step, why: str) -> Transition:
        """Section 10.1, step 7: after a storage error the partition is offline until the broker restarts."""
        known = step.before or Replica(*step.key)
        topic_id = step.after.topic_id if step.after else known.topic_id
        after = msgspec.structs.replace(known, role=Role.OFFLINE, topic_id=topic_id)
        self._put(step.key, after)
        return Transition(after, known.role, Role.OFFLINE, reason=why)

    def fail(self, keys: Iterable[Key], why: str) -> list[Transition]:
        """Take these offline: the disk failed. Returns those that were not offline yet."""
        return [t for key in keys if (t := self.take_offline(key, why)) is not None]

    def describe(self) -> list[dict[str, Any]]:
        """All hosted partitions as JSON-ready values, sorted."""
        return [describe(self._hosted[key], self.broker_id) for key in sorted(self._hosted)]


def describe(replica: Replica, broker_id: int) -> dict[str, Any]:
    """One replica of broker ``broker_id`` as JSON-ready values, including derived ones."""
    values: dict[str, Any] = {name: getattr(replica, name) for name in replica.__struct_fields__}
    return {
        **values,
        "reassigning": replica.reassigning,
        "adding_local": broker_id in replica.adding,
        "under_replicated": replica.under_replicated,
        "remote_replicas": [other for other in replica.replicas if other != broker_id],
    }


def _with_failures(outcome: Outcome, failed: Mapping[Key, str]) -> Outcome:
    error = codes.KAFKA_STORAGE_ERROR
    answers = [Answer(a.key, error) if a.key in failed else a for a in outcome.answers]
    rejects = [Reject(key, codes.ErrorCode.Name(error), why) for key, why in failed.items()]
    return Outcome(answers, outcome.transitions, outcome.rejects + rejects)


def _refuse_offline(replica: Replica | None) -> None:
    if replica is not None and replica.role is Role.OFFLINE:
        raise _Refused(codes.KAFKA_STORAGE_ERROR, "the replica is offline: its disk failed")
