"""``pctl features``: what brokers support, what is asked for, and how many were updated."""

from __future__ import annotations

import json

import pytest

from controller.cli.pctl import features
from controller.core.requests.features import UpgradeType
from controller.exit_codes import EXIT_FAILED, EXIT_USAGE
from proto.gen import common_pb2
from proto.gen import features_pb2 as pb
from tests.support.cli.verbs import Asked, typed


def described() -> pb.DescribeFeaturesResponse:
    made = pb.DescribeFeaturesResponse(finalized_epoch=4)
    made.supported.add(name="a", min_version_level=1, max_version_level=5)
    made.finalized.add(name="b", max_version_level=2)
    return made


def updated(*refuses: str) -> pb.UpdateFeaturesResponse:
    made = pb.UpdateFeaturesResponse()
    for name in ("a", "b"):
        made.results.add(name=name, error_code=common_pb2.INVALID_REQUEST if name in refuses else 0)
    return made


def test_what_is_supported_or_finalized_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    Asked(DescribeFeatures=described()).install(monkeypatch, features)
    assert json.loads(typed("features describe").stdout) == [
        {"feature": "a", "supported_min": 1, "supported_max": 5, "finalized": None, "epoch": 4},
        {"feature": "b", "supported_min": None, "supported_max": None, "finalized": 2, "epoch": 4},
    ]
    shown = typed("features describe", "table").stdout.splitlines()
    assert shown[0].split() == ["finalized", "epoch", "4"]
    assert "EPOCH" not in shown[1].split()
    nothing = pb.DescribeFeaturesResponse(finalized_epoch=-1)
    Asked(DescribeFeatures=nothing).install(monkeypatch, features)
    assert typed("features describe", "table").stdout.splitlines()[0].split() == ["finalized", "epoch", "-"]


@pytest.mark.parametrize(
    ("command", "levels", "kind"),
    [
        ("upgrade --feature a=3 --feature b=4", {"a": 3, "b": 4}, UpgradeType.UPGRADE),
        ("downgrade --feature a=1", {"a": 1}, UpgradeType.SAFE_DOWNGRADE),
        ("downgrade --feature a=1 --unsafe", {"a": 1}, UpgradeType.UNSAFE_DOWNGRADE),
        ("disable --feature a --feature b", {"a": 0, "b": 0}, UpgradeType.SAFE_DOWNGRADE),
        ("disable --feature a --unsafe", {"a": 0}, UpgradeType.UNSAFE_DOWNGRADE),
    ],
)
def test_levels_are_asked_for_as_they_were_shown(
    command: str, levels: dict[str, int], kind: UpgradeType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(DescribeFeatures=described(), UpdateFeatures=updated()).install(monkeypatch, features)
    shown = typed(f"features {command} --yes")
    assert {row["feature"]: row["wanted"] for row in json.loads(shown.stdout)} == levels
    (request,) = asked.of("UpdateFeatures")
    assert {u.name: (u.max_version_level, u.upgrade_type) for u in request.updates} == {
        name: (level, kind.value) for name, level in levels.items()
    }
    asked.requests.clear()
    assert (typed(f"features {command}").exit_code, asked.methods) == (EXIT_USAGE, ["DescribeFeatures"])


def test_those_that_were_refused_are_not_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    Asked(DescribeFeatures=described(), UpdateFeatures=updated("b")).install(monkeypatch, features)
    shown = typed("features upgrade --feature a=3 --feature b=9 --yes")
    assert (shown.exit_code, "1 of 2 features updated" in shown.stderr) == (EXIT_FAILED, True)
    assert "b: INVALID_REQUEST" in shown.stderr


@pytest.mark.parametrize(
    "command",
    [
        "upgrade --feature a",
        "upgrade --feature a=0",
        "upgrade --feature a=1 --feature a=2",
        "disable --feature a --feature a",
    ],
)
def test_a_feature_is_named_once_with_its_level(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked().install(monkeypatch, features)
    assert (typed(f"features {command} --yes").exit_code, asked.methods) == (EXIT_USAGE, [])
