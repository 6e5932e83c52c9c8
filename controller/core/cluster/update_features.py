"""UpdateFeatures and DescribeFeatures (KIP-584; reference, section 8.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from controller.core.cluster.features import levels_of, missing, record, supported_by_all
from controller.core.commits import ATTEMPTS_MAX
from controller.core.context import EventContext, Handler
from controller.core.effects import Committed, FeatureAnswer, Problem, PutFeature, ReadFeature
from controller.core.model import Cluster
from controller.core.requests.errors import ErrorCode
from controller.core.requests.features import (
    DescribeFeatures,
    DescribeFeaturesReply,
    FeatureUpdate,
    FeatureUpdated,
    UpdateFeatures,
    UpdateFeaturesReply,
    UpgradeType,
)
from controller.core.znode_paths import FEATURE


def update_features(context: EventContext, serial: int, request: UpdateFeatures) -> Handler[bool]:
    """Validate each update separately and write all valid ones at once. Returns whether a level changed.

    If the write fails, every valid update gets FEATURE_UPDATE_FAILED.
    """
    before = context.cluster.features
    results = yield from _update(context, request)
    for result in results:
        if result.error is not ErrorCode.NONE:
            context.reject(result.error.name, f"UpdateFeatures of {result.name!r}: {result.message}")
    context.reply(serial, UpdateFeaturesReply(ErrorCode.NONE, results))
    return context.cluster.features != before


def _update(context: EventContext, request: UpdateFeatures) -> Handler[list[FeatureUpdated]]:
    reason = ""
    validated = _Validated([], {})
    for _ in range(ATTEMPTS_MAX):
        found = yield from context.read(ReadFeature())
        if isinstance(found, Problem):
            context.problem(found)
            return _failed(validate_all(context.cluster, {}, request), f"{found.path}: {found.problem}")
        context.solved(FEATURE)
        existing = levels_of(found)
        validated = validate_all(context.cluster, existing, request)
        if request.validate_only or validated.levels == existing:
            return validated.results
        version = None if found is None else found.version
        outcome = yield from context.commit([PutFeature(version, validated.levels)])
        if isinstance(outcome, Committed) or (yield from _landed(context, version, validated.levels)):
            context.cluster.features = validated.levels
            record(context, existing, validated.levels)
            return validated.results
        reason = outcome.reason
    return _failed(validated, f"not written in {ATTEMPTS_MAX} attempts; the last: {reason}")


def _landed(context: EventContext, version: int | None, levels: Mapping[str, int]) -> Handler[bool]:
    """Whether an unconfirmed write is durable: same content, next version."""
    found = yield from context.read(ReadFeature())
    next_version = 0 if version is None else version + 1
    return (
        isinstance(found, FeatureAnswer)
        and found.enabled
        and (found.version, levels_of(found)) == (next_version, levels)
    )


class _Validated(NamedTuple):
    """The result of each update, and the levels after all valid ones."""

    results: list[FeatureUpdated]
    levels: dict[str, int]


def _failed(validated: _Validated, why: str) -> list[FeatureUpdated]:
    return [
        r if r.error is not ErrorCode.NONE else FeatureUpdated(r.name, ErrorCode.FEATURE_UPDATE_FAILED, why)
        for r in validated.results
    ]


def validate_all(cluster: Cluster, existing: Mapping[str, int], request: UpdateFeatures) -> _Validated:
    times = Counter(update.name for update in request.updates)
    results, levels = [], dict(existing)
    for update in request.updates:
        problem = _problem(cluster, existing.get(update.name), update)
        if problem is None and times[update.name] > 1:
            problem = "it is named more than once"
        if problem is not None:
            results.append(FeatureUpdated(update.name, ErrorCode.INVALID_REQUEST, problem))
            continue
        if update.level < 1:
            del levels[update.name]
        else:
            levels[update.name] = update.level
        results.append(FeatureUpdated(update.name, ErrorCode.NONE))
    return _Validated(results, levels)


def _problem(cluster: Cluster, existing: int | None, update: FeatureUpdate) -> str | None:
    """Why an update is invalid, the first reason in Kafka's order of checks; None when it is valid."""
    name, level, kind = update.name, update.level, update.upgrade_type
    if not name:
        return "the feature's name is empty"
    if kind is None:
        return "upgrade_type: must be 1 UPGRADE, 2 SAFE_DOWNGRADE or 3 UNSAFE_DOWNGRADE"
    if level < 1:
        if kind is UpgradeType.UPGRADE:
            return f"level {level}: must be at least 1; a feature is taken away by a downgrade to 0"
        return None if existing is not None else "it is not finalized: there is nothing to take away"
    if existing is not None:
        if level == existing:
            return f"it is at level {existing} already"
        if level < existing and kind is UpgradeType.UPGRADE:
            return f"level {level} is below the present {existing}: that takes a downgrade"
        if level > existing and kind is not UpgradeType.UPGRADE:
            return f"level {level} is above the present {existing}: that takes an upgrade"
        if kind is UpgradeType.UNSAFE_DOWNGRADE:
            return None
    lacking = [id_ for id_, b in sorted(cluster.brokers.items()) if missing(b, {name: level})]
    if not cluster.brokers:
        return "no broker is registered that supports it"
    if lacking:
        return f"level {level} is not supported by brokers {', '.join(map(str, lacking))}"
    return None


def describe_features(context: EventContext, serial: int, request: DescribeFeatures) -> Handler[None]:
    """Answer with the content of ``/feature``, and the versions that all registered brokers support."""
    del request
    supported = tuple(f for _, f in sorted(supported_by_all(context.cluster.brokers.values()).items()))
    found = yield from context.read(ReadFeature())
    if isinstance(found, Problem):
        context.problem(found)
        message = f"{found.path}: {found.problem}"
        context.reply(serial, DescribeFeaturesReply(ErrorCode.UNKNOWN_SERVER_ERROR, message))
        return
    context.solved(FEATURE)
    finalized = tuple(sorted(found.features, key=lambda f: f.name)) if found and found.enabled else ()
    epoch = -1 if found is None else found.version
    context.reply(serial, DescribeFeaturesReply(ErrorCode.NONE, "", finalized, supported, epoch))
