"""Every verb has examples in its help, every example and every command of docs parses, and what a line says; shells
complete."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from controller import __version__
from controller.cli.common.options import Options
from controller.cli.main import main as partition_controller
from controller.cli.pctl.main import main
from controller.cli.pctl_examples import EXAMPLES
from tests.support.paths import DOCS, ROOT

CONTEXT = click.Context(main)
#: Parameters of functions that take all that was given as it is.
HANDED_ON = ("flags", "given", "resource", "values")


def verbs(command: click.Command) -> Iterator[str]:
    """What can be typed, without options."""
    for verb, _ in commands(command):
        yield verb


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """What can be typed, without options, and its command."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    if command.invoke_without_command:
        yield " ".join(path), command
    for name in command.list_commands(CONTEXT):
        found = command.get_command(CONTEXT, name)
        assert found is not None
        yield from commands(found, (*path, name))


def parse(line: str) -> str:
    """The verb that a line calls. Raises click.UsageError."""
    return parsed(line)[0]


def parsed(line: str) -> tuple[str, dict[str, Any]]:
    """The verb that a line calls, and all that it says. Raises click.UsageError."""
    words = shlex.split(line.partition(" > ")[0])
    command: click.Command = main
    path: list[str] = []
    if words[0] == "partition-controller":
        command, path = partition_controller, [words.pop(0)]
    context = command.make_context("pctl", words)
    shown = context.obj = Options("127.0.0.1:2181", context.params.get("output", "table"), 10)
    said = dict(context.params)
    while isinstance(command, click.Group) and (rest := [*context._protected_args, *context.args]):
        name, found, words = command.resolve_command(context, rest)
        assert found is not None
        assert name is not None
        path.append(name)
        context = found.make_context(name, words, parent=context)
        command = found
        said |= context.params
        taken = set(parameters_of(command.callback))
        assert context.params.keys() <= taken or not taken.isdisjoint(HANDED_ON)
    return " ".join(path), said | {"watch_s": shown.watch_s, "output": shown.output}


def parameters_of(function: Any) -> Iterator[str]:
    """Of the function of a verb, and of what is around it."""
    while function is not None:
        yield from signature(function, follow_wrapped=False).parameters
        function = getattr(function, "__wrapped__", None)


def test_every_verb_has_examples() -> None:
    assert sorted(EXAMPLES) == sorted(verbs(main))


