"""Requests about features (KIP-584): versions supported by brokers and levels finalized in the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from controller.core.model import FeatureRange
from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode


class UpgradeType(Enum):
    """How a level may change. Values are Kafka's numbers on the wire.

    Both downgrades may lower a level or delete the feature. The unsafe one may also go below what registered brokers
    support: such a broker continues until it registers again, then it is ignored.
    """

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(msgspec.Struct, frozen=True):
    """``level`` below 1 deletes the feature; ``upgrade_type`` is None for an unknown number."""

    name: str
    level: int
    upgrade_type: UpgradeType | None


@dataclass(frozen=True)
class UpdateFeatures(ControllerRequest):
    """An operator changes finalized levels. ``validate_only``: validate, write nothing."""

    updates: Sequence[FeatureUpdate]
    validate_only: bool = False


class FeatureUpdated(msgspec.Struct, frozen=True):
    """The result of one update; ``message`` explains an error."""

    name: str
    error: ErrorCode
    message: str = ""


@dataclass(frozen=True)
class UpdateFeaturesReply:
    """``results`` parallel to the request's updates; empty with a top-level error."""

    error: ErrorCode
    results: Sequence[FeatureUpdated] = ()


@dataclass(frozen=True)
class DescribeFeatures(ControllerRequest):
    """Requests the finalized levels, and the versions supported by brokers."""


@dataclass(frozen=True)
class DescribeFeaturesReply:
    """``supported``: by every registered broker. ``epoch``: version of ``/feature``, -1 where there is none."""

    error: ErrorCode
    message: str = ""
    finalized: Sequence[FeatureRange] = ()
    supported: Sequence[FeatureRange] = ()
    epoch: int = -1
