"""Finalized features of the cluster, and incompatible brokers (KIP-584; reference, section 3.1).

A broker that does not support a finalized level is ignored when it registers, as if it were not registered. A broker
that is registered already continues until it registers again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.core.commits import ATTEMPTS_MAX
from controller.core.context import EventContext, Handler
from controller.core.effects import (
    BrokersAnswer,
    Committed,
    FeatureAnswer,
    Problem,
    PutFeature,
    ReadBrokers,
    ReadFeature,
)
from controller.core.model import Broker, FeatureRange
from controller.core.records import FeatureChange
from controller.core.znode_paths import FEATURE, broker_path

INCOMPATIBLE = "INCOMPATIBLE_FEATURES"


def supported_by_all(brokers: Iterable[Broker]) -> dict[str, FeatureRange]:
    """The feature ranges that all of these brokers support, by name; empty without brokers."""
    common: dict[str, FeatureRange] | None = None
    for broker in brokers:
        own = {feature.name: feature for feature in broker.features}
        if common is None:
            common = own
            continue
        both = {
            name: FeatureRange(name, max(f.min, own[name].min), min(f.max, own[name].max))
            for name, f in common.items()
            if name in own
        }
        common = {name: feature for name, feature in both.items() if feature.min <= feature.max}
    return common or {}


def missing(broker: Broker, levels: Mapping[str, int]) -> str | None:
    """Which of these levels a broker does not support, as text; None when it supports all."""
    own = {feature.name: feature for feature in broker.features}
    lacks = []
    for name, level in sorted(levels.items()):
        feature = own.get(name)
        if feature is None:
            lacks.append(f"feature {name} at level {level} (it does not know it)")
        elif not feature.min <= level <= feature.max:
            lacks.append(f"feature {name} at level {level} (it supports {feature.min} to {feature.max})")
    return ", ".join(lacks) or None


def without_incompatible(context: EventContext, answer: BrokersAnswer) -> BrokersAnswer:
    """Registrations without those of incompatible brokers; these are added to the problems."""
    cluster = context.cluster
    if not cluster.features:
        return answer
    brokers, problems = dict(answer.brokers), list(answer.problems)
    for broker in answer.brokers.values():
        lacks = missing(broker, cluster.features)
        if lacks is None:
            continue
        known = cluster.brokers.get(broker.id)
        registered = known is not None and known.epoch == broker.epoch
        fate = "will be ignored once it registers again" if registered else "is ignored"
        text = f"the broker {fate}: it does not support {lacks}"
        problems.append(Problem(broker_path(broker.id), text, broker.epoch, INCOMPATIBLE))
        if not registered:
            del brokers[broker.id]
    return BrokersAnswer(brokers, tuple(problems))


def levels_of(found: FeatureAnswer | None) -> dict[str, int]:
    """Finalized levels by name; none while features are disabled."""
    return {f.name: f.max for f in found.features} if found is not None and found.enabled else {}


def reconcile(context: EventContext) -> Handler[None]:
    """At failover ensure that ``/feature`` exists and is enabled (reference, section 3.1, step 1).

    Absent: create it with the highest levels that all registered brokers support. Disabled: enable it without levels.
    A znode that does not decode is reported and not changed; then no broker is ignored.
    """
    reason = ""
    for _ in range(ATTEMPTS_MAX):
        found = yield from context.read(ReadFeature())
        if isinstance(found, Problem):
            context.problem(found)
            return
        context.solved(FEATURE)
        if found is not None and found.enabled:
            context.cluster.features = levels_of(found)
            return
        levels: dict[str, int] = {}
        if found is None:
            answer = yield from context.read(ReadBrokers())
            levels = {name: f.max for name, f in supported_by_all(answer.brokers.values()).items()}
        version = None if found is None else found.version
        outcome = yield from context.commit([PutFeature(version, levels)])
        if isinstance(outcome, Committed):
            context.cluster.features = levels
            dropped = {f.name: f.max for f in found.features} if found is not None else {}
            record(context, dropped, levels)
            return
        reason = outcome.reason
    context.reject("CONFLICT", f"{FEATURE}: {reason}")


def record(context: EventContext, before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Log each changed level; 0: the feature is not finalized."""
    records = [
        FeatureChange(name, before.get(name, 0), after.get(name, 0))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    context.log(records)
