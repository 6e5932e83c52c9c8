"""What ``make`` installs: by uv and pip side by side, or by pip alone."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.paths import ROOT

PINS = (ROOT / "requirements-dev.txt").read_text()


@pytest.fixture
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "install_requirements", ROOT / "deploy/install_requirements.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Commands:
    """Stands for the programs that are started: those whose name is in ``failing`` fail, and those that install no
    more than what is."""

    def __init__(self, failing: Sequence[str]) -> None:
        self.failing = failing
        #: For each: who installs, and which projects.
        self.installed: list[tuple[str, set[str]]] = []

    def call(self, command: Sequence[str], **_: Any) -> int:
        name = "uv" if command[0].endswith("/uv") else "pip"
        assert "--require-hashes" in command
        pins = Path(command[-1]).read_text()
        projects = {line.split("==")[0] for line in pins.splitlines() if "==" in line}
        self.installed.append((name, projects))
        return int(name in self.failing or projects == {*self.failing})

    def start(self, command: Sequence[str], **_: Any) -> Any:
        ended = self.call(command)
        return type("Process", (), {"wait": lambda self: ended})()


def run(program: ModuleType, patched: pytest.MonkeyPatch, *failing: str) -> tuple[int, Commands]:
    commands = Commands(failing)
    patched.setattr(program.subprocess, "call", commands.call)
    patched.setattr(program.subprocess, "Popen", commands.start)
    patched.setattr(program.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, ""))
    patched.setattr(program.compileall, "compile_dir", lambda *_, **__: True)
    return program.install(ROOT / "requirements-dev.txt"), commands


def test_uv_installs_all_but_what_pip_builds(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    result, commands = run(program, monkeypatch)
    everything = {line.split("==")[0] for line in PINS.splitlines() if "==" in line}
    assert result == 0
    assert commands.installed == [("pip", {"pyspark"}), ("pip", {"uv"}), ("uv", everything - {"pyspark"})]


@pytest.mark.parametrize(("failing", "result"), [(["uv"], 0), (["pyspark"], 0), (["pip", "uv"], 1)])
def test_without_uv_or_a_build_of_pyspark_pip_installs_all(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, failing: list[str], result: int
) -> None:
    ended, commands = run(program, monkeypatch, *failing)
    name, projects = commands.installed[-1]
    assert (ended, name) == (result, "pip")
    assert {"pyspark", "uv", "pytest"} < projects


def test_pins_have_all_their_hashes(program: ModuleType) -> None:
    """And those of one project only."""
    found = program.pinned(PINS, "uv")
    assert found.count("==") == 1
    assert found.startswith("uv==")
    assert found in PINS
    assert PINS.split(found)[1].lstrip("\n")[:1] not in (" ", "")
    assert program.pinned("a==1 \\\n    --hash=x\nab==2 \\\n    --hash=y\n", "a") == "a==1 \\\n    --hash=x\n"


def test_uv_looks_where_pip_is_told_to(program: ModuleType) -> None:
    listed = """\
:env:.index-url='https://b'
:env:.timeout='9'
global.cert='/c.pem'
global.index-url='https://a'
install.index-url='https://i'
"""
    assert program.settings_for_uv(listed) == {"SSL_CERT_FILE": "/c.pem", "UV_DEFAULT_INDEX": "https://b"}
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env={"PIP_INDEX_URL": "https://an.index/simple", "PIP_CONFIG_FILE": "/dev/null"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert program.settings_for_uv(said.stdout)["UV_DEFAULT_INDEX"] == "https://an.index/simple"
