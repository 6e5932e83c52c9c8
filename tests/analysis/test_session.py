"""How Spark is started and ended, and told how large the input is: what no Spark is needed for."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from controller.analysis import session
from controller.analysis.lake import source
from controller.analysis.lake.delta_log import LAKE_VERSION
from controller.analysis.lake.errors import LakeError
from controller.analysis.lake.identity import TakenFile
from controller.analysis.session import (
    SHUFFLE_PARTITIONS_MAX,
    SHUFFLE_PARTITIONS_MIN,
    SMALL_BYTES,
    ClassArchive,
    first_line,
    size_for,
)

MB = 1 << 20


@pytest.mark.parametrize(
    ("input_bytes", "master", "partitions", "spares"),
    [
        (SMALL_BYTES, "local[2]", "1", True),
        (SMALL_BYTES + 1, "local[2]", str(SHUFFLE_PARTITIONS_MIN), False),
        (640 * MB, "local[2]", "10", False),
        (1 << 50, "local[2]", str(SHUFFLE_PARTITIONS_MAX), False),
        (640 * MB, "spark://h:7077", None, False),
        (0, "spark://h:7077", "1", True),
    ],
)
def test_work_is_spared_or_divided_by_the_size_of_the_input(
    input_bytes: int, master: str, partitions: str | None, spares: bool
) -> None:
    told: dict[str, str] = {}
    spark: Any = SimpleNamespace(
        conf=SimpleNamespace(set=told.__setitem__), sparkContext=SimpleNamespace(master=master)
    )
    size_for(spark, input_bytes)
    assert told.get("spark.sql.shuffle.partitions") == partitions
    assert (told.get("spark.sql.codegen.wholeStage") == "false") is spares


def test_jars_are_on_the_path_of_a_local_spark_and_sent_to_others() -> None:
    jars = [Path("/a.jar"), Path("/b.jar")]
    assert session._jar_settings("local[*]", []) == []
    assert session._jar_settings("local[*]", jars)[1:] == [("spark.driver.extraClassPath", "/a.jar:/b.jar")]
    assert session._jar_settings("spark://h:1", jars)[1:] == [("spark.jars", "file:///a.jar,file:///b.jar")]


def test_the_jvm_has_its_temporary_files_in_a_path_with_a_space_too(tmp_path: Path) -> None:
    scratch = tmp_path / "a b"
    scratch.mkdir()
    options = session._local_conf("local", scratch, True, None).get("spark.driver.extraJavaOptions")
    assert f"-Djava.io.tmpdir={scratch}" in shlex.split(options or "")


@pytest.mark.parametrize("heeds", [False, True])
def test_a_jvm_that_does_not_end_is_killed_and_is_nobody_s(
    heeds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def wait(timeout_s: float | None = None) -> None:
        said.append("wait")
        if timeout_s is not None and not heeds:
            raise subprocess.TimeoutExpired("java", timeout_s)

    process = SimpleNamespace(
        stdin=SimpleNamespace(close=lambda: said.append("close")), wait=wait, kill=lambda: said.append("kill")
    )
    gateway = SimpleNamespace(shutdown=lambda: said.append("shutdown"), proc=process)
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    monkeypatch.setattr(SparkContext, "_jvm", object())
    assert session._end(gateway) is heeds
    assert said == ["shutdown", "close", "wait"] + ([] if heeds else ["kill", "wait"])
    assert (SparkContext._gateway, SparkContext._jvm) == (None, None)


@pytest.mark.parametrize("java_home", [None, "/java"])
def test_the_environment_is_as_before_once_spark_has_started(
    java_home: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def launch(*_: object) -> object:
        seen.append(os.environ["JAVA_HOME"])
        assert os.environ["LC_ALL"] == "C.UTF-8"
        return gateway

    gateway: Any = object()
    monkeypatch.setattr(session, "launch_gateway", launch)
    monkeypatch.setattr(session, "find_java", lambda: "/opt/jdk/bin/java")
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if java_home is not None:
        monkeypatch.setenv("JAVA_HOME", java_home)
    given: Any = None
    assert session._launch(given, given) is gateway
    assert seen == ["/opt/jdk"]
    assert (os.environ.get("JAVA_HOME"), os.environ.get("LC_ALL")) == (java_home, None)


def test_a_draft_is_left_as_long_as_its_jvm_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = ClassArchive.find()
    assert archive.draft is not None
    archive.path.parent.mkdir()
    with subprocess.Popen(["true"]) as ended:
        pass
    runs, left = (archive.path.with_name(f"{archive.path.name}.{pid}") for pid in (os.getppid(), ended.pid))
    nobodys = archive.path.with_name(f"{archive.path.name}.x")
    for draft in (runs, left, nobodys):
        draft.touch()
    ClassArchive.find()
    assert (runs.exists(), left.exists(), nobodys.exists()) == (True, False, False)
    archive.draft.touch()
    archive.keep(whole=False)
    assert sorted(path.name for path in archive.path.parent.iterdir()) == [runs.name]


def test_of_an_error_of_the_jvm_the_first_cause_is_said() -> None:
    stack = (
        ": Job aborted",
        "\tat a",
        "Caused by: the task failed",
        "\tat b",
        "Caused by: No space left",
        "\tat c",
    )
    text = "\n".join(("An error occurred while calling o1.parquet.", *stack))
    assert first_line(Py4JError(text)) == "No space left"


# --- a lake that cannot be reported on -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "lake_version", "ok", "why"),
    [
        (-1, LAKE_VERSION, 1, "no lake; pctl lake update"),
        (3, LAKE_VERSION - 1, 1, "made by an earlier version"),
        (3, LAKE_VERSION, 0, "nothing to report on"),
        (3, LAKE_VERSION, 1, None),
    ],
)
def test_a_lake_is_read_that_has_a_usable_line(
    version: int, lake_version: int, ok: int, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot: Any = SimpleNamespace(version=version, lake_version=lake_version)
    monkeypatch.setattr(source, "DeltaLog", lambda _: SimpleNamespace(read=lambda: snapshot))
    monkeypatch.setattr(source, "taken_files", lambda _: [TakenFile("a", "/a", lines=2, ok=ok)])
    storage: Any = SimpleNamespace(shown="/lake")
    if why is None:
        assert source.open_snapshot(storage) is snapshot
    else:
        with pytest.raises(LakeError, match=why):
            source.open_snapshot(storage)


def test_what_is_wrong_with_a_log_goes_before_what_is_left_of_it() -> None:
    rows = [
        source._file_row(TakenFile("a", "/a", pending=pending, problem=problem))
        for problem in (None, "damaged")
        for pending in (0, 7)
    ]
    assert [row.problem for row in rows] == [
        None,
        "7 bytes of an unfinished last line are left for the next update",
        "damaged",
        "damaged",
    ]
