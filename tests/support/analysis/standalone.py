"""A Spark cluster of a master and two workers, started as in the compose file, on addresses of this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from controller.embedded_zookeeper.ensemble import find_java
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.runtime.programs import BIN, Program, environment, program, run_to_end

SERVICES: Mapping[str, Any] = yaml.load(
    (ROOT / "deploy" / "docker-compose.yml").read_text(), yaml.CSafeLoader
)["services"]
MASTER, WORKERS, REPORT = "spark-master", ("spark-worker-1", "spark-worker-2"), "report"
WAIT_S = 120.0
#: What a Spark in this process leaves in its environment.
OF_OUR_SPARK = {"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_ENV_LOADED"}


@dataclass
class Standalone:
    """``archive``: the folder that ``make spark-archive`` writes. ``here``: by text in the compose file, what stands
    for it here."""

    folder: Path
    archive: Path
    here: Mapping[str, str]
    stack: ExitStack
    running: dict[str, Program] = field(default_factory=dict)

    def translated(self, text: str) -> str:
        return re.sub("|".join(map(re.escape, self.here)), lambda found: self.here[found[0]], text)

    def command(self, name: str) -> list[str]:
        first, *rest = map(self.translated, SERVICES[name]["command"])
        return [str(BIN / first), *rest]

    def variables(self, name: str) -> dict[str, str]:
        """Workers' Python has no packages at all."""
        given = {k: self.translated(v) for k, v in SERVICES[name]["environment"].items()}
        home = str(Path(os.path.realpath(find_java())).parents[1])
        pythons = {
            "PYSPARK_PYTHON": os.path.realpath(sys.executable),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        # JVMs that end soon are not to compile with care.
        java = {"JAVA_HOME": home, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        return {**given, **pythons, **java, "PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}

    def make_secret(self) -> None:
        """As the service that makes the certificates does: those are there already."""
        folder = Path(self.here["/etc/partition-controller"])
        folder.mkdir()
        (folder / "ca.pem").touch()
        script = self.translated(SERVICES["certificates"]["command"][-1].replace("$$", "$"))
        made = run_to_end(["sh", "-ec", script], self.folder)
        assert made.returncode == 0, made.stderr

    def start(self, name: str) -> None:
        """Returns when it is in the cluster."""
        sign = "New state: ALIVE" if name == MASTER else "Successfully registered with master"
        started = self.stack.enter_context(
            program(self.command(name), self.folder, self.variables(name), name)
        )
        started.until(lambda: sign in started.said(), WAIT_S)
        self.running[name] = started

    def submit(self, arguments: Sequence[str], settings: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Start the report as the service does, from the archive; ``arguments`` in place of its own, ``settings`` of
        Spark's beside them. Its standard output has all that it says."""
        command = self.command(REPORT)
        job = next(n for n, word in enumerate(command) if word.endswith("/report.py"))
        shipped = f"--py-files={self.archive / 'partition-controller.zip'}"
        return subprocess.Popen(
            [*command[:job], *settings, shipped, str(self.archive / "report.py"), *arguments],
            cwd=self.folder,
            env={k: v for k, v in environment(self.variables(REPORT)).items() if k not in OF_OUR_SPARK},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def executors(self, worker: str) -> list[int]:
        """Ids of the processes that a worker has started."""
        return children(self.running[worker].process.pid)

    def kill(self, worker: str, *, executors_only: bool = False) -> int:
        """SIGKILL to a worker's executors, and to itself, who would start others; how many executors there were."""
        executors = self.executors(worker)
        if not executors_only:
            self.running.pop(worker).process.kill()
        for pid in executors:
            os.kill(pid, signal.SIGKILL)
        return len(executors)


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """The master, both workers, and the archive for spark-submit."""
    archive = folder / "archive"
    made = run_to_end([sys.executable, str(ROOT / "deploy" / "spark_archive.py"), str(archive)], folder)
    assert made.returncode == 0, made.stderr
    here = {
        "7077": str(free_port()),
        "7078": "0",
        "8080": "0",
        "8081": "0",
        MASTER: "127.26.6.1",
        WORKERS[0]: "127.26.6.2",
        WORKERS[1]: "127.26.6.3",
        "driver.host=report": "driver.host=127.26.6.4",
        "/etc/partition-controller": str(folder / "etc"),
        "/var/lib/partition-controller": str(folder / "data"),
    }
    with ExitStack() as stack:
        cluster = Standalone(folder, archive, here, stack)
        cluster.make_secret()
        for name in (MASTER, *WORKERS):
            cluster.start(name)
        try:
            yield cluster
        finally:
            for worker in [name for name in WORKERS if name in cluster.running]:
                cluster.kill(worker)


def children(pid: int) -> list[int]:
    """Ids of the processes that have this parent."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # After the command's name, which may hold anything: state, parent.
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found.append(int(entry.parent.name))
    return found
