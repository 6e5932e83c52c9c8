"""Fetching jars, with a Maven that does as the test says."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from controller import maven as maven_module
from controller.analysis.object_storage.jars import HADOOP_AWS
from controller.embedded_kafka.jars import KAFKA
from controller.errors import EnvironmentFault
from controller.maven import PinnedJars, UnreachableFault

JAR = b"a jar"
SUM = hashlib.sha256(JAR).hexdigest()
#: Writes one jar into the folder that -DoutputDirectory names.
WRITES = """\
for word in "$@"; do case $word in -DoutputDirectory=*) into=${word#*=};; esac; done
mkdir -p "$into" && printf 'a jar' >"$into/some.jar"
"""


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PinnedJars:
    """Of two versions; the checksums of the first one are those of JAR alone."""
    sums = tmp_path / "sums"
    sums.mkdir()
    (sums / "2.sha256").write_text(f"{SUM}  some.jar\n")
    monkeypatch.setenv("SOME_THING_JARS", str(tmp_path / "jars"))
    return PinnedJars("some-thing", "Some", sums, ("2", "1"))


def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Put a Maven into the path that counts its calls and runs the script."""
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho called >>{calls}\n{script}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return calls


def test_jars_are_fetched_once(jars: PinnedJars, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = maven(tmp_path, monkeypatch, WRITES)
    assert not jars.fetched("2")
    folder = tmp_path / "jars" / "2"
    assert jars.fetch("2") == folder
    assert jars.class_path("2") == f"{folder}/*"
    assert calls.read_text().count("called") == 1
    assert [path.name for path in jars.home().iterdir()] == ["2"]


def test_jars_of_other_checksums_are_fetched_again(
    jars: PinnedJars, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = maven(tmp_path, monkeypatch, WRITES)
    jars.fetch("2")
    (tmp_path / "sums" / "2.sha256").write_text(f"{SUM}\tsome.jar\n")
    assert not jars.fetched("2")
    jars.fetch("2")
    assert calls.read_text().count("called") == 2


@pytest.mark.parametrize(
    ("script", "named"),
    [
        (WRITES + 'printf x >>"$into/some.jar"', "some.jar"),
        (WRITES + 'printf x >"$into/more.jar"', "more.jar"),
        (WRITES + 'mv "$into/some.jar" "$into/other.jar"', "other.jar, some.jar"),
    ],
)
def test_a_changed_jar_is_not_kept(
    jars: PinnedJars, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, named: str
) -> None:
    maven(tmp_path, monkeypatch, script)
    with pytest.raises(
        EnvironmentFault, match=f"do not match their checksums, nothing was kept: {named}"
    ) as raised:
        jars.fetch("2")
    assert not isinstance(raised.value, UnreachableFault)
    assert not list(jars.home().iterdir())


def test_no_maven(jars: PinnedJars, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnreachableFault, match="Maven is missing"):
        jars.fetch("2")


def test_no_registry(
    jars: PinnedJars, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    maven(tmp_path, monkeypatch, "echo no route to the registry; exit 1")
    with pytest.raises(UnreachableFault, match=r"within reach.*no route to the registry"):
        jars.fetch("2")
    monkeypatch.setattr("sys.argv", ["fetch"])
    with pytest.raises(SystemExit) as ended:
        jars.main()
    assert ended.value.code == 1
    assert "no route" in capsys.readouterr().err


def test_a_version_that_is_not_known(
    jars: PinnedJars, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="Some 3 is not known here: must be one of 2, 1"):
        jars.fetch("3")
    monkeypatch.setattr("sys.argv", ["fetch", "3"])
    with pytest.raises(SystemExit) as ended:
        jars.main()
    assert ended.value.code == 2
    assert "must be one of" in capsys.readouterr().err


def test_where_jars_are(jars: PinnedJars, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert jars.home() == tmp_path / "jars"
    monkeypatch.delenv(jars.variable)
    assert jars.home().parts[-2:] == ("build", "some-thing")
    monkeypatch.setattr(maven_module, "_CHECKOUT", tmp_path / "lib")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.home() == tmp_path / "partition-controller" / "some-thing"


def test_the_makefile_shares_folders_of_jars() -> None:
    assert (KAFKA.variable, HADOOP_AWS.variable) == ("KAFKA_JARS", "HADOOP_AWS_JARS")


@pytest.mark.parametrize(("jars", "named"), [(KAFKA, "kafka-clients"), (HADOOP_AWS, "hadoop-aws")])
def test_every_version_has_its_checksums(jars: PinnedJars, named: str) -> None:
    for version in jars.versions:
        assert f"{named}-{version}.jar" in (jars.source / f"{version}.sha256").read_text()


def test_the_newest_version_is_fetched_unless_others_are_named(
    jars: PinnedJars, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(PinnedJars, "fetch", lambda _, version: fetched.append(version))
    for arguments in ([], ["1"], ["1", "2"]):
        monkeypatch.setattr(sys, "argv", ["jars", *arguments])
        jars.main()
    assert fetched == ["2", "1", "1", "2"]
