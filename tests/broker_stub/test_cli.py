"""``broker-stub``: which id a broker has, and what is said of a data directory, without a broker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker_stub import cli
from broker_stub.errors import StorageFault
from broker_stub.log import batches


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, arguments)


def directory(path: Path, broker_id: int | None = None) -> Path:
    path.mkdir()
    if broker_id is not None:
        (path / "meta.properties").write_text(f"version=0\nbroker.id={broker_id}\n")
    return path


def test_a_broker_keeps_the_id_that_any_of_its_directories_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated: list[Any] = []
    monkeypatch.setattr(cli.settings, "zookeeper_access", lambda _: None)  # type: ignore[attr-defined]

    def generate(*given: Any) -> int:
        generated.append(given)
        return 1001

    monkeypatch.setattr(cli, "generate_broker_id", generate)

    def own_id(*paths: Path) -> int:
        loaded: Any = SimpleNamespace(data_dirs=paths, zookeeper="h:1", connection_timeout_ms=1)
        return cli._own_id(loaded)

    empty, known = directory(tmp_path / "empty"), directory(tmp_path / "known", 1007)
    assert own_id(empty, known) == 1007
    assert generated == []
    assert own_id(empty) == 1001
    assert len(generated) == 1
    # A file in the place of the directory.
    (tmp_path / "file").touch()
    with pytest.raises(StorageFault, match="Not a directory"):
        own_id(tmp_path / "file", known)


def test_a_setting_that_is_wrong_ends_otherwise_than_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.daemon, "run", lambda _: 0)  # type: ignore[attr-defined]
    assert run("run", "--broker-id=x").exit_code == 2


def test_only_a_broker_s_directory_is_inspected(tmp_path: Path) -> None:
    nobody = run("inspect", f"--data-dir={directory(tmp_path / 'nobody')}")
    assert (nobody.exit_code, "not a broker's data directory" in nobody.output) == (1, True)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_damaged_log_ends_with_one(damaged: bool, tmp_path: Path) -> None:
    data = bytearray(batches.encode([(None, b"x")], 1000, 0, 0) + batches.encode([(None, b"y")], 1000, 1, 0))
    if damaged:
        data[-1] ^= 1
    (tmp_path / f"{0:020d}.log").write_bytes(bytes(data))
    done = run("dump-log", str(tmp_path))
    assert (done.exit_code, "PROBLEM" in done.output) == (int(damaged), damaged), done.output
