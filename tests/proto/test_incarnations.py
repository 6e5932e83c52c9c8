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


def test_a_directory_names_its_process_and_nothing_of_the_one_before(tmp_path: Path) -> None:
    (tmp_path / incarnations.LOCK).write_text("4194304999\n")
    descriptor = incarnations.lock(tmp_path)
    try:
        assert (tmp_path / incarnations.LOCK).read_text() == f"{os.getpid()}\n"
    finally:
        os.close(descriptor)


def test_who_finds_a_directory_in_use_keeps_nothing_open(tmp_path: Path) -> None:
    descriptor = incarnations.lock(tmp_path)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(incarnations.InUseError):
        incarnations.lock(tmp_path)
    assert os.listdir("/proc/self/fd") == before
    os.close(descriptor)


def test_an_incarnation_is_on_the_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a machine that loses power takes what its own former self left in ZooKeeper for a stranger's."""
    synced: list[tuple[int, bytes]] = []

    def fsync(descriptor: int) -> None:
        file = tmp_path / incarnations.FORMER
        synced.append((os.fstat(descriptor).st_ino, file.read_bytes() if file.exists() else b""))

    monkeypatch.setattr(os, "fsync", fsync)
    begun = incarnations.begin(tmp_path)
    written = f"{begun.own}\n".encode()
    file, directory = ((tmp_path / name).stat().st_ino for name in (incarnations.FORMER, "."))
    assert synced == [(file, b""), (directory, written)]
