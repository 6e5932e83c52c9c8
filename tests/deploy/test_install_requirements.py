"""What ``make`` installs: by uv and pip side by side, or by pip alone."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import requires
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


def needed(project: str) -> set[str]:
    """What its metadata says that it needs, extras aside; py4j of PySpark is what matters here."""
    wanted = [one for one in requires(project) or () if ";" not in one]
    return {match[0].lower() for one in wanted if (match := re.match(r"[\w.-]+", one))}


class Commands:
    """Stands for the programs that are started: those whose name is in ``failing`` fail, and those that install no
    more than what is. Those that look for dependencies fail without the hashes of all of them, as pip and uv do."""

    def __init__(self, failing: Sequence[str]) -> None:
        self.failing = failing
        #: For each: who installs, and which projects.
        self.installed: list[tuple[str, set[str]]] = []
        #: How many that were started nobody has waited for.
        self.running = 0

    def call(self, command: Sequence[str], **_: Any) -> int:
        name = "uv" if command[0].endswith("/uv") else "pip"
        assert "--require-hashes" in command
        pins = Path(command[-1]).read_text()
        projects = {line.split("==")[0] for line in pins.splitlines() if "==" in line}
        self.installed.append((name, projects))
        unpinned = set() if "--no-deps" in command or len(projects) > 1 else needed(*projects) - projects
        return int(name in self.failing or projects == {*self.failing} or bool(unpinned))

    def start(self, command: Sequence[str], **_: Any) -> Any:
        ended = self.call(command)
        self.running += 1

        def wait(_: Any) -> int:
            self.running -= 1
            return ended

        return type("Process", (), {"wait": wait})()


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
    assert (ended, name, commands.running) == (result, "pip", 0)
    assert {"pyspark", "uv", "pytest"} < projects


def test_pins_have_all_their_hashes(program: ModuleType) -> None:
    """And those of one project only."""
    found = program.pinned(PINS, "uv")
    assert found.count("==") == 1
    assert found.startswith("uv==")
    assert found in PINS
    assert PINS.split(found)[1].lstrip("\n")[:1] not in (" ", "")
    assert program.pinned("not-a==1 \\\n    --hash=x\n", "a") == ""
    assert program.pinned("a==1 \\\n    --hash=x\nab==2 \\\n    --hash=y\n", "a") == "a==1 \\\n    --hash=x\n"


def test_uv_looks_where_pip_is_told_to(program: ModuleType) -> None:
    listed = """\
:env:.index-url='https://b'
:env:.timeout='9'
global.cert='/c.pem'
global.index-url='https://a'
global.extra-index-url='https://e'
install.extra-index-url='https://x'
install.index-url='https://i'
"""
    found = {"SSL_CERT_FILE": "/c.pem", "UV_DEFAULT_INDEX": "https://b", "UV_INDEX": "https://x"}
    assert program.settings_for_uv(listed) == found, "the environment's before pip install's, before pip's"
    del found["UV_DEFAULT_INDEX"]
    without = "".join(
        line for line in listed.splitlines(keepends=True) if "index-url='https://b'" not in line
    )
    assert program.settings_for_uv(without) == {**found, "UV_DEFAULT_INDEX": "https://i"}
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env={"PIP_INDEX_URL": "https://an.index/simple", "PIP_CONFIG_FILE": "/dev/null"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert program.settings_for_uv(said.stdout)["UV_DEFAULT_INDEX"] == "https://an.index/simple"


def test_what_uv_is_told_itself_counts_more(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, str]] = []
    listed = "global.cert='/c.pem'\nglobal.index-url='https://a'\n"
    monkeypatch.setattr(
        program.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, listed)
    )

    def call(_: Sequence[str], env: dict[str, str]) -> int:
        given.append(env)
        return 0

    monkeypatch.setattr(program.subprocess, "call", call)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own")
    assert program.by_uv(Path("pins.txt"))
    assert [(one["UV_DEFAULT_INDEX"], one["SSL_CERT_FILE"]) for one in given] == [("https://own", "/c.pem")]
