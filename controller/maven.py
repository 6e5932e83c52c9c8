"""Jars of others: fetched once by Maven, checked against checksums of ours, kept in a folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from controller.errors import EnvironmentFault
from controller.exit_codes import EXIT_FAILED, EXIT_USAGE

FETCH_TIMEOUT_S = 900.0
_CHECKOUT = Path(__file__).parents[1]
_READY = ".ready"


class UnreachableFault(EnvironmentFault):
    """Maven is missing, or could not fetch the jars."""


@dataclass(frozen=True)
class PinnedJars:
    """Jars of versions of a product. ``source``: the folder with ``VERSION.sha256`` and ``pom.xml``, whose property
    ``name`` is the version. ``title``: what messages call the product."""

    name: str
    title: str
    source: Path
    versions: Sequence[str]

    @property
    def variable(self) -> str:
        """Names another folder for the jars, so that several checkouts share them."""
        return f"{self.name.upper().replace('-', '_')}_JARS"

    def home(self) -> Path:
        """The folder that holds one folder of jars per version: of the checkout, else of the user's cache."""
        if named := os.environ.get(self.variable):
            return Path(named).absolute()
        if (_CHECKOUT / "pyproject.toml").exists():
            return _CHECKOUT / "build" / self.name
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(cache) / "partition-controller" / self.name

    def fetched(self, version: str) -> bool:
        """Whether the folder of this version is complete. Raises ValueError for a version that is not known."""
        sums, marker = self._sums_of(version), self.home() / version / _READY
        return marker.exists() and marker.read_text() == _digest(sums)

    def fetch(self, version: str) -> Path:
        """The folder with the jars of this version, fetched by Maven if it is not there.

        Raises ValueError for a version that is not known, UnreachableFault when Maven is missing or fails, and
        EnvironmentFault when a jar is missing, unexpected or changed.
        """
        folder = self.home() / version
        if self.fetched(version):
            return folder
        maven = shutil.which("mvn")
        if maven is None:
            raise UnreachableFault(
                f"Maven is missing, which fetches {self.title}'s jars: install maven (Debian, Ubuntu)"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{version}-") as temporary:
            jars = Path(temporary) / "jars"
            self._copy_dependencies(maven, version, jars)
            self._check(jars, version)
            (jars / _READY).write_text(_digest(self._sums_of(version)))
            shutil.rmtree(folder, ignore_errors=True)
            try:
                jars.rename(folder)
            except OSError:
                # Another process has fetched the same in between.
                if not self.fetched(version):
                    raise
        return folder

    def class_path(self, version: str) -> str:
        """The class path of this version. Raises what ``fetch`` raises."""
        return f"{self.fetch(version)}/*"

    def main(self) -> None:
        """A program that fetches the versions that its arguments name, without any the first one."""
        for version in sys.argv[1:] or self.versions[:1]:
            try:
                click.echo(f"{self.title} {version}: {self.fetch(version)}")
            except EnvironmentFault as error:
                click.echo(str(error), err=True)
                sys.exit(EXIT_FAILED)
            except ValueError as error:
                click.echo(str(error), err=True)
                sys.exit(EXIT_USAGE)

    def _sums_of(self, version: str) -> Path:
        if version not in self.versions:
            known = ", ".join(self.versions)
            raise ValueError(f"{self.title} {version} is not known here: must be one of {known}")
        return self.source / f"{version}.sha256"

    def _copy_dependencies(self, maven: str, version: str, into: Path) -> None:
        command = [maven, "-q", "-B", "-f", str(self.source / "pom.xml"), f"-D{self.name}={version}",
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
            raise UnreachableFault(
                f"{self.title} {version} was not fetched within {FETCH_TIMEOUT_S:g} s"
            ) from None
        if done.returncode:
            raise UnreachableFault(
                f"{self.title} {version} could not be fetched, is Maven's registry within reach? Maven says: "
                f"{(done.stdout + done.stderr).strip()[-1500:]}"
            )

    def _check(self, jars: Path, version: str) -> None:
        sums = (line.split() for line in self._sums_of(version).read_text().splitlines())
        wanted = {name: digest for digest, name in sums}
        found = {path.name: _digest(path) for path in jars.iterdir()}
        if found != wanted:
            wrong = sorted(
                name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
            )
            raise EnvironmentFault(
                f"the jars of {self.title} {version} do not match their checksums, nothing was kept: "
                f"{', '.join(wrong[:5])}"
            )


def _digest(path: Path) -> str:
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
