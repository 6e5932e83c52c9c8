"""Programs start fast: what they import, and that their lists of commands say what the commands say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from controller.cli.common.lazy import Later, Lazy
from controller.cli.common.options import SPARK_MASTER
from controller.cli.main import COMMANDS
from controller.cli.main import main as partition_controller
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
#: The numbers of a TLS context's authorities.
AUTHORITIES = "aiohttp.connector._SSL_CONTEXT_VERIFIED.cert_store_stats()"


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    ["from broker_stub.cli import main", "from controller.cli.main import main; main.get_command({}, 'run')"],
)
def test_daemons_need_no_rich(program: str) -> None:
    found = imported(program)
    assert "structlog" in found
    assert "rich" not in found
    # Who needs it later gets it.
    assert "rich" in imported(f"{program}; import rich")


@pytest.mark.slow
def test_the_authorities_of_the_machine_are_for_who_asks_for_them() -> None:
    code = (
        "import os, controller.cli.main as c\nbefore = dict(os.environ)\n"
        "c.main.get_command({}, 'run')\nimport aiohttp\n"
        f"assert {AUTHORITIES} == {{'x509': 0, 'crl': 0, 'x509_ca': 0}}\nassert os.environ == before\n"
    )
    assert "structlog" in imported(code)


@pytest.mark.parametrize(
    ("program", "name"), [(main, n) for n in VERBS] + [(partition_controller, n) for n in COMMANDS]
)
def test_the_list_says_what_the_command_says(program: Lazy, name: str) -> None:
    command = program.get_command(click.Context(program), name)
    assert command is not None
    assert command.name == name
    assert " ".join((command.help or "").split()).startswith(program.later[name].help)
    assert program.later[name].help in " ".join(CliRunner().invoke(program, ["--help"]).output.split())


def test_commands_have_the_names_that_units_and_docs_call() -> None:
    """deploy/systemd, the image, docs/operations.md, security.md and chaos.md."""
    assert partition_controller.list_commands(click.Context(partition_controller)) == [
        "certificates",
        "check-cluster",
        "check-config",
        "playground",
        "run",
        "tokens",
        "verdict",
        "workload",
        "zookeeper",
        "zookeeper-security-migration",
    ]


def test_an_unknown_verb() -> None:
    refused = CliRunner().invoke(main, ["broker"])
    assert (refused.exit_code, "No such command 'broker'" in refused.output) == (2, True)


@pytest.mark.parametrize(
    ("later", "typed", "meant"), [(VERBS, "tpoics", "topics"), (COMMANDS, "playgrund", "playground")]
)
def test_a_misspelt_verb_is_told_what_may_be_meant(later: dict[str, Later], typed: str, meant: str) -> None:
    refused = CliRunner().invoke(Lazy(later=later), [typed])
    assert (refused.exit_code, f"Did you mean '{meant}'?" in refused.output) == (2, True)


@pytest.mark.parametrize(
    "line",
    [
        "zookeeper --data-dir=",
        "playground --data-dir=",
        "check-config --config=",
        "workload --bootstrap=h:1 --topic=t --history=",
        "certificates ",
        "pctl report ",
        "pctl lake update --lake=x ",
    ],
)
def test_an_empty_path_is_not_the_directory_that_one_is_in(line: str) -> None:
    verb, *arguments = line.split(" ")
    program = main if verb == "pctl" else partition_controller
    refused = CliRunner().invoke(program, arguments if verb == "pctl" else [verb, *arguments])
    assert (refused.exit_code, "must name a file or a directory" in refused.output) == (2, True)


def test_a_bucket_without_a_name_is_refused_before_its_client_is_fetched() -> None:
    for name in ("s3a://", "s3a:///lake"):
        refused = CliRunner().invoke(main, ["report", f"--lake={name}"])
        assert (refused.exit_code, "must be s3a://BUCKET/..." in refused.output) == (2, True)


def test_a_migration_without_zookeeper_says_so_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p")
    (tmp_path / "password").chmod(0o600)
    arguments = ["--acl=secure", "--zookeeper=127.0.0.1:1", "--zookeeper-digest-username=kafka"]
    failed = CliRunner().invoke(
        partition_controller,
        [
            "zookeeper-security-migration",
            *arguments,
            f"--zookeeper-digest-password-file={tmp_path / 'password'}",
        ],
    )
    assert (failed.exit_code, failed.output) == (
        1,
        "zookeeper-security-migration: no ZooKeeper listens at 127.0.0.1:1: the connection is refused\n",
    )


@pytest.mark.parametrize("verb", ["report", "lake update"])
def test_a_master_that_spark_does_not_know_is_refused_before_spark_starts(verb: str) -> None:
    for name in ("foo", "", "local[", "spark:host"):
        refused = CliRunner().invoke(main, [*verb.split(), "absent", "--lake=l", f"--master={name}"])
        assert (refused.exit_code, "must be local, local[N], yarn" in refused.output) == (2, True), name
    for name in ("local", "local[4]", "local[*,2]", "spark://host:7077", "yarn", "k8s://https://host:443"):
        assert SPARK_MASTER.convert(name, None, None) == name


def test_sigterm_is_ctrl_c_for_a_report_and_no_traceback_of_py4j_is_shown() -> None:
    program = """if True:
        import logging, signal
        from controller.cli.pctl.analysis.ending import end_in_order
        end_in_order()
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            logging.exception("while sending command")
    """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
@pytest.mark.parametrize(
    "line", ["report .", "report . --at=7", "lake update . --lake=l", "lake follow . --lake=l"]
)
def test_where_spark_was_left_out_a_report_is_refused(
    package: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Debian package has neither."""
    monkeypatch.setitem(sys.modules, package, None)
    refused = CliRunner().invoke(main, line.split(" "))
    assert (refused.exit_code, f"{package} is not installed" in refused.output) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [
        ("controller.cli.pctl.main", "pctl", ["--version"]),
        ("controller.cli.pctl.main", "pctl", ["man", "--help"]),
        ("controller.cli.pctl.main", "pctl", ["completion", "bash"]),
        ("controller.cli.main", "partition-controller", ["check-config"]),
        ("broker_stub.cli", "broker-stub", ["--help"]),
    ],
)
def test_what_cannot_be_printed_is_said(module: str, name: str, arguments: list[str]) -> None:
    """Where a disk is full."""
    program = f"from {module} import main; main()"
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, f"{name}: write error: No space left on device\n")
