"""The original's suites of its leader election tools (``cli_cases.jsonl``), run as ``pctl elect`` on a running cluster.

Brokers 0, 1 and 2 of the rows are 1, 2 and 3 here. Where Kafka's tools end with 1 for bad usage, ours ends with 2
(reference, section 15.1); where they have an option for what ours says otherwise, the test says which.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.operator import Operator, pctl
from tests.support.ports import free_port
from tests.support.reference_rows import load

pytestmark = pytest.mark.slow

#: Members that are killed or frozen have to go.
SESSION_TIMEOUT_MS = 3000

ROWS = load("cli_cases.jsonl")
#: Rows that are not run, and why.
ELSEWHERE = {
    "K285": "--topic alone is no mistake here: it means all partitions of the topic, one is --partition TOPIC-N",
    "K287": "without a kind of election the preferred one is meant: test_pctl.py elects so",
}


def member(operator: Operator, broker: int) -> Any:
    """The process of a row's broker."""
    return operator.cluster.members[f"broker-{broker + 1}"]


def bring(operator: Operator, broker: int) -> None:
    member(operator, broker).start()
    operator.wait(lambda: bool(operator.zk.exists(f"/brokers/ids/{broker + 1}")))


def leader(operator: Operator, topic: str, partition: int = 0) -> int:
    """As rows number brokers; -1 stays -1."""
    found: int = operator.state(topic, partition)["leader"]
    return found if found == -1 else found - 1


def isr(operator: Operator, topic: str, partition: int = 0) -> list[int]:
    return [broker - 1 for broker in operator.state(topic, partition)["isr"]]


def create(operator: Operator, action: Any) -> None:
    lists = [":".join(str(broker + 1) for broker in ids) for ids in action["assignment"].values()]
    operator.ok("topics", "create", action["topic"], f"--replica-assignment={','.join(lists)}")


def test_an_unclean_election_of_a_file(operator: Operator, tmp_path: Path) -> None:
    """K280: both replicas leave, and the one that was out of the ISR returns first."""
    row = ROWS["K280"]
    first, _, stop_2, await_, stop_1, expect, _, asked = row["when"]["actions"]
    topic = first["topic"]
    create(operator, first)
    try:
        member(operator, stop_2["broker"]).stop()
        operator.wait(lambda: not set(await_["isr_excludes"]) & set(isr(operator, topic)))
        member(operator, stop_1["broker"]).stop()
        assert expect["leader"] is None
        operator.wait(lambda: leader(operator, topic) == -1)
        bring(operator, stop_2["broker"])
        listed = {"partitions": [{"topic": topic, "partition": 0}]}
        (tmp_path / "some.json").write_text(json.dumps(listed))
        done = operator.run("elect", asked["type"], f"--file={tmp_path / 'some.json'}", "--yes")
        assert (done.exit_code, leader(operator, topic)) == (row["then"]["exit"], row["then"]["leader"]), (
            done.output
        )
        # And once more by name: it is led, so there is nothing left to do.
        again = operator.ok("elect", "unclean", f"--partition={topic}-0", "--yes")
        assert "nothing to do" in again.stderr
    finally:
        bring(operator, stop_1["broker"])
    operator.wait(lambda: len(isr(operator, topic)) == 2)


