"""Lists of names and of broker ids: separated by commas, repeated, or both, alike everywhere."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from controller.cli.common import lists


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


@pytest.mark.parametrize("given", ["x", "1,,2", "-1", "2147483648", "1;2", "", "9" * 5000])
def test_bad_broker_ids(given: str) -> None:
    refused = CliRunner().invoke(listing, ["--", given])
    assert (refused.exit_code, "must be broker ids from 0 to 2147483647" in refused.output) == (2, True)
