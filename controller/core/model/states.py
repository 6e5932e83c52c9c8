"""States of partitions and of replicas; the replica states of a partition are one shared tuple."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from controller.core.model.broker_ids import SHARED_LENGTH_MAX


class PartitionState(Enum):
    """The four partition states (reference, section 5)."""

    # States are dict keys on hot paths, and Enum's own hash is slow. Each member exists once, so its identity will do.
    __hash__ = object.__hash__

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaState(Enum):
    """The seven replica states (reference, section 4)."""

    __hash__ = object.__hash__

    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    NON_EXISTENT = "NonExistentReplica"


ReplicaStates = tuple[ReplicaState, ...]
_shared_states: dict[ReplicaStates, ReplicaStates] = {}
_with_state: dict[tuple[ReplicaStates, int, ReplicaState], ReplicaStates] = {}
_SHARED_STATES_MAX = 100_000


def shared_states(states: ReplicaStates) -> ReplicaStates:
    """The one shared copy of a tuple of replica states."""
    if len(states) > SHARED_LENGTH_MAX:
        return states
    if len(_shared_states) >= _SHARED_STATES_MAX:
        _shared_states.clear()
    return _shared_states.setdefault(states, states)


@lru_cache(1000)
def uniform_states(state: ReplicaState, count: int) -> ReplicaStates:
    """The shared tuple of ``count`` times the same state."""
    return shared_states((state,) * count)


def with_state(states: ReplicaStates, index: int, state: ReplicaState) -> ReplicaStates:
    """The shared tuple of ``states`` with one replaced."""
    if len(states) > SHARED_LENGTH_MAX:
        return (*states[:index], state, *states[index + 1 :])
    key = (states, index, state)
    found = _with_state.get(key)
    if found is None:
        if len(_with_state) >= _SHARED_STATES_MAX:
            _with_state.clear()
        found = _with_state[key] = shared_states((*states[:index], state, *states[index + 1 :]))
    return found
