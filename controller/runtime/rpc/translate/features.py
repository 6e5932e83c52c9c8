"""Features: messages to the core's values and back."""

from __future__ import annotations

from collections.abc import Iterable

from controller.core.model import FeatureRange
from controller.core.requests.features import (
    DescribeFeatures,
    DescribeFeaturesReply,
    FeatureUpdate,
    UpdateFeatures,
    UpdateFeaturesReply,
    UpgradeType,
)
from proto.gen import features_pb2 as pb

_UPGRADE_TYPES = {kind.value: kind for kind in UpgradeType}


def read_update(request: pb.UpdateFeaturesRequest) -> UpdateFeatures:
    return UpdateFeatures(
        [
            FeatureUpdate(u.name, u.max_version_level, _UPGRADE_TYPES.get(u.upgrade_type))
            for u in request.updates
        ],
        request.validate_only,
    )


def show_update(reply: UpdateFeaturesReply) -> pb.UpdateFeaturesResponse:
    return pb.UpdateFeaturesResponse(
        error_code=reply.error.value,  # type: ignore[arg-type]
        results=[
            pb.FeatureResult(
                name=result.name,
                error_code=result.error.value,  # type: ignore[arg-type]
                error_message=result.message,
            )
            for result in reply.results
        ],
    )


def read_description(request: pb.DescribeFeaturesRequest) -> DescribeFeatures:
    del request
    return DescribeFeatures()


def show_description(reply: DescribeFeaturesReply) -> pb.DescribeFeaturesResponse:
    return pb.DescribeFeaturesResponse(
        error_code=reply.error.value,  # type: ignore[arg-type]
        error_message=reply.message,
        finalized=_ranges(reply.finalized),
        supported=_ranges(reply.supported),
        finalized_epoch=reply.epoch,
    )


def _ranges(features: Iterable[FeatureRange]) -> list[pb.FeatureRange]:
    return [pb.FeatureRange(name=f.name, min_version_level=f.min, max_version_level=f.max) for f in features]
