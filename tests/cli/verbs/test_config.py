"""``pctl config``: what is changed, after what was shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.cli.computed.dry_run import DryRun
from controller.cli.pctl import config
from controller.exit_codes import EXIT_FAILED, EXIT_USAGE
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2
from tests.support.cli.verbs import Asked, typed


def described(**values: str) -> pb.DescribeConfigsResponse:
    """Of topic t, by itself."""
    made = pb.DescribeConfigsResponse()
    found = made.results.add(resource=pb.ConfigResource(resource_type=pb.TOPIC, resource_name="t"))
    for name, value in values.items():
        found.configs.add(name=name, value=value, source="topics/t", known=True)
    return made


def altered(error: int = 0, *unknown: str) -> pb.AlterConfigsResponse:
    made = pb.AlterConfigsResponse()
    made.responses.add(error_code=error, error_message="no" if error else "", unknown_keys=unknown)
    return made


@pytest.mark.parametrize(
    ("command", "sent"),
    [
        ("set a=1", {"a": "1"}),
        ("set 'a = x=y ' b=", {"a": "x=y", "b": ""}),
        ("delete a", {"a": None}),
        ("delete c", {}),
        ("set a=0", {}),
        ("set a=0 b=2", {"a": "0", "b": "2"}),
    ],
)
def test_what_is_so_already_is_not_changed(
    command: str, sent: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(DescribeConfigs=described(a="0"), AlterConfigs=altered()).install(monkeypatch, config)
    assert typed(f"config {command} --topic t --yes").exit_code == 0
    found = [
        {c.name: c.value if c.HasField("value") else None for r in request.resources for c in r.configs}
        for request in asked.of("AlterConfigs")
    ]
    assert found == ([sent] if sent else [])


@pytest.mark.parametrize("option", ["--broker", "--controller"])
@pytest.mark.parametrize("id_", ["x", "-1", str(2**31)])
def test_ids_are_checked_before_anybody_is_asked(option: str, id_: str) -> None:
    assert typed(f"config get {option}={id_}").exit_code == EXIT_USAGE


@pytest.mark.parametrize(("option", "too"), [("", False), ("--force", True)])
def test_keys_that_nobody_knows_are_set_by_force_and_said(
    option: str, too: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(DescribeConfigs=described(), AlterConfigs=altered(0, "odd")).install(monkeypatch, config)
    shown = typed(f"config set odd=1 --topic t --yes {option}")
    assert [request.unknown_keys_too for request in asked.of("AlterConfigs")] == [too]
    assert "key 'odd' is not known: its value was not checked" in shown.stderr
    # Who deletes one knows that it is there.
    asked = Asked(DescribeConfigs=described(odd="1"), AlterConfigs=altered()).install(monkeypatch, config)
    assert typed("config delete odd --topic t --yes").exit_code == 0
    assert [request.unknown_keys_too for request in asked.of("AlterConfigs")] == [True]


def test_a_change_is_shown_and_agreed_to_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(DescribeConfigs=described(a="0"), AlterConfigs=altered()).install(monkeypatch, config)
    shown = typed("config set a=1 --topic t")
    assert (shown.exit_code, asked.methods) == (EXIT_USAGE, ["DescribeConfigs"])
    assert json.loads(shown.stdout) == [{"key": "a", "present": "0", "source": "topics/t", "new": "1"}]


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--topic t", "topic t"),
        ("--broker 0", "broker 0"),
        ("--all-brokers", "all brokers"),
        ("--controller 3", "controller 3"),
        ("--all-controllers", "all controllers"),
    ],
)
def test_settings_that_cannot_be_had_are_not_shown_as_none(
    option: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = pb.DescribeConfigsResponse()
    refused.results.add(error_code=common_pb2.INVALID_REQUEST, error_message="no")
    Asked(DescribeConfigs=refused).install(monkeypatch, config)
    shown = typed(f"config get {option}")
    assert (shown.exit_code, shown.stdout) == (EXIT_FAILED, "")
    assert f"pctl: {named}: INVALID_REQUEST: no" in shown.stderr


@pytest.mark.parametrize("writes", [[], [{"path": "/x"}]])
def test_what_would_not_be_written_would_not_be_changed(
    writes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_on_copy(*_: Any) -> DryRun:
        return DryRun([altered(0, "odd")], {"writes": writes, "pushes": {}, "notes": []})

    monkeypatch.setattr(config, "run_on_copy", run_on_copy)
    Asked().install(monkeypatch, config)
    said = typed("config set odd=1 --topic t --dry-run").stderr
    assert ("topic t would be changed" in said) == bool(writes)
    assert "key 'odd' is not known: its value was not checked" in said


def test_keys_that_stay_are_not_counted_as_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    Asked(DescribeConfigs=described(a="0"), AlterConfigs=altered()).install(monkeypatch, config)
    assert "1 key of topic t changed" in typed("config set a=0 b=2 --topic t --yes").stderr


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_is_refused_is_a_failure(dry_run: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    no = altered(common_pb2.INVALID_CONFIG)

    async def run_on_copy(*_: Any) -> DryRun:
        return DryRun([no], {"writes": []})

    monkeypatch.setattr(config, "run_on_copy", run_on_copy)
    Asked(DescribeConfigs=described(), AlterConfigs=no).install(monkeypatch, config)
    shown = typed(f"config set a=1 --topic t {'--dry-run' if dry_run else '--yes'}")
    assert (shown.exit_code, "topic t: INVALID_CONFIG: no" in shown.stderr) == (EXIT_FAILED, True)