@pytest.mark.parametrize(("verb", "line"), [(v, line) for v, lines in EXAMPLES.items() for line in lines])
def test_examples_parse(verb: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text("{}")
    assert parse(line) == verb


def documented() -> list[str]:
    """What is typed after ``pctl``, and for the other program, in the blocks of docs."""
    typed = (
        line
        for page in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
        for line in re.findall(
            r"^\$ (?:pctl )?((?<=pctl ).*|partition-controller .*)$",
            page.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )
    return sorted({re.split(r" [|>] |;|  +#", line)[0].strip() for line in typed})


@pytest.mark.parametrize("line", documented())
def test_commands_of_docs_parse(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text("{}")
    verb = parse(line)
    assert verb in EXAMPLES or verb.startswith("partition-controller ")


#: What each line says, as docs/operations.md and --help have it; of produce and plan, Kafka's own defaults.
SAID: list[tuple[str, dict[str, Any]]] = [
    ("cluster", {"zookeeper": "127.0.0.1:2181", "timeout_s": 10, "output": "table", "watch_s": None}),
    ("-o json cluster", {"output": "json", "watch_s": None}),
    ("-o json cluster -o yaml", {"output": "yaml"}),
    ("cluster -w", {"watch_s": 2.0}),
    ("cluster --watch 0.5 -o tsv", {"watch_s": 0.5}),
    ("topics describe -w t", {"watch_s": 2.0, "topic": "t"}),
    ("produce t v w", {"acks": "all", "values": ("v", "w")}),
    ("history", {"limit": 1000, "all_kinds": False, "log_dirs": ()}),
    ("history --kind leader --kind isr", {"kinds": ("leader", "isr")}),
    ("freeze --reason r", {"for_s": 86_400}),
    ("freeze --reason r --for 8h", {"for_s": 8 * 3600}),
    ("freeze --reason r --for 90m", {"for_s": 90 * 60}),
    ("wait", {"until": "stable"}),
    ("report d e", {"out_dir": "report", "log_dirs": ("d", "e"), "strict": False, "as_json": False}),
    ("lake follow d --lake l", {"every_s": 10, "directory": "l"}),
    ("plan rolling-restart", {"batch": 1, "min_isr_default": 1, "unclean_default": False}),
    ("plan broker-loss 1,2 --offline", {"brokers": (1, 2), "offline": True, "writes": False, "every": False}),
    ("topics create t", {"count": None, "replication_factor": None, "dry_run": False, "no_wait": False}),
    ("topics create t --config a=1 --config b=2", {"configs": ("a=1", "b=2")}),
    ("topics delete t u", {"names": ("t", "u"), "yes": False, "dry_run": False, "no_wait": False}),
    ("partitions --topic t --topic u", {"topics": ("t", "u"), "internal": False, "sizes": False}),
    ("elect preferred --topic t --topic u", {"topics": ("t", "u"), "everything": False}),
    ("elect unclean --partition t-0 --partition t-1 --reason r", {"names": ("t-0", "t-1")}),
    ("maintenance drain 1 2 --reason r", {"brokers": (1, 2), "force": False, "no_wait": False, "yes": False}),
    ("brokers decommission 4 --to 1 --to 2,3 --reason r", {"brokers": (4,), "throttle": None, "yes": False}),
    ("config set a=1 b=2 --topic t", {"pairs": ("a=1", "b=2"), "force": False, "yes": False}),
    ("config delete a b --all-brokers", {"keys": ("a", "b")}),
    ("features upgrade --feature a=1 --feature b=2", {"named": ("a=1", "b=2"), "yes": False}),
    ("reassign generate --topic t --brokers 1,2 --brokers 3", {"brokers": (1, 2, 3), "ignore_racks": False}),
    ("reassign list --topic t --topic u", {"topics": ("t", "u")}),
    ("audit --topic t --topic u", {"topics": ("t", "u"), "recorded": False}),
    ("stoppable 1,2 3", {"brokers": (1, 2, 3), "approve": False, "override": False, "withdraw": False}),
    ("consume t", {"from_beginning": False, "follow": False, "max_messages": None, "timeout_ms": None}),
    ("controllers resign --reason r", {"to_kafka": False, "yes": False}),
    ("partition-controller playground", {"script": "demo", "brokers": 4, "controllers": 2, "with_report": None}),
    ("partition-controller playground --no-report", {"data_dir": Path("run"), "with_report": False}),
    ("partition-controller playground --brokers kafka --report", {"brokers": 0, "with_report": True}),
    ("partition-controller zookeeper", {"port": 2181, "servers": "1", "data_dir": Path("zookeeper-data")}),
    (
        "partition-controller workload --topic t --history h",
        {
            "path": Path("h"),
            "writers": 2,
            "readers": 1,
            "rate": 200,
            "value_bytes": 100,
            "acks": "all",
            "request_timeout_ms": 3000,
            "delivery_timeout_ms": 120_000,
            "kafka": False,
        },
    ),
    ("partition-controller verdict --history plan.json --data-dir 1=. --topic t", {"path": Path("plan.json")}),
    ("partition-controller certificates d --host h --host i", {"hosts": ("h", "i")}),
    (
        "partition-controller certificates d",
        {"names": ("controller-1", "controller-2", "controller-3", "broker-1", "broker-2", "broker-3", "admin")},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("line", "said"), SAID, ids=[line for line, _ in SAID])
def test_what_a_line_says_and_leaves_out(
    line: str, said: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text("{}")
    found = parsed(line)[1]
    assert {name: found[name] for name in said} == said


OPERATIONS = (DOCS / "operations.md").read_text(encoding="utf-8")


def repeated() -> list[str]:
    """The verbs that docs/operations.md has for ``-w``."""
    (listed,) = re.findall(r"^`-w \[SECONDS\]` with ((?:`[a-z ]+`(?:,\s| and )?)+)", OPERATIONS, re.MULTILINE)
    return re.findall(r"`([a-z ]+)`", listed)


def test_each_listing_is_said_to_be_repeated() -> None:
    listings = [verb for verb, command in commands(main) if any("-w" in p.opts for p in command.params)]
    assert sorted(listings) == sorted(repeated())


@pytest.mark.parametrize("verb", repeated())
def test_a_listing_is_repeated(verb: str) -> None:
    topic = " t" if verb == "topics describe" else ""
    assert parsed(f"{verb}{topic} -w")[1]["watch_s"] == 2.0
    assert parsed(f"{verb}{topic} --watch 0.5 -o tsv")[1]["watch_s"] == 0.5


#: Verbs with all that may be given, as docs/operations.md, docs/kafka.md and docs/report.md spell it.
WHOLE = [
    "audit --topic t --recorded --all",
    "brokers decommission 4 --to 1 --reason r --author a --yes --dry-run --throttle 9 --no-wait",
    "brokers forget 4 --reason r --author a --yes --dry-run",
    "brokers replace 4 7 --reason r --author a --yes --dry-run --throttle 9 --no-wait",
    "brokers swap 2 5 --reason r --author a --yes --dry-run --throttle 9 --no-wait",
    "config delete a --topic t --broker 1 --all-brokers --controller 1 --all-controllers --dry-run --yes",
    "config get --topic t --broker 1 --all-brokers --controller 1 --all-controllers",
    "config set a=1 --force --topic t --broker 1 --all-brokers --controller 1 --all-controllers --dry-run --yes",
    "consume t --partition 1 --from-beginning --offset 1 --max-messages 1 --timeout-ms 1 --group g --follow",
    "controllers claim --yes",
    "controllers move 2 --reason r --author a --yes",
    "controllers resign --to-kafka --reason r --author a --yes",
    "elect leader 2 --topic t --partition t-1 --file plan.json --all --dry-run --yes",
    "elect preferred --topic t --partition t-1 --file plan.json --all --dry-run --yes",
    "elect unclean --topic t --partition t-1 --file plan.json --all --dry-run --reason r --yes",
    "explain broker 1 --all --offline",
    "explain controller --offline",
    "explain deletion t --offline",
    "explain partition t 1 --unclean-default --offline",
    "explain reassignment t 1 --offline",
    "features disable --feature f --unsafe --dry-run --yes",
    "features downgrade --feature f=1 --unsafe --dry-run --yes",
    "features upgrade --feature f=1 --dry-run --yes",
    "freeze --for 1d --reason r --author a --yes --dry-run",
    "history d --topic t --partition 1 --broker 1 --epoch 1 --all-kinds --kind isr --since 1h --until 1m --limit 5 "
    "--state-log-dir e",
    "lake follow d --every 5 --lake l --master local",
    "lake update d --lake l --master local",
    "maintenance cancel-shutdown 1 --epoch 5 --yes --dry-run",
    "maintenance drain 1 --force --no-wait --reason r --author a --yes --dry-run",
    "maintenance enter --reason r --author a --yes --dry-run",
    "maintenance leave --reason r --author a --yes --dry-run",
    "maintenance pause --reason r --author a --yes --dry-run",
    "maintenance resume --reason r --author a --yes --dry-run",
    "maintenance undrain 1 --reason r --author a --yes --dry-run",
    "partitions --topic t --unavailable --under-replicated --under-min-isr --at-min-isr --internal --sizes",
    "plan broker-loss 1 --unclean-default --min-isr-default 2 --offline --writes --all",
    "plan rolling-restart --batch 2 --brokers 1 --unclean-default --min-isr-default 2 --offline --writes --all",
    "produce t v --partition 1 --key k --key-separator : --acks 1",
    "quarantine release topic/t --reason r --author a --yes",
    "reassign cancel plan.json --topic t --partition 1 --all --yes --dry-run --no-wait",
    "reassign execute plan.json --topic t --partition 1 --replicas 1 --reason r --throttle 9 --yes --dry-run --no-wait",
    "reassign generate --topic t --brokers 1 --replication-factor 2 --ignore-racks --by bytes --include-internal",
    "reassign list --topic t",
    "reassign verify plan.json",
    "report d --lake l --out o --master local --slo 99.9 --brokers plan.json --json --strict --at 7 --diff 7 8",
    "stoppable 1 --tolerate-under-replicated --approve --override --withdraw --all --list --reason r --author a --yes "
    "--dry-run --unclean-default --min-isr-default 2 --offline",
    "topics alter t --partitions 2 --replica-assignment 1:2 --yes --dry-run --no-wait",
    "topics create t --partitions 2 --replication-factor 2 --replica-assignment 1:2 --config a=1 --yes --dry-run "
    "--no-wait",
    "topics delete t --reason r --yes --dry-run --no-wait",
    "topics describe t --sizes",
    "topics list --internal",
    "unfreeze --reason r --author a --yes --dry-run",
    "wait --until healthy",
    "watch --topic t --partition 1 --broker 1 --epoch 1 --all-kinds --kind isr --for 5",
    *(
        f"partition-controller playground --script {script} --brokers 3 --controllers 3 --data-dir d --zookeeper h:1 "
        "--secure --report"
        for script in ("demo", "failover", "rolling", "operations", "gameday", "gameday-short", "idle")
    ),
    *(
        f"partition-controller workload --bootstrap h:1 --zookeeper h:1 --kafka --topic t --history h --writers 3 "
        f"--readers 3 --rate 0.5 --value-bytes 1 --acks {acks} --request-timeout-ms 1 --delivery-timeout-ms 1 "
        "--duration-s 0.5"
        for acks in ("all", "1", "0")
    ),
    "partition-controller verdict --history plan.json --data-dir 1=. --data-dir 2=. --topic t",
    *(f"partition-controller zookeeper --port 1 --data-dir d --servers {count}" for count in (1, 3, 5)),
    "partition-controller certificates d --host h --name n",
    "partition-controller tokens add n --file plan.json",
    "partition-controller tokens remove n --file plan.json",
    *(
        f"partition-controller zookeeper-security-migration --acl {kind} --enable-path-check --config c --zookeeper h:1"
        for kind in ("secure", "unsecure")
    ),
    "partition-controller check-cluster --config c --controller-id 1 --zookeeper h:1 --details -o json",
    *(
        f"partition-controller {verb} --config c --controller-id 1 --zookeeper h:1 --grpc-listen h:1 "
        "--http-listen h:1 --state-log-dir d --session-timeout-ms 6000"
        for verb in ("run", "check-config")
    ),
]  # fmt: skip


@pytest.mark.parametrize("line", WHOLE)
def test_each_option_has_its_name_and_counts(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text("{}")
    if line.startswith("partition-controller"):
        verb, said = parsed(line)
    else:
        verb, said = parsed(f"{line} -o json")
        assert (verb, said["output"]) == (
            next(v for v in sorted(EXAMPLES)[::-1] if line.startswith(v)),
            "json",
        )
    own = {name: value for name, value in said.items() if name not in ABOUT_ALL}
    assert not [name for name, value in own.items() if value in (None, (), False)]


#: Options before the verb, and how it is shown.
ABOUT_ALL = {*(parameter.name for parameter in main.params), "output", "watch_s"}


def test_options_before_the_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ca", "token"):
        Path(name).write_text("")
    said = parsed(
        "--zookeeper h:1/c --bootstrap b:1,c:2 --timeout 5 -o tsv --ssl-ca ca --ssl-certificate ca --ssl-key ca "
        "--token-file token --zookeeper-ssl-ca z cluster"
    )[1]
    assert (said["zookeeper"], said["bootstrap"], said["timeout_s"]) == ("h:1/c", ("b:1", "c:2"), 5)
    assert (said["output"], said["zookeeper_ssl_ca"]) == ("tsv", "z")
    assert [str(said[name]) for name in ("ssl_ca", "ssl_certificate", "ssl_key", "token_file")] == [
        "ca",
        "ca",
        "ca",
        "token",
    ]


@pytest.mark.parametrize("program", [main, partition_controller])
def test_help_has_two_names(program: click.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    # click keeps the option as whoever asked first had it: other tests ask without settings.
    monkeypatch.setattr(program, "_help_option", None)
    short, long = (CliRunner().invoke(program, [name], prog_name="p") for name in ("-h", "--help"))
    assert (short.exit_code, short.output) == (0, long.output)
    assert CliRunner().invoke(program, ["--version"], prog_name="p").output.strip().endswith(__version__)


ID_MAX, OFFSET_MAX = 2**31 - 1, 2**63 - 1
#: The least and the greatest number that a verb takes; None: as great as you like. Ids of brokers and partitions have
#: 31 bits, offsets and rates 63, epochs begin with 1: as in Kafka.
BOUNDS: list[tuple[str, float, float | None]] = [
    ("--timeout {} cluster", 0.1, 600),
    ("cluster -w {}", 0.1, 86_400),
    ("explain broker {}", 0, ID_MAX),
    ("explain partition t {}", 0, ID_MAX),
    ("explain reassignment t {}", 0, ID_MAX),
    ("elect leader {} --topic t", 0, ID_MAX),
    ("brokers forget {} --reason r", 0, ID_MAX),
    ("plan broker-loss {}", 0, ID_MAX),
    ("config get --broker {}", 0, ID_MAX),
    ("config get --controller {}", 0, ID_MAX),
    ("controllers move {} --reason r", 0, ID_MAX),
    ("produce t v --partition {}", 0, ID_MAX),
    ("consume t --partition 0 --offset {}", 0, OFFSET_MAX),
    ("consume t --max-messages {}", 1, None),
    ("consume t --timeout-ms {}", 1, None),
    ("history --epoch {}", 1, ID_MAX),
    ("history --topic t --partition {}", 0, ID_MAX),
    ("history --limit {}", 1, 100_000),
    ("watch --for {}", 0.1, None),
    ("topics create t --partitions {}", 1, 200_000),
    ("topics create t --replication-factor {}", 1, 1000),
    ("topics alter t --partitions {}", 1, 200_000),
    ("reassign generate --topic t --brokers 1 --replication-factor {}", 1, 1000),
    ("reassign execute plan.json --throttle {}", 1, OFFSET_MAX),
    ("plan drain 1 --min-isr-default {}", 1, 1000),
    ("plan rolling-restart --batch {}", 0, ID_MAX),
    ("lake follow d --lake l --every {}", 0.1, 3600),
    ("partition-controller zookeeper --port {}", 0, 65_535),
    ("partition-controller playground --controllers {}", 2, 9),
    ("partition-controller playground --brokers {}", 1, 50),
    ("partition-controller workload --topic t --history h --writers {}", 0, 1000),
    ("partition-controller workload --topic t --history h --readers {}", 0, 1000),
    ("partition-controller workload --topic t --history h --value-bytes {}", 1, 1_000_000),
    ("partition-controller workload --topic t --history h --request-timeout-ms {}", 1, None),
    ("partition-controller workload --topic t --history h --delivery-timeout-ms {}", 1, None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "least", "most"), BOUNDS, ids=[line for line, _, _ in BOUNDS])
def test_numbers_have_bounds(line: str, least: float, most: float | None) -> None:
    step = 1 if isinstance(least, int) else 0.05
    parse(line.format(least))
    parse(line.format(2**63 if most is None else most))
    for wrong in [least - step] if most is None else [least - step, most + step]:
        with pytest.raises(click.UsageError):
            parse(line.format(wrong))


#: Each lacks, or has too much of, what the verb must know: nothing is assumed for what changes the cluster.
REFUSED = [
    "maintenance pause",
    "maintenance enter",
    "maintenance drain 1",
    "maintenance drain --reason r",
    "maintenance pause --reason ''",
    "maintenance pause --reason r --author ' '",
    f"maintenance pause --reason {'r' * 1001}",
    f"maintenance pause --reason r --author {'a' * 201}",
    "freeze",
    "freeze --reason r --for 8",
    "freeze --reason r --for 8w",
    "brokers decommission 4",
    "brokers decommission --reason r",
    "brokers forget 4",
    "brokers replace 4 --reason r",
    "brokers swap 2 --reason r",
    "controllers move 2",
    "controllers resign",
    "quarantine release topic/t",
    "topics create",
    "topics delete",
    "topics alter t",
    "config set --topic t",
    "config delete --topic t",
    "features upgrade",
    "features disable",
    "reassign verify",
    "lake update d",
    "lake update --lake l",
    "man",
    "report d --out ''",
    "report d --brokers ''",
    "plan broker-loss",
    "plan drain 1,2",
    "topics delete t --no-such",
    "cluster -w nan",
    "--timeout nan cluster",
    "--bootstrap h brokers",
    "--bootstrap :1 brokers",
    "--bootstrap h:0 brokers",
    "--bootstrap h:1,h:65536 brokers",
    "cluster --timeout 5",
    "topics create t --partitions 1 --partitions 2",
    "-o xml cluster",
    "wait --until done",
    "produce t v --acks 2",
    "history --kind none",
    "elect leader x --topic t",
    "partition-controller workload --topic t",
    "partition-controller workload --history h",
    "partition-controller workload --topic t --history h --rate 0",
    "partition-controller workload --topic t --history h --rate 1000001",
    "partition-controller workload --topic t --history h --duration-s 0",
    "partition-controller verdict --history none --data-dir 1=. --topic t",
    "partition-controller verdict --history . --data-dir 1=. --topic t",
    "partition-controller verdict --data-dir 1=. --topic t",
    "partition-controller playground --script none",
    "partition-controller zookeeper --servers 2",
    "partition-controller zookeeper-security-migration",
    "partition-controller tokens add n",
    "partition-controller certificates",
]


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_missing_or_too_much_is_a_usage_error(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(line)


def test_help_shows_them() -> None:
    result = CliRunner().invoke(main, ["reassign", "verify", "--help"], prog_name="pctl")
    assert "Examples:\n  pctl reassign verify plan.json\n" in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell], prog_name="pctl")
    assert result.exit_code == 0
    assert f"_PCTL_COMPLETE={shell}_complete" in result.output


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("pctl bro", {"brokers"}),
        ("pctl brokers de", {"decommission"}),
        ("pctl completion f", {"fish"}),
        # What will be refused is completed all the same.
        ("pctl config get --topic a --topic b --all-b", {"--all-brokers"}),
    ],
)
def test_what_is_completed(typed: str, wanted: set[str]) -> None:
    environment = {
        "_PCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    result = CliRunner().invoke(main, [], prog_name="pctl", env=environment)
    assert {line.partition(",")[2] for line in result.output.splitlines()} == wanted
