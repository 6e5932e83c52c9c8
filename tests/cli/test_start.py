"""pctl starts fast: what its verbs import, and that its list of verbs is that of their modules."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from controller.cli.pctl.main import VERBS, main

#: Each takes tens of milliseconds to import.
HEAVY = {
    "structlog",
    "rich",
    "prometheus_client",
    "pyspark",
    "controller.core.handlers",
    "controller.runtime.config",
}
CONTEXT = click.Context(main)


def imported(code: str) -> set[str]:
    """The modules of HEAVY, sessions with ZooKeeper, and gRPC, that a program has imported at its end."""
    watched = HEAVY | {"grpc", "controller.runtime.zookeeper.session"}
    program = f"import sys\n{code}\nprint(*({watched!r} & sys.modules.keys()))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(ended.stdout.split("\n")[-2].split())


@pytest.mark.slow
def test_help_needs_neither_zookeeper_nor_grpc() -> None:
    assert (
        imported("from controller.cli.pctl.main import main\nmain(['--help'], standalone_mode=False)")
        == set()
    )


@pytest.mark.slow
def test_no_verb_imports_what_one_request_does_not_need() -> None:
    modules = sorted({f"controller.cli.pctl.{verb.module}" for verb in VERBS.values()})
    code = f"from importlib import import_module\nfor m in {modules!r}: import_module(m)"
    assert imported(code + "\nimport controller.runtime.zookeeper.cluster_reader") == {
        "grpc",
        "controller.runtime.zookeeper.session",
    }


@pytest.mark.parametrize("name", VERBS)
def test_the_list_says_what_the_verb_says(name: str) -> None:
    verb = main.get_command(CONTEXT, name)
    assert verb is not None
    assert verb.name == name
    assert " ".join((verb.help or "").split()).startswith(VERBS[name].help)
    assert VERBS[name].help in " ".join(CliRunner().invoke(main, ["--help"]).output.split())


def test_an_unknown_verb() -> None:
    refused = CliRunner().invoke(main, ["broker"])
    assert (refused.exit_code, "No such command 'broker'" in refused.output) == (2, True)
