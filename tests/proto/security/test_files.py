"""Values made of files: made again when one changes, and only then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proto.security import files
from proto.security.files import FileSettingError, FromFiles, read_file


class Made:
    """What two files hold, and how often they were read; no value while one is empty."""

    def __init__(self, tmp_path: Path) -> None:
        self.first, self.second = tmp_path / "first", tmp_path / "second"
        self.times = 0
        self.usable_when_empty = False
        for file in (self.first, self.second):
            write(file, "a", 1)
        self.value = FromFiles([self.first, self.second], self._read)

    def _read(self) -> str:
        self.times += 1
        texts = [
            read_file("setting", file, "a file", secret=False).decode() for file in (self.first, self.second)
        ]
        if not all(texts) and not self.usable_when_empty:
            raise FileSettingError("setting", "", "something")
        return "".join(texts)


def write(file: Path, text: str, at_s: int) -> None:
    """In place, with a time of change as told: the clock of a file system may stand still between two."""
    file.write_text(text)
    os.utime(file, (at_s, at_s))


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_they_are_read_once_until_one_changes(made: Made) -> None:
    assert [made.value.current() for _ in range(3)] == ["aa"] * 3
    assert made.times == 1


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_change_of_either_is_seen_by_its_time_its_size_or_another_file_in_its_place(
    made: Made, which: str, tmp_path: Path
) -> None:
    file = tmp_path / which
    for text, at_s in (("b", 2), ("longer", 2)):
        write(file, text, at_s)
        assert text in made.value.current()
    write(tmp_path / "new", "others", 2)
    (tmp_path / "new").rename(file)
    assert "others" in made.value.current()


def test_one_that_cannot_be_used_is_told_of_once_and_the_last_good_value_stays(made: Made) -> None:
    write(made.first, "", 2)
    with capture_logs() as logs:
        assert [made.value.current() for _ in range(3)] == ["aa"] * 3
    assert [entry["event"] for entry in logs] == ["security_files_not_usable"]
    assert made.times == 2


def test_one_that_can_be_used_later_is_read_without_a_change(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner gave us the right to read it, or the time of its certificate has come."""
    now = [0.0]
    monkeypatch.setattr("proto.security.files.time.monotonic", lambda: now[0])
    write(made.first, "", 2)
    assert made.value.current() == "aa"
    made.usable_when_empty = True
    assert made.value.current() == "aa"
    now[0] += files.AGAIN_S
    with capture_logs() as logs:
        assert [made.value.current() for _ in range(2)] == ["a"] * 2
    assert [entry["event"] for entry in logs] == ["security_files_read"]
    assert made.times == 3


def test_one_that_stays_unusable_is_tried_now_and_then_and_told_of_once(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("proto.security.files.time.monotonic", lambda: now[0])
    write(made.first, "", 2)
    with capture_logs() as logs:
        for now[0] in (0.0, files.AGAIN_S, 2 * files.AGAIN_S):
            assert made.value.current() == "aa"
        assert len(logs) == 1
        write(made.first, "", 3)
        assert made.value.current() == "aa"
    assert len(logs) == 2
    assert made.times == 5


def test_a_reload_reads_once_changed_or_not(made: Made) -> None:
    write(made.first, "b", 2)
    made.value.reload()
    assert (made.value.current(), made.times) == ("ba", 2)
    made.value.reload()
    assert made.times == 3
