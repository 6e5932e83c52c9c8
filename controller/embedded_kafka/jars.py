"""Kafka's jars: fetched once by Maven, checked against the checksums beside this module, kept in a folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from controller.errors import EnvironmentFault

#: The newest first: tools of this version work with brokers of all.
VERSIONS = ("3.9.1", "3.6.2", "3.3.2", "2.8.2")
NEWEST = VERSIONS[0]
#: Names another folder for the jars, so that several checkouts share them.
VARIABLE = "KAFKA_JARS"
FETCH_TIMEOUT_S = 900.0


class UnreachableFault(EnvironmentFault):
    """Maven is missing, or could not fetch the jars."""


_HERE = Path(__file__).parent
_READY = ".ready"


def home() -> Path:
    """The folder that holds one folder of jars per version: of the checkout, else of the user's cache."""
    if named := os.environ.get(VARIABLE):
        return Path(named).absolute()
    checkout = _HERE.parents[1]
    if (checkout / "pyproject.toml").exists():
        return checkout / "build" / "kafka"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "partition-controller" / "kafka"


def fetched(version: str) -> bool:
    """Whether the folder of this version is complete. Raises ValueError for a version that is not in VERSIONS."""
    marker = home() / version / _READY
    return marker.exists() and marker.read_text() == _digest(_sums_of(version).read_bytes())


def fetch(version: str) -> Path:
    """The folder with the jars of this version, fetched by Maven if it is not there.

    Raises ValueError for a version that is not in VERSIONS, UnreachableFault when Maven is missing or fails, and
    EnvironmentFault when a jar is missing, unexpected or changed.
    """
    folder = home() / version
    if fetched(version):
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise UnreachableFault("Maven is missing, which fetches Kafka's jars: install maven (Debian, Ubuntu)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{version}-") as temporary:
        jars = Path(temporary) / "jars"
        _copy_dependencies(maven, version, jars)
        _check(jars, version)
        (jars / _READY).write_text(_digest(_sums_of(version).read_bytes()))
        shutil.rmtree(folder, ignore_errors=True)
        try:
            jars.rename(folder)
        except OSError:
            # Another process has fetched the same in between.
            if not fetched(version):
                raise
    return folder


def class_path(version: str) -> str:
    """The class path of this version. Raises what ``fetch`` raises."""
    return f"{fetch(version)}/*"


def _sums_of(version: str) -> Path:
    if version not in VERSIONS:
        raise ValueError(f"Kafka {version} is not known here: must be one of {', '.join(VERSIONS)}")
    return _HERE / f"{version}.sha256"


def _copy_dependencies(maven: str, version: str, into: Path) -> None:
    command = [maven, "-q", "-B", "-f", str(_HERE / "pom.xml"), f"-Dkafka={version}",
               "dependency:copy-dependencies", f"-DoutputDirectory={into}", "-DincludeScope=runtime"]  # fmt: skip
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise UnreachableFault(f"Kafka {version} was not fetched within {FETCH_TIMEOUT_S:g} s") from None
    if done.returncode:
        raise UnreachableFault(
            f"Kafka {version} could not be fetched, is Maven's registry within reach? Maven says: "
            f"{(done.stdout + done.stderr).strip()[-1500:]}"
        )


def _check(jars: Path, version: str) -> None:
    wanted = {
        name: digest for digest, name in (line.split() for line in _sums_of(version).read_text().splitlines())
    }
    found = {path.name: _digest(path.read_bytes()) for path in jars.iterdir()}
    if found != wanted:
        wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise EnvironmentFault(
            f"the jars of Kafka {version} do not match their checksums, nothing was kept: {', '.join(wrong[:5])}"
        )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
