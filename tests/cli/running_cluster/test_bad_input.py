"""Nonsense for every verb of pctl: an exit code of the contract, words that name the thing, and never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.cli.operator import Operator, pctl

pytestmark = pytest.mark.slow

#: Members that are killed or frozen have to go.
SESSION_TIMEOUT_MS = 3000

Row = tuple[str, int, str]
NOT_TEXT = "\udcff\udcfe"
HUGE = "99999999999999999999"
LONG = "x" * 5000
#: Topic names that nobody has, and what no topic can be called.
NAMES = ("nope", "", "a b", "a/b", "..", "a\nb", "a\x01b", "tøpic", LONG)
#: With TOPIC to be replaced by each of them: refused, and nothing done.
ABOUT_A_TOPIC = [
    ["topics", "describe", "TOPIC"],
    ["topics", "delete", "TOPIC", "--yes"],
    ["topics", "delete", "TOPIC", "--dry-run"],
    ["topics", "alter", "TOPIC", "--partitions=3", "--yes"],
    ["topics", "alter", "TOPIC", "--partitions=3", "--dry-run"],
    ["partitions", "--topic=TOPIC"],
    ["elect", "--topic=TOPIC"],
    ["elect", "--partition=TOPIC"],
    ["elect", "leader", "1", "--topic=TOPIC", "--dry-run"],
    ["elect", "unclean", "--topic=TOPIC", "--yes"],
    ["config", "get", "--topic=TOPIC"],
    ["config", "set", "--topic=TOPIC", "x=y", "--yes"],
    ["config", "set", "--topic=TOPIC", "x=y", "--dry-run"],
    ["config", "delete", "--topic=TOPIC", "x", "--yes"],
    ["reassign", "execute", "--topic=TOPIC", "--partition=0", "--replicas=1", "--yes"],
    ["reassign", "execute", "--topic=TOPIC", "--partition=0", "--replicas=1", "--dry-run"],
    ["reassign", "cancel", "--topic=TOPIC", "--partition=0", "--yes"],
    ["reassign", "generate", "--topic=TOPIC"],
    ["reassign", "list", "--topic=TOPIC"],
    ["explain", "partition", "TOPIC", "0"],
    ["explain", "deletion", "TOPIC"],
    ["explain", "reassignment", "TOPIC", "0"],
    ["produce", "TOPIC", "x"],
    ["consume", "TOPIC", "--max-messages=1", "--timeout-ms=100"],
]
#: The command line, its exit code, and what is said.
BAD: list[Row] = [
    # Partitions that are not there.
    ("elect --partition=bad-7", 1, "no topic or partition 'bad-7'"),
    ("elect --partition=bad--1", 1, "no topic or partition 'bad--1'"),
    (f"elect --partition=bad-{HUGE}", 1, f"no topic or partition 'bad-{HUGE}'"),
    ("reassign execute --topic=bad --partition=7 --replicas=1 --yes", 1, "no partition bad-7"),
    ("reassign execute --topic=bad --partition=-1 --replicas=1", 2, "-1 is not in the range"),
    (f"reassign execute --topic=bad --partition={HUGE} --replicas=1", 2, "is not in the range"),
    ("reassign cancel --topic=bad --partition=7 --yes", 1, "no partition bad-7"),
    ("explain partition bad 7", 1, "no partition bad-7"),
    (f"explain partition bad {HUGE}", 2, "is not in the range"),
    ("explain reassignment bad -1", 2, "-1"),
    ("produce bad x --partition=7", 1, "topic bad has no partition 7"),
    (f"produce bad x --partition={HUGE}", 2, "is not in the range"),
    (f"consume bad --partition={HUGE}", 2, "is not in the range"),
    (f"consume bad --partition=0 --offset={HUGE}", 2, "is not in the range"),
    ("consume bad --partition=0 --offset=-1", 2, "-1 is not in the range"),
    (f"history --topic=bad --partition={HUGE}", 2, "is not in the range"),
    # Brokers that are not there.
    ("elect leader 9 --topic=bad", 0, "nothing to do"),
    (f"elect leader {HUGE} --topic=bad", 2, "is not in the range"),
    ("elect leader 9 --partition=bad-0", 3, "leader = 9: must be one of its replicas [1, 2]"),
    ("elect leader 9 --partition=bad-0 --dry-run", 3, "leader = 9: must be one of its replicas [1, 2]"),
    ("reassign execute --topic=bad --partition=0 --replicas=9 --yes", 3, "[9] are not live brokers"),
    ("reassign execute --topic=bad --partition=0 --replicas=9 --dry-run", 3, "[9] are not live brokers"),
    (
        f"reassign execute --topic=bad --partition=0 --replicas={HUGE} --yes",
        1,
        "must be broker ids from 0 to 2147483647",
    ),
    ("reassign execute --topic=bad --partition=0 --replicas=1,1 --yes", 1, "must be distinct"),
    ("reassign generate --brokers=1,9", 1, "broker 9 is not registered"),
    ("reassign generate --brokers=9 --brokers=1", 1, "broker 9 is not registered"),
    ("plan rolling-restart --brokers=9 --brokers=1", 1, "broker 9 not registered"),
    ("brokers decommission 1 --reason=r --to=9 --to=2", 1, "broker 9 is not registered"),
    (
        "reassign execute --topic=t --partition=0 --partition=1 --replicas=1",
        2,
        "--partition: is given 2 times",
    ),
    (f"reassign generate --brokers={HUGE}", 2, "must be broker ids from 0 to 2147483647"),
    ("reassign generate --replication-factor=9 --topic=bad", 1, "9"),
    ("maintenance drain 9 --reason=r --yes", 1, "broker 9 is not registered"),
    ("maintenance drain 9 --reason=r --dry-run", 1, "broker 9 is not registered"),
    (f"maintenance drain {HUGE} --reason=r --yes", 2, "must be broker ids from 0 to 2147483647, as 3,5"),
    ("maintenance undrain 9 --yes", 0, "nothing to do: broker 9: not drained"),
    ("maintenance cancel-shutdown 9 --yes", 1, "broker 9 is not registered"),
    (f"maintenance cancel-shutdown 1 --epoch={HUGE}", 2, "is not in the range"),
    ("stoppable 9", 3, "broker 9 is not registered"),
    ("stoppable 9 --override --reason=r --dry-run", 3, "broker 9 is not registered"),
    (f"stoppable {HUGE}", 2, "must be broker ids from 0 to 2147483647, as 3,5"),
    ("explain broker 9", 0, "not registered"),
    (f"explain broker {HUGE}", 2, "is not in the range"),
    ("plan broker-loss 9", 1, "broker 9 not registered"),
    ("plan rolling-restart --brokers=9", 1, "broker 9 not registered"),
    ("plan drain 9", 1, "broker 9 not registered"),
    ("plan rack-loss nowhere", 1, "no registered broker is in rack 'nowhere'"),
    ("config set --broker=-1 x=y", 2, "-1 is not in the range"),
    (f"config set --broker={HUGE} x=y", 2, "is not in the range"),
    ("topics create new --partitions=2 --replication-factor=9", 1, "9"),
    ("topics create new --partitions=2 --replication-factor=9 --dry-run", 1, "9"),
    (f"topics create new --partitions={HUGE}", 2, "is not in the range"),
    ("topics create new --partitions=-1", 2, "-1 is not in the range"),
    ("topics alter bad --partitions=1 --yes", 1, "1"),
    ("topics alter bad --partitions=1 --dry-run", 1, "1"),
    # Words.
    ("features upgrade --feature=nobodys=1 --yes", 1, "nobodys: INVALID_REQUEST"),
    ("features upgrade --feature=nobodys=1 --dry-run", 1, "nobodys: INVALID_REQUEST"),
    ("features disable --feature=nobodys --yes", 1, "nobodys: "),
    ("config set --topic=bad min.insync.replicas=0 --yes", 1, "min.insync.replicas"),
    ("config set --topic=bad min.insync.replicas=0 --dry-run", 1, "min.insync.replicas"),
    (
        "config set --topic=bad --broker=1 x=y",
        2,
        "name one of --topic, --broker, --all-brokers, --controller",
    ),
    ("maintenance enter --yes", 2, "Missing option '--reason'"),
    (f"maintenance pause --reason={LONG}", 2, "must be a text of 1 to 1000 characters"),
    (f"maintenance leave --author={LONG}", 2, "must be a text of 1 to 200 characters"),
    ("history --since=yesterday", 2, "must be like 30s, 10m"),
    ("history --kind=nonsense", 2, "'nonsense' is not one of"),
    (f"history --epoch={HUGE}", 2, "is not in the range"),
    ("watch --for=0", 2, "0.0 is not in the range"),
    ("cluster -w -1", 2, "-1.0 is not in the range"),
    ("cluster -w nan", 2, "nan"),
    ("plan rolling-restart --batch=-1", 2, "-1 is not in the range"),
    ("plan rolling-restart --brokers=", 2, "must be broker ids from 0 to 2147483647, as 3,5"),
    ("topics -o xml list", 2, "'xml' is not one of"),
    ("nonsense", 2, "No such command 'nonsense'"),
]


@pytest.fixture(scope="module", autouse=True)
def a_topic(operator: Operator) -> None:
    operator.ok("topics", "create", "bad", "--replica-assignment=1:2,2:3")


def in_words(result: Result, code: int, said: str, what: object) -> None:
    assert (result.exit_code, said in result.output) == (code, True), f"{what}: {result.output}"
    reasons = [line for line in result.stderr.splitlines() if line.startswith(("pctl: ", "Error: "))]
    # Where the rows before it are from is not why nothing was done.
    reasons = [line for line in reasons if not line.startswith("pctl: from ZooKeeper alone")]
    assert len(reasons) == (code in (1, 2)) or code in (0, 3), f"{what}: one line says why: {result.output}"
    assert "Traceback" not in result.output


@pytest.mark.parametrize("name", [*NAMES, NOT_TEXT], ids=lambda name: ascii(name[:6]))
def test_topics_that_are_not_there(operator: Operator, name: str) -> None:
    for verb in ABOUT_A_TOPIC:
        result = operator.run(*(word.replace("TOPIC", name) for word in verb))
        if name == NOT_TEXT:
            in_words(result, 2, r"'\udcff\udcfe': must be UTF-8", verb)
        else:
            in_words(result, 1, "", verb)
            assert name == LONG or repr(name)[1:-1] in result.stderr or name in result.stderr, verb


@pytest.mark.parametrize("name", [n for n in NAMES if n != "nope"], ids=lambda name: ascii(name[:6]))
def test_topics_that_cannot_be(operator: Operator, name: str) -> None:
    for more in ([], ["--dry-run"]):
        said = "must have at most 1000" if name == LONG else "must be 1 to 249 of a-z"
        in_words(operator.run("topics", "create", name, *more), 1, said, name)
    for verb in (["history"], ["watch", "--for=0.1"]):
        in_words(operator.run(*verb, f"--topic={name}"), 2, "must be 1 to 249 of a-z", name)


@pytest.mark.parametrize(("line", "code", "said"), BAD, ids=[line[:60] for line, _, _ in BAD])
def test_nonsense_on_a_command_line_is_refused_in_words(
    operator: Operator, line: str, code: int, said: str
) -> None:
    in_words(operator.run(*line.split()), code, said, line)


def test_words_that_are_no_text(operator: Operator) -> None:
    for verb in (
        ["topics", "create", NOT_TEXT],
        ["topics", "create", "new", f"--config=a={NOT_TEXT}"],
        ["config", "set", "--broker=1", f"{NOT_TEXT}=1"],
        ["maintenance", "enter", f"--reason={NOT_TEXT}"],
        ["features", "disable", f"--feature={NOT_TEXT}"],
        ["plan", "rack-loss", NOT_TEXT],
        ["history", f"--topic={NOT_TEXT}"],
    ):
        in_words(operator.run(*verb), 2, "must be UTF-8", verb)
    in_words(pctl(f"127.0.0.1:1/{NOT_TEXT}", "cluster"), 2, "must be UTF-8", "--zookeeper")
    # A record is what it is.
    operator.ok("produce", "bad", NOT_TEXT, "--partition=0")


def test_unusable_reassignment_files_are_refused_in_words(operator: Operator, tmp_path: Path) -> None:
    entry = {"topic": "bad", "partition": 0, "replicas": [1]}
    contents = {
        "binary": (b"\x00\xff\xfe" * 100_000, "JSON"),
        "empty": (b"", "truncated"),
        "array": (b"[]", "Expected `object`, got `array`"),
        "deep": (b'{"x":' + b"[" * 200_000, "nested too deeply"),
        "negative": (json.dumps({"partitions": [{**entry, "partition": -1}]}).encode(), ">= 0"),
        "far": (json.dumps({"partitions": [{**entry, "partition": 2**40}]}).encode(), "<= 2147483647"),
        "nobody": (json.dumps({"partitions": [{**entry, "replicas": []}]}).encode(), "at least one broker"),
        "large": (b" " * (64 * 1024 * 1024 + 1), "has more than 64 MiB"),
    }
    files = {str(tmp_path / name): said for name, (_, said) in contents.items()}
    for name, (data, _) in contents.items():
        (tmp_path / name).write_bytes(data)
    files |= {str(tmp_path): "Is a directory", "/no/such/file": "No such file", "/dev/zero": "64 MiB"}
    for path, said in files.items():
        for verb in (["reassign", "execute"], ["reassign", "verify"]):
            in_words(operator.run(*verb, path), 1, said, (verb, path))
        if not path.endswith("nobody"):
            for verb in (["reassign", "cancel", path], ["elect", f"--file={path}"]):
                in_words(operator.run(*verb), 1, said, verb)
    for verb in (
        ["reassign", "execute", ""],
        ["reassign", "verify", ""],
        ["elect", "--file="],
        ["history", "--state-log-dir="],
    ):
        in_words(operator.run(*verb), 2, "must name a file or a directory", verb)
    in_words(operator.run("history", "--state-log-dir=/no/such"), 1, "/no/such", "history")


#: Each verb once, as it would be fine.
FINE = [
    ["cluster"],
    ["controllers"],
    ["brokers"],
    ["partitions"],
    ["topics", "list"],
    ["topics", "describe", "bad"],
    ["topics", "create", "new"],
    ["topics", "alter", "bad", "--partitions=3", "--yes"],
    ["topics", "delete", "bad", "--yes"],
    ["reassign", "execute", "--topic=bad", "--partition=0", "--replicas=1", "--yes"],
    ["reassign", "cancel", "--all", "--yes"],
    ["reassign", "list"],
    ["reassign", "generate"],
    ["elect", "leader", "2", "--partition=bad-0"],
    ["maintenance", "show"],
    ["maintenance", "enter", "--reason=r", "--yes"],
    ["maintenance", "drain", "1", "--reason=r", "--yes"],
    ["maintenance", "cancel-shutdown", "1", "--yes"],
    ["config", "get", "--topic=bad"],
    ["config", "set", "--topic=bad", "x=y", "--yes"],
    ["features", "describe"],
    ["features", "upgrade", "--feature=f=1", "--yes"],
    ["plan", "broker-loss", "1"],
    ["stoppable", "1"],
    ["stoppable", "1", "--approve", "--reason=r"],
    ["explain", "partition", "bad", "0"],
    ["explain", "controller"],
    ["history"],
    ["watch", "--for=2"],
    ["produce", "bad", "x"],
    ["consume", "bad", "--from-beginning"],
]
#: What ZooKeeper can tell alone.
WITHOUT_A_CONTROLLER = {
    *("cluster", "controllers", "brokers", "partitions", "topics list", "topics describe"),
    *("reassign generate", "maintenance show", "plan", "explain", "produce", "consume"),
}


@pytest.mark.parametrize("verb", FINE, ids=" ".join)
def test_zookeeper_is_not_there(verb: list[str]) -> None:
    in_words(pctl("127.0.0.1:1", "--timeout=0.3", *verb), 1, "127.0.0.1:1", verb)


def test_an_audit_without_an_answer_is_no_difference() -> None:
    """1 would say that brokers hold otherwise than told."""
    in_words(pctl("127.0.0.1:1", "--timeout=0.3", "audit"), 3, "127.0.0.1:1", "audit")


@pytest.mark.parametrize("verb", FINE, ids=" ".join)
def test_the_chroot_is_not_there(operator: Operator, verb: list[str]) -> None:
    in_words(pctl(f"{operator.cluster.connect}/nowhere", *verb), 1, "/nowhere", verb)


@pytest.mark.parametrize(
    "connect", ["", "no port", "127.0.0.1:x", "127.0.0.1:99999", "a:1/b//c", "::::", "a..b:1"]
)
def test_addresses_that_are_none(connect: str) -> None:
    in_words(pctl(connect, "--timeout=0.3", "cluster"), 2, repr(connect), connect)


@pytest.mark.parametrize("how", ["frozen", "away"])
def test_a_controller_that_does_not_answer(operator: Operator, how: str) -> None:
    """Whatever needs it says so in one line; the rest is told from ZooKeeper."""
    gone = operator.controller_away if how == "away" else operator.frozen_controller
    with gone():
        in_words(operator.run("--timeout=5", "audit"), 3, "controller", "audit")
        for verb in FINE:
            alone = {verb[0], " ".join(verb[:2])} & WITHOUT_A_CONTROLLER
            result = operator.run("--timeout=5", *verb)
            assert result.exit_code in ((0, 3) if alone else (0, 1, 3)), f"{verb}: {result.output}"
            if result.exit_code == 1:
                in_words(result, 1, "", verb)
                # One that is frozen for long is not the active one any more, nor registered.
                gone_too = ("no controller is active", "no controller of ours is registered")
                said = (*gone_too, "did not answer") if how == "frozen" else ("no controller",)
                assert any(text in result.stderr for text in said), f"{verb}: {result.output}"
