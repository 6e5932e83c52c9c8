"""``partition-controller tokens``: what it writes is what daemons read."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from errno import EPERM
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from controller.cli import tokens as module
from controller.cli.main import main
from proto.security.files import FileSettingError
from proto.security.tokens import line_of, tokens_in


def tokens(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tokens", *arguments])


def test_a_token_works_from_its_making_to_its_removal(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    alice, bob = (tokens("add", name, "--file", str(file)).stdout.strip() for name in ("alice", "bob b"))
    assert file.stat().st_mode & 0o777 == 0o600
    assert alice not in file.read_text()
    assert [tokens_in(file).current().holder(token) for token in (alice, bob)] == ["alice", "bob b"]
    file.chmod(0o644)
    assert tokens("remove", "alice", "--file", str(file)).exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o640
    assert [tokens_in(file).current().holder(token) for token in (alice, bob)] == [None, "bob b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokens"]


def test_nobody_else_changes_the_file_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, locked = tmp_path / "tokens", list[str]()

    def held(name: str) -> Callable[..., Any]:
        work = getattr(module, name)

        def seen(*arguments: Any) -> Any:
            with pytest.raises(BlockingIOError):
                fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked.append(name)
            return work(*arguments)

        return seen

    another = os.open(tmp_path, os.O_RDONLY)
    for name in ("_lines", "_write"):
        monkeypatch.setattr(module, name, held(name))
    for verb in ("add", "remove"):
        assert tokens(verb, "alice", "--file", str(file)).exit_code == 0
    assert locked == ["_lines", "_write"] * 2
    assert tokens("remove", "alice", "--file", str(file)).exit_code == 1
    fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(another)


def test_the_daemons_group_can_read_it_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root adds a token to the file of a daemon that runs as another user; who may not, changes nothing."""
    file, given = tmp_path / "tokens", list[tuple[Path, int, int]]()
    tokens("add", "alice", "--file", str(file))
    held = file.read_text()
    monkeypatch.setattr(os, "chown", lambda path, *ids: given.append((path, *ids)))
    assert tokens("remove", "alice", "--file", str(file)).exit_code == 0
    assert given == [(tmp_path / "tokens.new", os.getuid(), file.stat().st_gid)]
    file.write_text(held)

    def refused(*_: object) -> None:
        raise PermissionError(EPERM, "not permitted")

    monkeypatch.setattr(os, "chown", refused)
    failed = tokens("remove", "alice", "--file", str(file))
    assert (failed.exit_code, "cannot be written" in failed.stderr) == (1, True)
    assert (list(tmp_path.iterdir()), file.read_text()) == ([file], held)


@pytest.mark.parametrize(("before", "after"), [(0o600, 0o600), (0o640, 0o640), (0o666, 0o640)])
def test_nobody_but_its_owner_may_write_the_file(tmp_path: Path, before: int, after: int) -> None:
    file = tmp_path / "tokens"
    file.touch()
    file.chmod(before)
    left_behind = tmp_path / "tokens.new"
    left_behind.touch()
    left_behind.chmod(0o666)
    tokens("add", "alice", "--file", str(file))
    assert file.stat().st_mode & 0o777 == after


def test_names_that_begin_alike_are_different(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    kept, _, _ = (tokens("add", name, "--file", str(file)).stdout.strip() for name in ("ann2", "ann", "ann"))
    assert tokens("remove", "ann", "--file", str(file)).stdout == "removed 2 of ann\n"
    assert tokens_in(file).current().holder(kept) == "ann2"


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    absent = tokens("remove", "alice", "--file", str(tmp_path / "tokens"))
    assert (absent.exit_code, "has no token of alice" in absent.stderr) == (1, True)
    unfit = tokens("add", "a\nb", "--file", str(tmp_path / "tokens"))
    assert (unfit.exit_code, "must be a printable name" in unfit.stderr) == (2, True)
    nowhere = tokens("add", "alice", "--file", str(tmp_path / "no" / "tokens"))
    assert (nowhere.exit_code, "cannot be written" in nowhere.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_tokens_is_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    line = line_of("alice", "token")
    file.write_text(f"# people\n\n   # and nobody else\n  {line}  \n")
    assert tokens_in(file).current().holder("token") == "alice"
    digest = line.split()[0]
    for odd in (f"{digest} {'n' * 201}", f"{digest} #n", digest, line.upper(), f"{line}\n{digest} bob"):
        file.write_text(odd)
        with pytest.raises(FileSettingError, match="bearer_tokens_file"):
            tokens_in(file)
