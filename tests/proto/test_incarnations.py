"""Who a process is, and whom it continues."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proto import incarnations


def test_a_directory_remembers_its_processes(tmp_path: Path) -> None:
    first = incarnations.begin(tmp_path)
    second = incarnations.begin(tmp_path)
    third = incarnations.begin(tmp_path)
    assert len({first.own, second.own, third.own}) == 3
    assert third.former == {first.own, second.own}
    assert third.includes(first.own)
    assert third.includes(third.own)
    assert not second.includes(third.own)
    assert not third.includes("")
    assert not incarnations.new_incarnation().includes(third.own)


@pytest.mark.parametrize("content", [b"", b"\xff\n" * 1000, b"x" * 1_000_000, b"A" * 32 + b"\n" + b"0" * 31])
def test_what_is_no_incarnation_is_dropped(tmp_path: Path, content: bytes) -> None:
    (tmp_path / incarnations.FORMER).write_bytes(content)
    begun = incarnations.begin(tmp_path)
    assert begun.former == frozenset()
    assert incarnations.begin(tmp_path).former == {begun.own}


def test_few_are_kept(tmp_path: Path) -> None:
    first = incarnations.begin(tmp_path)
    for _ in range(incarnations.KEPT - 1):
        last = incarnations.begin(tmp_path)
    assert first.own in last.former
    assert first.own not in incarnations.begin(tmp_path).former
    assert len((tmp_path / incarnations.FORMER).read_text().splitlines()) == incarnations.KEPT


def test_a_directory_has_one_process(tmp_path: Path) -> None:
    descriptor = incarnations.lock(tmp_path)
    with pytest.raises(incarnations.InUseError, match=f"^process {os.getpid()}$"):
        incarnations.lock(tmp_path)
    os.close(descriptor)
    os.close(incarnations.lock(tmp_path))
