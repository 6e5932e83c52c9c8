"""Spark's JVM: its archive of classes, made once, kept when whole; none is left. More: ``make spark-cluster``."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pyspark
import pytest

from controller.analysis import session
from controller.analysis.session import ClassArchive
from controller.embedded_zookeeper.ensemble import find_java


def java(archive: ClassArchive) -> str:
    """A JVM that ends at once; what it says of the archives that it uses."""
    command = [find_java(), archive.option, "-Xlog:cds", "--list-modules"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.slow
def test_the_next_jvm_uses_what_the_first_one_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = ClassArchive.find()
    java(first)
    assert not first.path.exists()
    first.keep(whole=True)
    assert [path.suffix for path in first.path.parent.iterdir()] == [".jsa"]
    second = ClassArchive.find()
    assert second.draft is None
    assert f"Opened archive {second.path}." in java(second)
    second.keep(whole=True)
    assert second.path.exists()


def test_jars_of_another_date_have_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM would refuse the former one, and say so to nobody."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jar = tmp_path / "pyspark" / "jars" / "spark.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "pyspark" / "__init__.py"))
    archives = []
    for date in (1, 2):
        os.utime(jar, (date, date))
        archive = ClassArchive.find()
        assert archive.option
        assert archive.draft is not None, "a former one is taken for ours"
        archive.draft.touch()
        archive.keep(whole=True)
        archives.append(archive.path)
        assert ClassArchive.find().draft is None
    assert list((tmp_path / "cache" / "partition-controller").iterdir()) == archives[1:], (
        "the former one is left"
    )


@pytest.mark.slow
def test_what_a_killed_jvm_left_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = ClassArchive.find()
    assert archive.option
    assert archive.draft is not None
    archive.draft.touch()
    archive.keep(whole=False)
    assert list(archive.path.parent.iterdir()) == []


@pytest.mark.slow
def test_there_is_none_in_a_path_with_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "of us"))
    assert ClassArchive.find().option == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("heard", [True, False])
def test_ctrl_c_while_spark_starts_leaves_no_jvm(
    monkeypatch: pytest.MonkeyPatch, heard: bool, number: signal.Signals
) -> None:
    """It is heard when there is something to end; who ignores it goes on."""
    gateway, ended = object(), list[object]()

    def launch(*_: object) -> object:
        os.kill(os.getpid(), number)
        return gateway

    monkeypatch.setattr(session, "_launch", launch)
    monkeypatch.setattr(session, "_end", ended.append)
    wanted = signal.default_int_handler if heard else signal.SIG_IGN
    before = signal.signal(number, wanted)
    given: Any = None
    try:
        if heard:
            with pytest.raises(KeyboardInterrupt):
                session._launch_whole(given, given)
        else:
            assert session._launch_whole(given, given) is gateway
        assert signal.getsignal(number) == wanted
    finally:
        signal.signal(number, before)
    assert ended == ([gateway] if heard else [])


def test_sigterm_is_heard_also_after_a_ctrl_c_that_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(session, "_launch", launch)
    monkeypatch.setattr(session, "_end", lambda _: None)
    handlers: dict[int, Any] = {signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    given: Any = None
    try:
        with pytest.raises(KeyboardInterrupt):
            session._launch_whole(given, given)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
