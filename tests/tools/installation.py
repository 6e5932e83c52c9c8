"""Tools that others wrote, as published: each in an environment of its own below ``.venv/tools``, installed once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

REQUIREMENTS = Path(__file__).parent / "requirements"
#: The same for every checkout that shares an environment: scripts name their interpreter by its path.
ENVIRONMENTS = (ROOT / ".venv").resolve() / "tools"
INSTALL_TIMEOUT_S = 150
RUN_TIMEOUT_S = 60
#: What pip says when nobody answered, or only a gateway did; a hash or a build that is wrong reads otherwise.
OUT_OF_REACH = re.compile(
    r"^ERROR:.*(?:\(from versions: none\)|NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError"
    r"|NameResolutionError|HTTP error 5\d\d|Connection (?:aborted|refused|reset))",
    re.MULTILINE,
)


class IndexOutOfReachError(Exception):
    """The package index did not answer: nothing is known about the tool."""


class InstallationError(Exception):
    """The index answered, and yet the tool cannot be installed as it is pinned."""


@dataclass(frozen=True)
class Tool:
    """An installed tool; ``bin`` has its commands."""

    bin: Path

    def run(
        self, command: str, *arguments: str, environment: Mapping[str, str] = {}, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, ``text`` on its standard input."""
        return subprocess.run(
            [str(self.bin / command), *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            env={**_clean(), **environment},
            check=False,
        )


def install(requirements: Path, environments: Path = ENVIRONMENTS, settings: Mapping[str, str] = {}) -> Tool:
    """The tool that a requirements file pins, from an earlier run if that installed the very same.

    ``settings``: environment variables for pip. Raises IndexOutOfReachError, InstallationError.
    """
    environments.mkdir(parents=True, exist_ok=True)
    wanted = requirements.read_text()
    digest = hashlib.sha256(f"{sys.version}\n{sys.executable}\n{wanted}".encode()).hexdigest()
    home = environments / requirements.stem
    marker = home / "installed"
    with (environments / f"{requirements.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not marker.exists() or marker.read_text() != digest:
            shutil.rmtree(home, ignore_errors=True)
            venv.create(home, symlinks=True)
            _install(home, wanted, settings)
            marker.write_text(digest)
    return Tool(home / "bin")


def _install(home: Path, wanted: str, settings: Mapping[str, str]) -> None:
    """What builds the others goes first: a build in isolation would fetch what no hash pins."""
    builder = home / "builder.txt"
    builder.write_text("".join(re.findall(r"^setuptools==.*(?:\n    .*)*\n", wanted, re.MULTILINE)))
    everything = home / "requirements.txt"
    everything.write_text(wanted)
    for listed in (builder, everything):
        _pip(home, listed, settings)


def _pip(home: Path, listed: Path, settings: Mapping[str, str]) -> None:
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--require-hashes",
        "--no-deps",
        "--no-build-isolation",
    ]
    patience = ["--timeout=15", "--retries=2"]
    python = str(home / "bin" / "python")
    command = [sys.executable, "-m", "pip", "--python", python, "install", *options, *patience]
    ended = subprocess.run(
        [*command, "-r", str(listed)],
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        env={**_clean(), **settings},
        check=False,
    )
    if ended.returncode:
        said = ended.stdout + ended.stderr
        raise (IndexOutOfReachError if OUT_OF_REACH.search(said) else InstallationError)(said[-3000:])


def _clean() -> dict[str, str]:
    """Our environment without what would lead Python to our own packages or turn others' warnings into errors."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
