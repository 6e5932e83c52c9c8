"""Topics, their partitions, and the replicas of these."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from controller.core.model.broker_ids import SHARED_LENGTH_MAX, BrokerIds, interned
from controller.core.model.leadership import LeaderAndIsr
from controller.core.model.states import (
    PartitionState,
    ReplicaState,
    ReplicaStates,
    shared_states,
    uniform_states,
)


class Topic:
    """A topic and its partitions, by number.

    ``id`` is empty until known. ``czxid`` distinguishes incarnations of the topic. ``deleted``: the deletion is
    complete, and pushes still queued mark the partitions as deleted. ``complete``: the state of every partition is
    known; False where nobody has looked.
    """

    __slots__ = ("complete", "czxid", "deleted", "id", "name", "partitions", "version")

    def __init__(self, name: str, topic_id: str = "", czxid: int = -1, version: int = -1) -> None:
        self.name = name
        self.id = topic_id
        self.czxid = czxid
        self.version = version
        self.deleted = self.complete = False
        self.partitions: dict[int, Partition] = {}

    def let_go(self) -> list[Partition]:
        """End with no partitions, and return them: topics and partitions that refer to each other would stay in memory
        until the next full collection of garbage, which a leader does not make."""
        partitions, self.partitions = list(self.partitions.values()), {}
        return partitions

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {len(self.partitions)} partitions)"


#: States of replicas outside an assignment, by broker. Partitions share them, so they are never changed.
Departing = Mapping[int, ReplicaState]
_NO_DEPARTING: Departing = {}
_SHARED_MAX = 10_000


@lru_cache(_SHARED_MAX)
def _departing(broker_id: int, state: ReplicaState) -> Departing:
    """One replica that departs, in this state."""
    return _NO_DEPARTING if state is ReplicaState.NON_EXISTENT else {broker_id: state}


def _kept(replicas: BrokerIds, states: ReplicaStates, after: BrokerIds) -> tuple[ReplicaStates, Departing]:
    """The states of replicas after another assignment, and of those that are not assigned any more. Replicas that stay
    keep their state, new ones start NonExistent."""
    known = dict(zip(replicas, states, strict=True))
    states = tuple([known.get(b, ReplicaState.NON_EXISTENT) for b in after])
    staying = frozenset(after)
    leaving = {b: s for b, s in known.items() if b not in staying and s is not ReplicaState.NON_EXISTENT}
    return shared_states(states), leaving or _NO_DEPARTING


_shared_kept = lru_cache(_SHARED_MAX)(_kept)


class Partition:
    """One partition. ``replica_states`` is parallel to ``replicas``; ``leadership`` is None until durable."""

    __slots__ = (
        "adding",
        "departing",
        "leadership",
        "number",
        "removing",
        "replica_states",
        "replicas",
        "state",
        "topic",
    )

    def __init__(
        self,
        topic: Topic,
        number: int,
        replicas: BrokerIds,
        adding: BrokerIds = (),
        removing: BrokerIds = (),
    ) -> None:
        self.topic = topic
        self.number = number
        self.replicas = interned(replicas)
        self.adding = adding
        self.removing = removing
        self.state = PartitionState.NON_EXISTENT
        self.replica_states = uniform_states(ReplicaState.NON_EXISTENT, len(replicas))
        self.leadership: LeaderAndIsr | None = None
        #: States of replicas outside the assignment, until they are deleted.
        self.departing: Departing = _NO_DEPARTING

    @property
    def name(self) -> str:
        """``topic-number``, as Kafka prints it."""
        return f"{self.topic.name}-{self.number}"

    def replica_state(self, broker_id: int) -> ReplicaState:
        """State of one replica; NonExistent where the broker holds none."""
        # No replica is in both; an exception for each that departs would be dear.
        if broker_id in self.replicas:
            return self.replica_states[self.replicas.index(broker_id)]
        return self.departing.get(broker_id, ReplicaState.NON_EXISTENT)

    def states_by_broker(self) -> dict[int, ReplicaState]:
        """States of all replicas, assigned or departing: for those who ask for many of one partition."""
        return {**self.departing, **dict(zip(self.replicas, self.replica_states, strict=True))}

    def set_departing(self, states: Departing) -> None:
        """Set the states of replicas outside the assignment; NonExistent removes them."""
        if len(states) == 1 and self.departing.keys() <= states.keys():
            self.departing = _departing(*next(iter(states.items())))
            return
        both = {**self.departing, **states}
        self.departing = {
            b: s for b, s in both.items() if s is not ReplicaState.NON_EXISTENT
        } or _NO_DEPARTING

    def set_states(self, broker_ids: Collection[int], state: ReplicaState) -> None:
        """Set the state of many replicas, assigned or departing."""
        changed = frozenset(broker_ids)
        both = zip(self.replicas, self.replica_states, strict=True)
        self.replica_states = shared_states(tuple([state if b in changed else known for b, known in both]))
        if outside := changed.difference(self.replicas):
            self.set_departing(dict.fromkeys(outside, state))

    def assign(self, replicas: BrokerIds, adding: BrokerIds = (), removing: BrokerIds = ()) -> None:
        """Replace the assignment. Replicas that stay keep their state, new ones start NonExistent."""
        if self.departing is _NO_DEPARTING and len(self.replicas) + len(replicas) <= SHARED_LENGTH_MAX:
            self.replica_states, _ = _shared_kept(self.replicas, self.replica_states, replicas)
            self.replicas, self.adding, self.removing = interned(replicas), adding, removing
            return
        known = self.states_by_broker()
        states = tuple([known.get(broker_id, ReplicaState.NON_EXISTENT) for broker_id in replicas])
        self.replicas, self.adding, self.removing = interned(replicas), adding, removing
        self.replica_states = shared_states(states)
        if self.departing is not _NO_DEPARTING:
            assigned = frozenset(replicas)
            self.departing = {b: s for b, s in self.departing.items() if b not in assigned} or _NO_DEPARTING

    def reassign(self, replicas: BrokerIds, adding: BrokerIds = (), removing: BrokerIds = ()) -> None:
        """As ``assign``, but removed replicas keep their state until they are deleted."""
        short = len(self.replicas) + len(replicas) <= SHARED_LENGTH_MAX
        _, leaving = (_shared_kept if short else _kept)(self.replicas, self.replica_states, replicas)
        self.assign(replicas, adding, removing)
        if leaving:
            self.departing = leaving if self.departing is _NO_DEPARTING else {**self.departing, **leaving}

    def __repr__(self) -> str:
        return (
            f"Partition({self.name}, {self.state.value}, replicas={list(self.replicas)}, {self.leadership})"
        )
