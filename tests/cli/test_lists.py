"""Lists of names and of broker ids, separated by commas, repeated, or both, alike everywhere; numbers in texts."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from controller.cli.common import lists
from controller.cli.common.reassignment_files import PlanError, parse_replicas, read_plan, write_plan
from controller.cli.pctl import config, features
from controller.cli.pctl.features import parse_levels
from controller.core.names import number_in
from proto.gen import features_pb2


@click.command()
@click.argument("brokers", nargs=-1, callback=lists.broker_ids)
@click.option("--topic", "topics", multiple=True, callback=lists.names)
def listing(brokers: tuple[int, ...], topics: tuple[str, ...]) -> None:
    click.echo(f"{brokers} {topics}")


@pytest.mark.parametrize("given", [["1,2", "3"], ["1", "2", "3,1"], ["1, 2,3"]])
def test_broker_ids_are_separated_by_commas_repeated_or_both(given: list[str]) -> None:
    assert CliRunner().invoke(listing, given).output == "(1, 2, 3) ()\n"


@pytest.mark.parametrize("given", [["--topic=a,b", "--topic=c"], ["--topic", "a,b,c"]])
def test_names_are_separated_by_commas_or_repeated(given: list[str]) -> None:
    assert CliRunner().invoke(listing, given).output == "() ('a', 'b', 'c')\n"


@pytest.mark.parametrize(
    "given", ["x", "1,,2", "-1", "2147483648", "1;2", "", "9" * 5000, "0" * 5000 + "1", "\u0661"]
)
def test_bad_broker_ids(given: str) -> None:
    refused = CliRunner().invoke(listing, ["--", given])
    assert (refused.exit_code, "must be broker ids from 0 to 2147483647" in refused.output) == (2, True)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0", 0),
        ("0000000255", 255),
        ("256", None),
        ("00000000001", None),
        ("+1", None),
        ("1_0", None),
        ("\u00b2", None),
        ("\u0663", None),
        ("", None),
    ],
)
def test_a_number_is_digits_and_has_a_limit(text: str, found: int | None) -> None:
    assert number_in(text, 255) == found


@pytest.mark.parametrize("text", ["1,x", "1,,2", "-1", "99999999999", "1" * 5000, "\u0661"])
def test_bad_replicas_are_named_with_their_option(text: str) -> None:
    with pytest.raises(PlanError, match=r"--replicas .*: must be broker ids from 0 to 2147483647, as 1,2,3"):
        parse_replicas(text)


def test_replicas_keep_their_order_and_what_is_named_twice() -> None:
    """That is refused where they are checked."""
    assert parse_replicas("3, 1,3") == (3, 1, 3)


@pytest.mark.parametrize(
    "text", ["f=0", "f=32768", "f", "=1", "f=00000000199999999999", "f=" + "0" * 5000 + "1"]
)
def test_bad_levels(text: str) -> None:
    with pytest.raises(click.UsageError, match="with a level from 1 to 32767"):
        parse_levels([text])


def test_a_level_comes_after_the_last_equals_sign() -> None:
    assert parse_levels(["a=b=7", "c=32767"]) == {"a=b": 7, "c": 32767}


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The first replica is the preferred leader."""
    path = tmp_path / "plan.json"
    wanted = {("b", 0): (3, 1, 2), ("a", 10): (2,), ("a", 9): (1, 0)}
    path.write_text(write_plan(wanted))
    assert read_plan(path) == wanted


def test_a_plan_names_each_partition_once(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    entries = ",".join(f'{{"topic":"t","partition":{n},"replicas":[1]}}' for n in (0, 1, 0))
    path.write_text(f'{{"partitions":[{entries}]}}')
    with pytest.raises(PlanError, match="t-0 is named twice"):
        read_plan(path)


def test_a_plan_of_kafkas_tool_is_read_and_a_number_has_31_bits(tmp_path: Path) -> None:
    """``kafka-reassign-partitions.sh --generate``: version 1, and directories, which are not for the controller."""
    path = tmp_path / "plan.json"
    text = (
        '{"version":%s,"partitions":[{"topic":"t","partition":%s,"replicas":[2,1],"log_dirs":["any","any"]}]}'
    )
    path.write_text(text % (1, 2**31 - 1))
    assert read_plan(path) == {("t", 2**31 - 1): (2, 1)}
    assert json.loads(write_plan({("t", 0): (2, 1)})) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 1]}],
    }
    for version, number in ((2, 0), (0, 0), (1, 2**31), (1, -1)):
        path.write_text(text % (version, number))
        with pytest.raises(PlanError):
            read_plan(path)


def test_a_value_may_have_an_equals_sign() -> None:
    assert config.parse_configs(["a=b=c", " d = ", "e= f"]) == {"a": "b=c", "d": "", "e": "f"}
    for wrong in (["a"], ["=b"], ["a=1", "a =2"]):
        with pytest.raises(click.UsageError):
            config.parse_configs(wrong)


def test_a_downgrade_is_unsafe_only_where_that_is_asked_for() -> None:
    """Kafka's numbers of upgrade types (KIP-584): 2 and 3."""
    assert (features._down(False).value, features._down(True).value) == (2, 3)


def test_features_are_listed_whoever_knows_them() -> None:
    answer = features_pb2.DescribeFeaturesResponse(
        supported=[features_pb2.FeatureRange(name="s", min_version_level=1, max_version_level=3)],
        finalized=[features_pb2.FeatureRange(name="f", max_version_level=2)],
    )
    assert [tuple(row.values()) for row in features._rows(answer, {"w": 4})] == [
        ("f", None, None, 2, None),
        ("s", 1, 3, None, None),
        ("w", None, None, None, 4),
    ]
