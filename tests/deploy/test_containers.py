"""The images and the compose file on a container engine, by deploy/up.sh; only ``make containers`` runs these.

Each profile is a project of its own, with ports of its own: a cluster of the user's is left alone.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controller.embedded_zookeeper.ensemble import free_ports
from tests.support.paths import ROOT
from tests.support.runtime.programs import run_to_end

pytestmark = [pytest.mark.slow, pytest.mark.containers_long, pytest.mark.timeout(1800)]

UP = ROOT / "deploy" / "up.sh"
IMAGE = "partition-controller:tested"
KAFKA_IMAGES = ("partition-controller-kafka:local", "apache/kafka:3.9.1")
PROMETHEUS_IMAGE = "partition-controller-prometheus:local"
OWN_FILES = "/etc/partition-controller"
#: A health check's tries, the time between them, and a machine that is busy with other work.
WAIT_S = 180.0
#: Together, where deploy/build-base.sh made the base.
IMAGES_MAX_BYTES = 850_000_000


def docker(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=300)
    assert not check or done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def have(image: str) -> bool:
    return bool(docker("image", "ls", "-q", image))


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    if shutil.which("docker") is None:
        pytest.skip("no container engine here: install docker.io and docker-compose, and start it")
    answer = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=60)
    if answer.returncode:
        pytest.skip(f"no container engine answers (docker info): start it. {answer.stderr.strip()}")


@dataclass
class Composed:
    """The containers of one project. ``profiles``: as COMPOSE_PROFILES."""

    project: str
    profiles: str
    folder: Path
    ports: tuple[int, ...]

    def up(self, *arguments: str) -> str:
        """What deploy/up.sh says."""
        names = ("HTTP_1_PORT", "HTTP_2_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")
        given = dict(zip(names, map(str, self.ports), strict=True))
        given |= {"COMPOSE_PROJECT_NAME": self.project, "COMPOSE_PROFILES": self.profiles, "IMAGE": IMAGE}
        done = run_to_end([str(UP), *arguments], self.folder, given, timeout_s=1500)
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        print(done.stdout)
        return done.stdout

    def _with(self, *labels: str) -> list[str]:
        filters = [
            f"--filter=label=com.docker.compose.{label}" for label in (f"project={self.project}", *labels)
        ]
        return docker("ps", "--all", "--quiet", *filters).split()

    def id(self, service: str) -> str:
        (found,) = self._with(f"service={service}")
        return found

    def inspect(self, service: str) -> Any:
        return json.loads(docker("inspect", self.id(service)))[0]

    def services(self) -> dict[str, Any]:
        """What runs, by service."""
        every = json.loads(docker("inspect", *self._with()))
        return {
            one["Config"]["Labels"]["com.docker.compose.service"]: one
            for one in every
            if one["State"]["Running"]
        }

    def health(self, service: str) -> str:
        return str(self.inspect(service)["State"]["Health"]["Status"])

    def until_health(self, wanted: str, *services: str) -> None:
        for service in services:
            until(f"{service} is {wanted}", lambda name=service: self.health(name) == wanted)  # type: ignore[misc]

    def inside(self, service: str, *command: str, check: bool = True) -> str:
        return docker("exec", self.id(service), *command, check=check)

    def signal(self, service: str, name: str) -> None:
        """To its first process, from outside: docker kill would count as a wish that it stays stopped."""
        pid = self.inspect(service)["State"]["Pid"]
        shell = ["sh", "-c", f"kill -{name} {pid}"]
        docker("run", "--rm", "--network=none", "--pid=host", "--user=0:0", IMAGE, *shell)

    def cluster(self, service: str = "controller-1") -> dict[str, Any]:
        """As ``pctl cluster`` sees it; empty when it does not."""
        said = self.inside(service, "pctl", "-o", "json", "cluster", check=False)
        return dict(json.loads(said)) if said.strip().startswith("{") else {}

    def until_led(self, brokers: int, service: str = "controller-1") -> dict[str, Any]:
        """What ``pctl cluster`` says once a controller answers, so many brokers live, and all partitions are led."""
        wanted = {"controller_answers": "yes", "brokers": brokers, "unavailable_partitions": 0}
        seen: dict[str, Any] = {}

        def reached() -> bool:
            seen.clear()
            seen.update(self.cluster(service))
            return wanted.items() <= seen.items()

        until(f"{service}: {wanted}", reached)
        return seen


def until(what: str, reached: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not reached():
        assert time.monotonic() < began + WAIT_S, f"{what}: not within {WAIT_S:g} s"
        time.sleep(0.2)
    print(f"{what} after {time.monotonic() - began:.1f} s")


@contextmanager
def composed(profiles: str, folder: Path) -> Iterator[Composed]:
    """Nothing of it is left at the end."""
    name = f"partition-controller-test-{profiles.replace(',', '-')}"
    project = Composed(name, profiles, folder, tuple(free_ports(4)))
    try:
        yield project
    finally:
        project.up("--down", "--volumes")
    label = f"--filter=label=com.docker.compose.project={name}"
    for kind in (["ps", "--all"], ["volume", "ls"], ["network", "ls"]):
        assert docker(*kind, "--quiet", label) == ""


@pytest.fixture(scope="module")
def secured(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """After its drill."""
    with composed("secured", tmp_path_factory.mktemp("secured")) as project:
        project.up("--build")
        said = project.up("--drill")
        assert "== end of the drill" in said
        yield project


def test_every_container_is_well_and_who_starts_it_sees_it(secured: Composed) -> None:
    services = secured.services()
    assert {one["State"]["Health"]["Status"] for one in services.values() if "Health" in one["State"]} == {
        "healthy"
    }
    assert len(services) == 3 + 2 + 3 + 1
    secured.until_led(3)


def test_nobody_is_root_and_nothing_can_be_written(secured: Composed) -> None:
    for name, one in secured.services().items():
        host = one["HostConfig"]
        assert host["ReadonlyRootfs"], name
        assert (host["Privileged"], host["CapDrop"]) == (False, ["ALL"])
        for published in (one["NetworkSettings"]["Ports"] or {}).values():
            assert {where["HostIp"] for where in published or ()} <= {"127.0.0.1"}
        owners = {line.split()[0] for line in docker("top", one["Id"], "-eo", "uid,pid").splitlines()[1:]}
        assert owners <= {"10001", "65534"}, name
        if name == "prometheus":
            continue
        status = dict(
            re.findall(r"^(\w+):\t(.*)$", docker("exec", one["Id"], "cat", "/proc/1/status"), re.MULTILINE)
        )
        assert (int(status["CapBnd"], 16), int(status["CapEff"], 16)) == (0, 0), name
        assert status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == "2"
        for path in ("/x", "/opt/partition-controller/x", f"{OWN_FILES}/x"):
            refused = subprocess.run(
                ["docker", "exec", one["Id"], "touch", path], capture_output=True, text=True
            )
            assert "Read-only file system" in refused.stderr, (name, path)


def test_the_keys_are_read_by_those_who_need_them(secured: Composed) -> None:
    said = secured.inside("broker-1", "sh", "-c", f"stat -c '%a %u:%g %n' {OWN_FILES} {OWN_FILES}/*")
    modes = {line.split()[2]: line.split()[:2] for line in said.splitlines()}
    assert modes.pop(OWN_FILES) == ["750", "10001:10001"]
    shared = {
        f"{OWN_FILES}/{name}" for name in ("ca.pem", "prometheus.pem", "prometheus.key", "cluster-both.pem")
    }
    assert {name for name, (mode, _) in modes.items() if mode == "640"} == shared
    assert {mode for name, (mode, _) in modes.items() if name not in shared} == {"600"}
    assert {owner for _, owner in modes.values()} == {"10001:10001"}


@pytest.mark.parametrize("service", ["zookeeper-3", "controller-1", "broker-2"])
def test_a_daemon_that_hangs_is_not_healthy(secured: Composed, service: str) -> None:
    secured.signal(service, "STOP")
    try:
        secured.until_health("unhealthy", service)
    finally:
        secured.signal(service, "CONT")
    secured.until_health("healthy", service)


def test_a_killed_controller_is_replaced_and_comes_back(secured: Composed) -> None:
    until("a controller leads", lambda: bool(secured.cluster().get("controller")))
    before = secured.cluster()
    active = before["controller"]
    killed, other = f"controller-{active}", f"controller-{3 - int(active)}"
    restarts = secured.inspect(killed)["RestartCount"]
    secured.signal(killed, "KILL")
    # Either of them: the killed one is restarted before its session has ended.
    epoch = before["controller_epoch"]
    until("one leads again", lambda: secured.cluster(other).get("controller_epoch", 0) > epoch)
    until(f"{killed} was restarted", lambda: secured.inspect(killed)["RestartCount"] > restarts)
    secured.until_health("healthy", killed, other)
    secured.until_led(3)


def test_zookeeper_stops_and_starts(secured: Composed) -> None:
    """One server: nobody notices. Two: nobody may lead, until one is back."""
    secured.until_led(3)
    epoch = secured.cluster()["controller_epoch"]
    docker("stop", secured.id("zookeeper-1"))
    secured.until_led(3)
    docker("stop", secured.id("zookeeper-2"))
    secured.until_health("unhealthy", "zookeeper-3", "controller-1", "controller-2")
    docker("start", secured.id("zookeeper-1"), secured.id("zookeeper-2"))
    everyone = [name for name in secured.services() if name != "prometheus"]
    secured.until_health("healthy", *everyone)
    assert secured.until_led(3)["controller_epoch"] >= epoch


def test_spark_makes_the_report(secured: Composed) -> None:
    page = (ROOT / "build" / "report.html").resolve()
    page.unlink(missing_ok=True)
    assert f"the page is {page}" in secured.up("--report")
    assert "<html" in page.read_text()[:2000]
    for service in ("spark-master", "spark-worker-2"):
        secured.signal(service, "STOP")
        secured.until_health("unhealthy", service)
        secured.signal(service, "CONT")
        secured.until_health("healthy", service)


def test_the_plain_profile_leads_and_notices_a_frozen_broker(engine: None, tmp_path: Path) -> None:
    with composed("plain", tmp_path) as plain:
        said = plain.up() if have(IMAGE) else plain.up("--build")
        console = f"http://127.0.0.1:{plain.ports[0]}/ui"
        assert console in said
        with urllib.request.urlopen(console, timeout=30) as page:
            assert b"<html" in page.read()
        plain.until_led(3, "plain-controller-1")
        plain.signal("plain-broker-1", "STOP")
        plain.until_health("unhealthy", "plain-broker-1")


def test_the_kafka_profile_leads_and_notices_a_frozen_broker(engine: None, tmp_path: Path) -> None:
    if not any(map(have, KAFKA_IMAGES)):
        pytest.skip("no image of Kafka here: deploy/build-base.sh --kafka makes one")
    with composed("secured,kafka", tmp_path) as led:
        led.up() if have(IMAGE) else led.up("--build")
        led.until_led(3, "kafka-controller-1")
        led.signal("kafka-2", "STOP")
        led.until_health("unhealthy", "kafka-2")
        led.signal("kafka-2", "CONT")
        led.until_health("healthy", "kafka-2")


def test_images_are_a_third_of_what_they_were(secured: Composed) -> None:
    if not have(PROMETHEUS_IMAGE):
        pytest.skip("images from a registry: their sizes are not ours")
    sizes = {
        name: int(docker("image", "inspect", "-f", "{{.Size}}", name)) for name in (IMAGE, PROMETHEUS_IMAGE)
    }
    print(sizes)
    assert sum(sizes.values()) < IMAGES_MAX_BYTES
    assert docker("image", "ls", "-q", "--filter=label=partition-controller.stage=build") == ""
