"""A real Prometheus on a real cluster: every query of the dashboards has an answer, and no alert fires."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.prometheus import DEPLOY, MACHINE, Prometheus, http_of, scraping, until
from tests.deploy.test_metrics import NAME, RUNBOOK
from tests.integration.conftest import start_cluster
from tests.support.cli.operator import pctl

pytestmark = pytest.mark.slow
__all__ = ["start_cluster"]

DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
#: Nothing is refused, lost, or under way on a cluster that is well: these have no series then.
EMPTY_WHEN_WELL = re.compile(
    r"broker_losses|isr_changes|states_edited|resignations|rejects|requests_total|refused_partitions|audit_differences|certificate"
)


def queries(dashboard: Path) -> list[tuple[str, str]]:
    panels = json.loads(dashboard.read_text())["panels"]
    return [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]


@dataclass
class Watched:
    """A cluster of two controllers and three brokers, and Prometheus with the rules as they are deployed."""

    cluster: Any
    prometheus: Prometheus

    def ok(self, *arguments: str) -> None:
        result = pctl(self.cluster.connect, *arguments)
        assert result.exit_code == 0, result.output


@pytest.fixture
def watched(start_cluster: Any, prometheus_bin: Path, tmp_path: Path) -> Iterator[Watched]:
    cluster = start_cluster()
    for id_ in (1, 2):
        log = cluster.members[f"controller-{id_}"].log_path
        until(lambda log=log: http_of(log) is not None, log.read_text)  # type: ignore[misc]
    addresses = [str(http_of(cluster.members[f"controller-{id_}"].log_path)) for id_ in (1, 2)]
    with scraping(prometheus_bin, tmp_path, addresses) as prometheus:
        found = Watched(cluster, prometheus)
        leads = "sum(kafka_controller_kafkacontroller_activecontrollercount) == 1 and count(up == 1) == 2"
        brokers = "max(kafka_controller_kafkacontroller_activebrokercount) == 3"
        for query in (leads, brokers):
            until(lambda query=query: bool(prometheus.ask(query)), lambda query=query: query)  # type: ignore[misc]
        found.ok(
            "topics",
            "create",
            "pair",
            "--replica-assignment",
            "1:2,2:1,1:3",
            "--config",
            "min.insync.replicas=2",
        )
        found.ok("topics", "create", "single", "--replica-assignment", "3")
        yield found


def test_every_query_of_the_dashboards_has_an_answer(watched: Watched) -> None:
    known = set(re.findall(r"^\| `((?:kafka|partition)_\w+)", RUNBOOK.read_text(), re.MULTILINE))
    asked = [(board.stem, *query) for board in DASHBOARDS for query in queries(board)]
    assert len(asked) > 50
    for _, _, query in asked:
        used = {re.sub("_(bucket|count|sum)$", "", name) for name in NAME.findall(query)}
        assert used <= known, query
    # A rate wants two scrapes, and something that happened between them.
    watched.ok("topics", "create", "later", "--partitions", "3", "--replication-factor", "2")

    def empty() -> list[tuple[str, str, str]]:
        return [
            one for one in asked if not watched.prometheus.ask(one[2]) and not EMPTY_WHEN_WELL.search(one[2])
        ]

    until(lambda: not empty(), empty)
    assert watched.prometheus.alerts("firing") <= MACHINE
