"""Wheel and source distribution: complete, accepted by twine, and they run from an empty environment."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.tools.installation import REQUIREMENTS, IndexOutOfReachError, install

pytestmark = pytest.mark.slow
SOURCES = ("LICENSE", "README.md", "broker_stub", "controller", "proto", "pyproject.toml")


def run(*command: str | Path, directory: Path) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Built from a copy: a build leaves files beside the sources."""
    scratch = tmp_path_factory.mktemp("distributions")
    (scratch / "source").mkdir()
    run("cp", "-R", *(ROOT / name for name in SOURCES), scratch / "source", directory=scratch)
    uv: list[str | Path] = [Path(sys.executable).parent / "uv", "build", "--offline", "--no-build-isolation"]
    run(*uv, "--python", sys.executable, "--out-dir", scratch / "out", "source", directory=scratch)
    found = [path for path in sorted((scratch / "out").iterdir()) if path.name[0] != "."]
    assert [path.name.split("-")[0] for path in found] == ["partition_controller"] * 2
    return found


@pytest.mark.long
def test_twine_accepts_them(distributions: list[Path]) -> None:
    try:
        twine = install(REQUIREMENTS / "twine.txt")
    except IndexOutOfReachError as error:
        pytest.skip(f"the package index is out of reach, so twine cannot be installed: {error}")
    done = twine.run("twine", "check", "--strict", *map(str, distributions))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_runs_from_an_empty_environment(distributions: list[Path], tmp_path: Path) -> None:
    """Our own code is the wheel's; what it depends on is what this environment has locked: the index is not asked."""
    (wheel,) = (path for path in distributions if path.suffix == ".whl")
    home = tmp_path / "empty"
    venv.create(home, symlinks=True)
    pip: list[str | Path] = [
        "env",
        "-u",
        "PYTHONPATH",
        sys.executable,
        "-m",
        "pip",
        "--python",
        home / "bin" / "python",
        "install",
        "--quiet",
    ]
    run(*pip, "--no-deps", "--no-index", "--disable-pip-version-check", wheel, directory=tmp_path)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    for program in ("partition-controller", "pctl", "broker-stub"):
        assert "Usage" in run("env", "-u", "PYTHONPATH", home / "bin" / program, "--help", directory=tmp_path)
    code = "import controller, proto.gen.common_pb2; print(controller.__file__)"
    said = run("env", "-u", "PYTHONPATH", home / "bin" / "python", "-c", code, directory=tmp_path)
    assert Path(said.strip()).is_relative_to(home)
    template = "controller/runtime/http/console/static"
    assert any((packages / template).iterdir()), "the console's files are in the wheel"


def test_the_source_distribution_has_what_a_build_needs(distributions: list[Path]) -> None:
    (source,) = (path for path in distributions if path.suffix == ".gz")
    with tarfile.open(source) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    tracked = subprocess.run(
        ["git", "ls-files", "controller", "broker_stub", "proto"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    missing = [name for name in tracked if name not in names and name.endswith((".py", ".j2", ".js", ".css"))]
    assert missing == []