def test_preferred_leaders_return_on_request(operator: Operator) -> None:
    """K281 for all partitions, K283 for some of which one needs nothing: the same broker is away and back."""
    all_, some = ROWS["K281"], ROWS["K283"]
    for row in (all_, some):
        create(operator, row["when"]["actions"][0])
    one, other = "preferred-topic", "non-preferred-topic"
    away = all_["when"]["actions"][1]["broker"]
    assert away == some["when"]["actions"][1]["broker"]
    try:
        member(operator, away).stop()
        operator.wait(lambda: {leader(operator, one), leader(operator, other)} == {2})
    finally:
        bring(operator, away)
    operator.wait(lambda: away in isr(operator, one) and away in isr(operator, other))
    named = [f"--partition={name}" for name in some["when"]["actions"][-1]["partitions"]]
    # What needs no election is not asked for: of two named, one is listed.
    tried = operator.json("elect", "preferred", *named, "--dry-run")
    shown = [row["partition"] for row in tried["partitions"]]
    assert shown == some["then"]["completed"]
    assert not set(shown) & set(some["then"]["not_needed"])
    assert "1 of 1 partitions" in operator.ok("elect", "preferred", *named).stderr
    assert (leader(operator, other, 0), leader(operator, other, 1)) == (1, 2)
    done = operator.run("elect", "preferred", "--all")
    assert (done.exit_code, leader(operator, one)) == (all_["then"]["exit"], all_["then"]["leader"]), (
        done.output
    )


def test_an_unknown_topic(operator: Operator) -> None:
    """K282: named before anything is asked of the controller; its own answer is in core/cases/test_admin_cases.py."""
    name = ROWS["K282"]["when"]["actions"][0]["partition"]
    refused = operator.run("elect", "preferred", f"--partition={name}")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"no topic or partition '{name}'" in refused.stderr


def test_a_partition_without_its_topic(operator: Operator) -> None:
    """K286: beside --all, a number alone names nothing."""
    assert ROWS["K286"]["when"]["options"][1:] == ["all-topic-partitions", "partition"]
    refused = operator.run("elect", "preferred", "--all", "--partition=0")
    assert (refused.exit_code, "no topic or partition '0'" in refused.stderr) == (1, True)


@pytest.mark.parametrize("kind", ["preferred", "unclean"])
def test_no_selection(operator: Operator, kind: str) -> None:
    """K288."""
    refused = operator.run("elect", kind)
    assert (refused.exit_code, "name --topic, --partition, --file or --all" in refused.stderr) == (2, True)


@pytest.mark.parametrize("row", ["K289", "K367"])
def test_nobody_at_the_address(row: str) -> None:
    assert "timeout" in ROWS[row]["then"].values()
    address = f"127.0.0.1:{free_port()}"
    failed = pctl(f"{address}/chroot", "--timeout=0.3", "elect", "preferred", "--all")
    assert failed.exit_code == 1
    assert (
        failed.stderr == f"pctl: no ZooKeeper at {address} answered within 0.3 s: the connection is refused\n"
    )


def test_a_controller_that_is_away(operator: Operator) -> None:
    """K365: the tool gives up in time, and nobody else leads than before."""
    ((topic, assignment),) = ROWS["K365"]["given"]["topics"].items()
    bounce = ROWS["K365"]["when"]["actions"][0]["broker"]
    create(operator, {"topic": topic, "assignment": assignment})
    try:
        member(operator, bounce).kill()
        operator.wait(lambda: leader(operator, topic) not in (-1, bounce))
    finally:
        bring(operator, bounce)
    operator.wait(lambda: bounce in isr(operator, topic))
    before = operator.state(topic, 0)
    with operator.frozen_controller():
        failed = operator.run("--timeout=0.5", "elect", "preferred", f"--topic={topic}")
        assert (failed.exit_code, "ElectLeaders was not sent" in failed.stderr) == (1, True)
        assert operator.state(topic, 0) == before


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "truncated"),
        ("{}", "partitions"),
        ('{"partitions":[]}', "partitions"),
        ('{"partitions":[{"topic":"t"}]}', "partition"),
        ('{"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":0}]}', "twice"),
        ('{"partitions":[{"topic":"nowhere","partition":7}]}', "no topic or partition 'nowhere-7'"),
    ],
)
def test_a_file_that_names_nothing(operator: Operator, tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "asked.json"
    path.write_text(content)
    refused = operator.run("elect", "preferred", f"--file={path}")
    assert refused.exit_code == 1
    assert says in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
