"""The same scenario under Kafka's own controller and under ours: znodes byte for byte, and what brokers warn of."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.cluster import KafkaCluster
from tests.kafka.conftest import running
from tests.kafka.side_by_side import run_deviations, scenario
from tests.kafka.side_by_side.run_deviations import CHANCE, ZNODES, unexplained

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]

_WARNING = re.compile(r"\] (?:WARN|ERROR|FATAL) (.*) \(([\w.$]+)\)$")
#: What differs between two lines of one kind: addresses, ids, partitions, epochs, offsets, a request's content.
_VARIABLE = re.compile(
    r"(?<=fetch request) .*|\[[^\]]*\]|\([^)]*\)|\{[^}]*\}|[\w-]+-\d+\b|/?[\w.]+:\d+|\b[\w-]{22}\b|\d+"
)


def first_is_controller(cluster: KafkaCluster) -> None:
    """Let brokers elect again until that broker wins which no step ends."""

    def won() -> bool:
        if cluster.controller_id() not in (-1, scenario.FIRST):
            cluster.zk.delete("/controller")
            time.sleep(0.5)
        return cluster.controller_id() == scenario.FIRST

    cluster.until("the first broker as controller", won)


def kinds_of_warnings(cluster: KafkaCluster) -> dict[str, str]:
    """What brokers logged as a warning or worse, without what varies; one line of each kind."""
    return {
        f"{found[2]}: {_VARIABLE.sub('#', found[1])}": line
        for broker in cluster.brokers.values()
        for path in (broker.server_log, broker.state_change_log)
        for line in path.read_text(errors="replace").splitlines()
        if (found := _WARNING.search(line))
    }


def run(
    directory: Path, zookeeper: str, *, ours: bool
) -> Iterator[tuple[list[scenario.Left], dict[str, str]]]:
    quiet = {"auto.leader.rebalance.enable": "false"}
    with running(
        directory,
        f"{zookeeper}/{directory.name}",
        properties=quiet,
        controller_settings={"auto_leader_rebalance_enable": "false"},
    ) as cluster:
        first_is_controller(cluster)
        if ours:
            cluster.add_controllers(1)
        left = list(scenario.run(cluster))
        yield left, kinds_of_warnings(cluster)


def test_the_same_scenario_leaves_the_same(tmp_path: Path, zookeeper: str) -> None:
    ((kafka, known),) = run(tmp_path / "kafkas", zookeeper, ours=False)
    ((ours, warned),) = run(tmp_path / "ours", zookeeper, ours=True)
    used: set[str] = set()
    different = [
        f"after {theirs.step!r}: {line}"
        for theirs, own in zip(kafka, ours, strict=True)
        for line in unexplained(theirs.znodes, own.znodes, used)
    ]
    assert not different, "\n".join(different)
    assert used >= {row.name for row in ZNODES if row.certain}
    new = [line for kind, line in warned.items() if kind not in known]
    new = [line for line in new if not any(re.search(pattern, line) for pattern in CHANCE)]
    assert not new, "\n".join(new)


def test_a_difference_that_no_row_names_is_seen() -> None:
    state = '{"controller_epoch":E1,"leader":1,"version":1,"leader_epoch":1,"isr":[1,2]}'
    path = "/brokers/topics/t/partitions/0/state"
    used: set[str] = set()
    assert not unexplained({path: state}, {path: state}, used)
    for other in (state.replace('h":1', 'h":2'), state.replace("1,2", "2,1"), '{"version":1}'):
        assert unexplained({path: state}, {path: other}, used)
    assert unexplained({path: state}, {}, used)
    topic = '{"partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{},"version":3}'
    assert unexplained({"/brokers/topics/t": topic}, {"/brokers/topics/t": topic.replace("1,2", "2,1")}, used)
    assert not used
    kept = topic.replace("3}", '3,"stray_replicas":{"0":[3]}}')
    assert not unexplained({"/brokers/topics/t": topic}, {"/brokers/topics/t": kept}, used)
    assert used == {run_deviations.ZNODES[2].name}
