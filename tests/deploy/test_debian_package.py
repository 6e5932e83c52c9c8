"""The Debian package in a Debian of its own, made by debootstrap: installed, upgraded, removed, purged.

Wants root and Debian's packages; ``make containers`` runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.containers_long, pytest.mark.timeout(900)]

FORMER, PRESENT = "0.0.1", "0.1.0"
NAME = "partition-controller"
CONFIGURATION = "etc/partition-controller/controller.toml"


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}"
    return done.stdout


@dataclass
class Debian:
    """``root``: its files. ``packages``: ours by version."""

    root: Path
    packages: dict[str, Path]

    def run(self, *command: str, user: str = "root") -> str:
        group = "root" if user == "root" else user
        return run("chroot", f"--userspec={user}:{group}", self.root, *command)

    def install(self, version: str) -> None:
        """By dpkg: what the package depends on is there."""
        shutil.copy(self.packages[version], self.root / "package.deb")
        self.run("dpkg", "--install", "/package.deb")
        assert self.version() == f"install ok installed {version}"

    def version(self) -> str:
        return self.run("dpkg-query", "--showformat=${Status} ${Version}", "--show", NAME)

    def settings_are_read(self, controller_id: int) -> None:
        """By the service's user, as its unit does before each start."""
        said = self.run(NAME, "check-config", "--config", f"/{CONFIGURATION}", user=NAME)
        rows = [line.split() for line in said.splitlines()]
        assert ["controller_id", str(controller_id)] in [row[:2] for row in rows]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, built = tmp_path_factory.mktemp("packages"), {}
    for version in (FORMER, PRESENT):
        (folder / version).mkdir()
        run("env", f"VERSION={version}", ROOT / "deploy" / "build-deb.sh", folder / version)
        (built[version],) = (folder / version).glob("*.deb")
    return built


def test_what_reports_alone_need_is_not_in_it(packages: dict[str, Path]) -> None:
    """docs/deploy.md says 20 MB."""
    assert packages[PRESENT].stat().st_size < 25e6


@pytest.fixture(scope="module")
def debian(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Debian:
    if os.geteuid() != 0:
        pytest.skip("only root may make a Debian to install into")
    if shutil.which("debootstrap") is None:
        pytest.skip("no debootstrap here: apt-get install debootstrap")
    root = tmp_path_factory.mktemp("debian") / "root"
    needed = "--include=python3,systemd-standalone-sysusers"
    run("debootstrap", "--variant=minbase", needed, "bookworm", root)
    return Debian(root, packages)


def test_it_is_installed_upgraded_removed_and_purged(debian: Debian) -> None:
    root = debian.root
    debian.install(FORMER)
    debian.settings_are_read(1)
    for program, user in ((NAME, NAME), ("pctl", NAME), ("broker-stub", "broker-stub")):
        assert "Usage" in debian.run(program, "--help", user=user)
    for page in ("pctl", "pctl-topics-create", NAME, "partition-controller-run", "broker-stub"):
        assert (root / f"usr/share/man/man1/{page}.1.gz").exists()
    for unit in (f"{NAME}.service", "broker-stub@.service"):
        assert (root / "lib/systemd/system" / unit).exists()

    own = root / CONFIGURATION
    own.write_text(own.read_text().replace("# controller_id = 1\n", "controller_id = 7\n"))
    records = root / "var/lib/broker-stub/1/records"
    records.parent.mkdir(parents=True)
    records.write_text("not ours to delete")
    (root / "var/log/partition-controller").mkdir()
    debian.install(PRESENT)
    debian.settings_are_read(7)
    changed = subprocess.run(["chroot", root, "dpkg", "--verify", NAME], capture_output=True, text=True)
    assert [line.split()[-1] for line in changed.stdout.splitlines()] == [f"/{CONFIGURATION}"]

    debian.run("dpkg", "--remove", NAME)
    assert own.exists()
    assert not (root / "opt/partition-controller").exists()
    debian.run("dpkg", "--purge", NAME)
    left = [
        path for folder in ("etc", "opt", "usr", "var/log") for path in (root / folder).rglob(f"*{NAME}*")
    ]
    assert left == []
    assert records.read_text() == "not ours to delete"
