"""Fetching Kafka's jars, with a Maven that does as the test says; real brokers: tests/kafka."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from controller.embedded_kafka import jars
from controller.embedded_kafka.__main__ import main
from controller.errors import EnvironmentFault

JAR = b"a jar"
SUM = hashlib.sha256(JAR).hexdigest()
#: Writes one jar into the folder that -DoutputDirectory names.
WRITES = """\
for word in "$@"; do case $word in -DoutputDirectory=*) into=${word#*=};; esac; done
mkdir -p "$into" && printf 'a jar' >"$into/kafka.jar"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where jars go; the checksums of the newest version are those of JAR alone."""
    sums = tmp_path / "sums"
    sums.mkdir()
    (sums / f"{jars.NEWEST}.sha256").write_text(f"{SUM}  kafka.jar\n")
    monkeypatch.setattr(jars, "_HERE", sums)
    monkeypatch.setenv(jars.VARIABLE, str(tmp_path / "jars"))
    return tmp_path / "jars"


def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Put a Maven into the path that counts its calls and runs the script."""
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho called >>{calls}\n{script}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return calls


def test_jars_are_fetched_once(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = maven(tmp_path, monkeypatch, WRITES)
    assert not jars.fetched(jars.NEWEST)
    assert jars.fetch(jars.NEWEST) == home / jars.NEWEST
    assert jars.class_path(jars.NEWEST) == f"{home / jars.NEWEST}/*"
    assert calls.read_text().count("called") == 1
    assert [path.name for path in home.iterdir()] == [jars.NEWEST]


def test_jars_of_other_checksums_are_fetched_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = maven(tmp_path, monkeypatch, WRITES)
    jars.fetch(jars.NEWEST)
    (tmp_path / "sums" / f"{jars.NEWEST}.sha256").write_text(f"{SUM}\tkafka.jar\n")
    assert not jars.fetched(jars.NEWEST)
    jars.fetch(jars.NEWEST)
    assert calls.read_text().count("called") == 2


@pytest.mark.parametrize(
    ("script", "named"),
    [
        (WRITES + 'printf x >>"$into/kafka.jar"', "kafka.jar"),
        (WRITES + 'printf x >"$into/more.jar"', "more.jar"),
        (WRITES + 'mv "$into/kafka.jar" "$into/other.jar"', "kafka.jar, other.jar"),
    ],
)
def test_a_changed_jar_is_not_kept(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, named: str
) -> None:
    maven(tmp_path, monkeypatch, script)
    with pytest.raises(
        EnvironmentFault, match=f"do not match their checksums, nothing was kept: {named}"
    ) as raised:
        jars.fetch(jars.NEWEST)
    assert not isinstance(raised.value, jars.UnreachableFault)
    assert not list(home.iterdir())


def test_no_maven(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(jars.UnreachableFault, match="Maven is missing"):
        jars.fetch(jars.NEWEST)


def test_no_registry(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    maven(tmp_path, monkeypatch, "echo no route to the registry; exit 1")
    with pytest.raises(jars.UnreachableFault, match=r"within reach.*no route to the registry"):
        jars.fetch(jars.NEWEST)
    monkeypatch.setattr("sys.argv", ["embedded_kafka"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "no route" in capsys.readouterr().err


@pytest.mark.slow
def test_a_version_that_is_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=r"Kafka 4\.0\.0 is not known here: must be one of 3\.9\.1"):
        jars.fetch("4.0.0")
    monkeypatch.setattr("sys.argv", ["embedded_kafka", "4.0.0"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "must be one of" in capsys.readouterr().err


def test_where_jars_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(jars.VARIABLE, raising=False)
    assert jars.home().parts[-2:] == ("build", "kafka")
    installed = tmp_path / "lib" / "controller" / "embedded_kafka"
    monkeypatch.setattr(jars, "_HERE", installed)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.home() == tmp_path / "partition-controller" / "kafka"


def test_every_version_has_its_checksums() -> None:
    for version in jars.VERSIONS:
        assert f"kafka-clients-{version}.jar" in (jars._HERE / f"{version}.sha256").read_text()
