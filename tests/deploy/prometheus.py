"""A real Prometheus that asks controllers of a test, and what it answers."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.runtime.programs import program

DEPLOY = ROOT / "deploy"
WAIT_S = 150
#: A machine that is busy with other tests is the fault of these.
MACHINE = {"EventLoopLate", "LeaseRunningOut"}


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

    def fired(self) -> set[str]:
        """Alerts that fire now, or fired before."""
        query = 'count by (alertname) (max_over_time(ALERTS{alertstate="firing"}[1h]))'
        return {series["metric"]["alertname"] for series in self.ask(query)}


def until(reached: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline, what()
        time.sleep(0.5)


def http_of(log: Path) -> str | None:
    """Where a controller says in its log that it serves HTTP, the last time that it was started."""
    found = re.findall(r'"http": ?"([^"]+)"', log.read_text()) if log.exists() else []
    return found[-1] if found else None


@contextmanager
def scraping(
    prometheus_bin: Path, directory: Path, targets: Sequence[str], rules: Path = DEPLOY / "alerts.yml"
) -> Iterator[Prometheus]:
    """As deployed, but for the targets, and every second."""
    configuration = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(rules)]
    (job,) = configuration["scrape_configs"]
    del job["scheme"], job["tls_config"]
    job["static_configs"] = [{"targets": list(targets)}]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    listen = f"127.0.0.1:{free_port()}"
    command = [str(prometheus_bin / "prometheus"), f"--config.file={directory / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={directory / 'tsdb'}", f"--web.listen-address={listen}"]
    with program(command, directory, name="prometheus") as running:
        running.until(lambda: "Server is ready" in running.said(), WAIT_S)
        yield Prometheus(f"http://{listen}")
