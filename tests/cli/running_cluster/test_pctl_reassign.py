"""pctl reassign on a running cluster."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.cli.operator import Operator
from tests.support.cli.terminal import at_a_terminal
from tests.support.runtime.programs import BIN

pytestmark = pytest.mark.slow


def replicas(operator: Operator, topic: str, partition: int = 0) -> list[int]:
    found: list[int] = json.loads(operator.zk.get(f"/brokers/topics/{topic}")[0])["partitions"][
        str(partition)
    ]
    return found


def written(path: Path, *entries: tuple[str, int, list[int]]) -> str:
    partitions = [{"topic": t, "partition": p, "replicas": r, "log_dirs": ["any"]} for t, p, r in entries]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def test_a_file_is_carried_out_waited_for_and_verified(operator: Operator, tmp_path: Path) -> None:
    operator.ok("topics", "create", "moved", "--replica-assignment=1:2,2:3")
    plan = written(tmp_path / "plan.json", ("moved", 0, [3, 2]), ("moved", 1, [1]))
    (before, _) = json.loads(operator.run("-o", "json", "reassign", "verify", plan).stdout)
    assert (before["status"], before["replicas"], before["wanted"]) == ("not done", [1, 2], [3, 2])
    assert operator.run("reassign", "verify", plan).exit_code == 1
    done = operator.ok("--timeout=60", "-o", "json", "reassign", "execute", plan, "--yes")
    (first, second) = json.loads(done.stdout)
    assert (first["replicas"], first["new_replicas"]) == ([1, 2], [3, 2])
    assert (first["adding"], first["removing"]) == ([3], [1])
    assert (second["adding"], second["removing"]) == ([1], [2, 3])
    assert "2 of 2 partitions are reassigned" in done.stderr
    assert (replicas(operator, "moved"), replicas(operator, "moved", 1)) == ([3, 2], [1])
    assert [r["status"] for r in operator.json("reassign", "verify", plan)] == ["complete"] * 2
    assert operator.json("reassign", "list", "--topic=moved") == []


def test_dry_run_and_no_answer_change_nothing(operator: Operator) -> None:
    operator.ok("topics", "create", "still", "--replica-assignment=1")
    asked = ("reassign", "execute", "--topic=still", "--partition=0", "--replicas=2")
    (row,) = operator.json(*asked, "--dry-run")["partitions"]
    assert (row["adding"], row["removing"]) == ([2], [1])
    refused = operator.run(*asked)
    assert (refused.exit_code, "use --yes" in refused.stderr) == (2, True)
    code, said = at_a_terminal(operator.cluster.connect, "n", *asked)
    assert (code, "Reassign 1 partition?" in said) == (3, True), said
    assert replicas(operator, "still") == [1]
    assert operator.json("reassign", "list", "--topic=still") == []


def test_what_holds_a_move_up_is_listed_and_the_move_cancelled(operator: Operator) -> None:
    """Broker 3 is stopped while it is to take a replica over."""
    operator.ok("topics", "create", "slow", "--replica-assignment=1:2")
    asked = ("reassign", "execute", "--topic=slow", "--partition=0", "--replicas=3,2", "--yes")
    cancel = ("reassign", "cancel", "--topic=slow", "--partition=0")
    assert "nothing to do" in operator.ok(*cancel, "--yes").stderr
    operator.cluster.members["broker-3"].signal(19)
    try:
        assert "see pctl reassign list" in operator.ok(*asked, "--no-wait").stderr
        (row,) = operator.json("reassign", "list")
        assert (row["topic"], row["replicas"], row["adding"]) == ("slow", [3, 2, 1], [3])
        assert "target 3 is not in the ISR [1, 2]" in row["why"]
        failed = operator.run("--timeout=1", *asked)
        assert failed.exit_code == 1
        assert "1 of 1 partitions are still being reassigned (slow-0: target 3 is not" in failed.stderr
        (dry,) = operator.json(*cancel, "--dry-run")["partitions"]
        assert (dry["keeps"], dry["drops"]) == ([1, 2], [3])
        assert operator.run(*cancel).exit_code == 2
        assert replicas(operator, "slow") == [3, 2, 1]
        command = [str(BIN / "pctl"), f"--zookeeper={operator.cluster.connect}", "--timeout=60", *asked]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as waiting:
            assert waiting.stderr is not None
            assert "0 of 1 partitions are reassigned" in waiting.stderr.readline()
            operator.ok(*cancel, "--yes", "--no-wait")
            assert replicas(operator, "slow") == [1, 2]
            said = waiting.stderr.read()
        assert (waiting.returncode, "cancelled or replaced while waiting: slow-0 has [1, 2]" in said) == (
            1,
            True,
        )
    finally:
        operator.cluster.members["broker-3"].signal(18)
    operator.wait(lambda: operator.json("reassign", "list") == [])
    operator.wait(lambda: [b["state"] != ["gone"] for b in operator.json("brokers")] == [True] * 3)


def test_a_generated_plan_can_be_carried_out(operator: Operator, tmp_path: Path) -> None:
    operator.ok("topics", "create", "uneven", "--replica-assignment=1:2,1:2,1:2")
    before = [replicas(operator, "uneven", n) for n in range(3)]
    made = operator.ok("reassign", "generate", "--topic=uneven")
    assert [replicas(operator, "uneven", n) for n in range(3)] == before
    assert "plan to undo it" in made.stderr
    path = tmp_path / "generated.json"
    path.write_text(made.stdout)
    operator.ok("--timeout=60", "reassign", "execute", str(path), "--yes")
    after = [replicas(operator, "uneven", n) for n in range(3)]
    assert sorted(ids[0] for ids in after) == [1, 2, 3]
    assert [sum(b in ids for ids in after) for b in (1, 2, 3)] == [2, 2, 2]
    assert "nothing to do" in operator.ok("reassign", "generate", "--topic=uneven").stderr
    vacated = operator.ok("reassign", "generate", "--topic=uneven", "--brokers=1,2").stdout
    assert all(3 not in entry["replicas"] for entry in json.loads(vacated)["partitions"])


BAD = [
    (("execute",), 2, "name a FILE, or --topic and --partition"),
    (("execute", "FILE", "--topic=bad", "--partition=0"), 2, "name a FILE"),
    (("execute", "--topic=bad", "--partition=0"), 2, "--replicas: must be given with"),
    (("execute", "--topic=bad", "--partition=x"), 2, "--partition"),
    (("execute", "--topic=bad", "--partition=0", "--replicas=a"), 1, "--replicas 'a'"),
    (("execute", "--topic=nope", "--partition=0", "--replicas=1"), 1, "no partition nope-0"),
    (("execute", "--topic=bad", "--partition=0", "--replicas=1,98"), 3, "INVALID_REPLICA_ASSIGNMENT: [98]"),
    (("cancel",), 2, "name a FILE"),
    (("cancel", "--all", "--topic=bad"), 2, "--all: leave out FILE"),
    (("generate", "--topic=nope"), 1, "no topic 'nope'"),
    (("generate", "--topic=bad", "--replication-factor=4"), 1, "from 1 to the number of brokers, 3"),
]
FILES = [
    ('{"version":2,"partitions":[{"topic":"bad","partition":0,"replicas":[1]}]}', "version = 2: must be 1"),
    ('{"version":1}', "`partitions`"),
    ('{"version":1,"partitions":[]}', "at least one partition"),
    ('{"version":1,"partitions":[{"topic":"bad","partition":"0","replicas":[1]}]}', "$.partitions[0].partition"),
    ('{"version":1,"partitions":[{"topic":"bad","partition":0,"replicas":["1"]}]}', ".replicas[0]"),
    ('{"version":1,"partitions":[{"topic":"bad","partition":0}]}', "partitions[0] (bad-0): replicas: missing"),
    ('{"version":1,"partitions":[{"topic":"bad","partition":0,"replicas":[]}]}', "must name at least one"),
    ('{"version":1,"partitions":[{"topic":"bad","partition":0,"replicas":[1]},'
     '{"topic":"bad","partition":0,"replicas":[2]}]}', "bad-0 is named twice"),
]  # fmt: skip


@pytest.fixture(scope="module")
def bad(operator: Operator) -> Operator:
    operator.ok("topics", "create", "bad", "--replica-assignment=1:2")
    return operator


@pytest.mark.parametrize(("arguments", "code", "says"), BAD, ids=[" ".join(a) for a, _, _ in BAD])
def test_bad_options(bad: Operator, arguments: tuple[str, ...], code: int, says: str) -> None:
    yes = ("--yes",) if arguments[0] in ("execute", "cancel") else ()
    result = bad.run("reassign", *arguments, *yes)
    assert (result.exit_code, says in result.stderr) == (code, True), result.output
    assert replicas(bad, "bad") == [1, 2]


@pytest.mark.parametrize(("text", "says"), FILES, ids=[says for _, says in FILES])
def test_bad_files(bad: Operator, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    result = bad.run("reassign", "execute", str(path), "--yes")
    assert (result.exit_code, says in result.stderr) == (1, True), result.output
    assert result.stderr.startswith(f"pctl: {path}: ")
    assert replicas(bad, "bad") == [1, 2]
