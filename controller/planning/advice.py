"""Advice is tried before it is given: what an explanation proposes is carried out on a copy of the partition.

Only what ends with the leader that it promises stays, and of two changes that do, the one with fewer steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import msgspec

from controller.core.config_keys import UNCLEAN
from controller.core.explain.partitions import PartitionExplanation
from controller.core.explain.remedies import Change, Remedy
from controller.core.model import NO_LEADER, Broker, Endpoint, FeatureRange
from controller.core.requests.api import ControllerRequest
from controller.core.requests.configs import (
    AlterConfigs,
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ConfigScope,
)
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.operator import SetMaintenance, SetPause
from controller.planning.executor import Executor
from controller.planning.snapshot import Key, Snapshot

T = TypeVar("T")

#: Brokers whose return is tried; more replicas than that nobody has.
_TRIED_MAX = 10
_WHO = ("tried by the planner", "planner")


def checked(snapshot: Snapshot, explained: PartitionExplanation) -> PartitionExplanation:
    """The explanation without advice that does not work."""
    key = (explained.topic, explained.partition)
    small = of_partition(snapshot, key)
    kept: list[Change] = []
    for change in explained.advice:
        found = change if change.steps is None else _that_work(small, key, change)
        if found is not None and not any(_is_simpler(other, found) for other in kept):
            kept.append(found)
    return replace(explained, advice=tuple(kept))


def _is_simpler(one: Change, other: Change) -> bool:
    return one.steps is not None and other.steps is not None and one.steps < other.steps


def _that_work(snapshot: Snapshot, key: Key, change: Change) -> Change | None:
    """The change with those of its brokers that give the partition a leader; None: it does not."""
    if not change.brokers:
        return change if _leads(snapshot, key, change, NO_LEADER) else None
    brokers = change.brokers[:_TRIED_MAX]
    working = tuple(b for b in brokers if _leads(snapshot, key, change, b))
    return change._replace(brokers=working) if working else None


def _leads(snapshot: Snapshot, key: Key, change: Change, broker_id: int) -> bool:
    assert change.steps is not None
    executor = Executor(snapshot)
    for step in Remedy:
        if step not in change.steps:
            continue
        if step in (Remedy.RETURN, Remedy.REPAIR):
            executor.bring_back([_broker(snapshot, broker_id)])
        else:
            executor.ask(_request(step, key))
    state = executor.store.states.get(key)
    if state is None or not executor.store.is_online(key, state.leader):
        return False
    return change.leader in (NO_LEADER, state.leader)


def _request(step: Remedy, key: Key) -> ControllerRequest:
    match step:
        case Remedy.RESUME:
            return SetPause(False, *_WHO)
        case Remedy.LEAVE:
            return SetMaintenance(False, *_WHO)
        case Remedy.ELECT_UNCLEAN:
            return ElectLeaders(ElectionType.UNCLEAN, [key])
        case Remedy.ELECT_PREFERRED:
            return ElectLeaders(ElectionType.PREFERRED, [key])
        case Remedy.ALLOW_UNCLEAN:
            change = ConfigChange(UNCLEAN, "true")
            return AlterConfigs([ConfigAlteration(ConfigResource(ConfigScope.TOPIC, key[0]), [change])])
        case Remedy.RETURN | Remedy.REPAIR:
            raise AssertionError(step)


def _broker(snapshot: Snapshot, broker_id: int) -> Broker:
    """A broker that registers again: as it is, like others but with its own data, or as any could be."""
    if broker_id in snapshot.brokers:
        return snapshot.brokers[broker_id]
    if snapshot.brokers:
        other = next(iter(snapshot.brokers.values()))
        return msgspec.structs.replace(other, id=broker_id, directories=())
    finalized = snapshot.feature.features if snapshot.feature is not None else ()
    supported = tuple(FeatureRange(f.name, f.min, f.max) for f in finalized)
    endpoint = Endpoint("GRPC", "PLAINTEXT", "planned", 1)
    return Broker(broker_id, 0, (endpoint,), features=supported)


def of_partition(snapshot: Snapshot, key: Key) -> Snapshot:
    """The cluster with this partition alone. Brokers that only others name are unknown in it: it enters no maintenance
    mode, and leaves none, because of them."""
    topic, number = key
    info = snapshot.topics[topic]

    def only(by_number: Mapping[int, T]) -> dict[int, T]:
        return {number: by_number[number]} if number in by_number else {}

    one = replace(
        info,
        partitions=only(info.partitions),
        adding=only(info.adding),
        removing=only(info.removing),
        original=only(info.original),
        queued=only(info.queued),
        stray=only(info.stray),
    )
    return replace(
        snapshot,
        topics={topic: one},
        states={key: snapshot.states[key]} if key in snapshot.states else {},
        deleting=tuple(name for name in snapshot.deleting if name == topic),
        maintenance=msgspec.structs.replace(snapshot.maintenance, automatic=False, accepted=()),
        settings=replace(snapshot.settings, maintenance_offline_brokers_percentage=0),
    )
