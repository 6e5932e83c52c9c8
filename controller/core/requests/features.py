"""Features (KIP-584): what brokers can do, what the cluster has agreed on, and what is asked about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from controller.core.model import FeatureRange
from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode


class UpgradeType(Enum):
    """How a level may change; numbers on the wire are Kafka's.

    Both downgrades may lower a level or take the feature away. The unsafe one also goes below what registered brokers
    support: such a broker goes on until it registers again, and is ignored then.
    """

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(msgspec.Struct, frozen=True):
    """``level`` below 1 takes the feature away; ``upgrade_type`` is None for a number that has no name."""

    name: str
    level: int
    upgrade_type: UpgradeType | None


@dataclass(frozen=True)
class UpdateFeatures(ControllerRequest):
    """An operator wants other levels. ``validate_only``: judge, write nothing."""

    updates: Sequence[FeatureUpdate]
    validate_only: bool = False


class FeatureUpdated(msgspec.Struct, frozen=True):
    """What became of one update; ``message`` says why not."""

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
    """What the cluster has agreed on, and what its brokers support."""


@dataclass(frozen=True)
class DescribeFeaturesReply:
    """``supported``: by every registered broker. ``epoch``: version of ``/feature``, -1 where there is none."""

    error: ErrorCode
    message: str = ""
    finalized: Sequence[FeatureRange] = ()
    supported: Sequence[FeatureRange] = ()
    epoch: int = -1
