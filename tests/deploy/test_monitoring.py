"""A real Prometheus on a real cluster: every query of the dashboards has an answer, and faults fire their alerts."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from kazoo.client import KazooClient

from tests.deploy.test_metrics import NAME, RUNBOOK
from tests.integration.conftest import start_cluster
from tests.support.cli.operator import pctl
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.runtime.programs import program

pytestmark = pytest.mark.slow
__all__ = ["start_cluster"]

DEPLOY = ROOT / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
#: Nothing is refused, lost, or under way on a cluster that is well: these have no series then.
EMPTY_WHEN_WELL = re.compile(
    r"broker_losses|isr_changes|states_edited|resignations|rejects|requests_total|refused_partitions|audit_differences|certificate"
)
WAIT_S = 150
#: A machine that is busy with other tests is the fault of these.
MACHINE = {"EventLoopLate", "LeaseRunningOut"}


def queries(dashboard: Path) -> list[tuple[str, str]]:
    panels = json.loads(dashboard.read_text())["panels"]
    return [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]


@dataclass
class Prometheus:
    base: str

    def get(self, path: str, **parameters: str) -> Any:
        url = f"{self.base}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            pytest.fail(f"{parameters}: {error.read().decode()}")

    def ask(self, query: str) -> list[Any]:
        found: list[Any] = self.get("query", query=query)["result"]
        return found

    def alerts(self, *states: str) -> set[str]:
        return {a["labels"]["alertname"] for a in self.get("alerts")["alerts"] if a["state"] in states}


def until(reached: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline, what()
        time.sleep(0.5)


@dataclass
class Watched:
    """A cluster of two controllers and three brokers, and Prometheus with the rules as they are deployed."""

    cluster: Any
    prometheus: Prometheus

    def ok(self, *arguments: str) -> None:
        result = pctl(self.cluster.connect, *arguments)
        assert result.exit_code == 0, result.output


def http_of(log: Path) -> str | None:
    found = re.search(r'"http": ?"([^"]+)"', log.read_text()) if log.exists() else None
    return found[1] if found else None


@pytest.fixture
def watched(start_cluster: Any, prometheus_bin: Path, tmp_path: Path) -> Iterator[Watched]:
    cluster = start_cluster()
    for id_ in (1, 2):
        log = cluster.members[f"controller-{id_}"].log_path
        until(lambda log=log: http_of(log) is not None, log.read_text)  # type: ignore[misc]
    addresses = [http_of(cluster.members[f"controller-{id_}"].log_path) for id_ in (1, 2)]
    configuration = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(DEPLOY / "alerts.yml")]
    (job,) = configuration["scrape_configs"]
    del job["scheme"], job["tls_config"]
    job["static_configs"] = [{"targets": addresses}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    listen = f"127.0.0.1:{free_port()}"
    command = [str(prometheus_bin / "prometheus"), f"--config.file={tmp_path / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={tmp_path / 'tsdb'}", f"--web.listen-address={listen}"]
    with program(command, tmp_path, name="prometheus") as running:
        running.until(lambda: "Server is ready" in running.said(), WAIT_S)
        found = Watched(cluster, Prometheus(f"http://{listen}"))
        leads = "sum(kafka_controller_kafkacontroller_activecontrollercount) == 1 and count(up == 1) == 2"
        brokers = "max(kafka_controller_kafkacontroller_activebrokercount) == 3"
        for query in (leads, brokers):
            until(lambda query=query: bool(found.prometheus.ask(query)), running.said)  # type: ignore[misc]
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


def test_faults_fire_their_alerts(watched: Watched, tmp_path: Path) -> None:
    """All at once on one cluster: a minute's patience is the longest of these rules."""
    prometheus, members = watched.prometheus, watched.cluster.members
    assert prometheus.alerts("pending", "firing") <= MACHINE
    (leading,) = prometheus.ask("kafka_controller_kafkacontroller_activecontrollercount == 1")
    active = next(
        n for n in (1, 2) if http_of(members[f"controller-{n}"].log_path) == leading["metric"]["instance"]
    )
    members[f"controller-{3 - active}"].kill()
    zk = KazooClient(watched.cluster.connect)
    zk.start(20)
    try:
        zk.create("/brokers/topics/bad", b"[1]")
    finally:
        zk.stop()
        zk.close()
    members["broker-3"].kill()
    expected = {"ControllerDown", "MalformedZnodes", "OfflinePartitions", "UnderMinIsrPartitions"}
    until(lambda: expected <= prometheus.alerts("firing"), lambda: expected - prometheus.alerts("firing"))
    assert prometheus.alerts("firing") - expected <= MACHINE
    for alert in prometheus.get("alerts")["alerts"]:
        assert alert["annotations"]["runbook_url"].endswith("#" + alert["labels"]["alertname"].lower())
    members[f"controller-{active}"].kill()
    until(lambda: "NoActiveController" in prometheus.alerts("firing"), lambda: prometheus.get("alerts"))
