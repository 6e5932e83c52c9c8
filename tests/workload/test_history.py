"""Histories as files."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.errors import MalformedError
from controller.workload.history import (
    Begun,
    Content,
    Ended,
    HistoryFile,
    Line,
    Noted,
    Read,
    Tail,
    Write,
    collect,
    content_of,
    load,
    value_of,
)

LINES: list[Line] = [
    Begun(1, 0, "t", 2, 77, 10),
    Begun(1, 1, "t", 2, 78, 11),
    Read(4, "t", 2, 0, 1, 0, 77, 1, 13),
    Ended(1, 0, 2, 14, 0),
    Noted("a leader died", 15),
    Begun(1, 2, "t", 0, 79, 16),
    Ended(1, 1, 1, 17, error="REQUEST_TIMED_OUT"),
]


def save(path: Path, lines: list[Line]) -> None:
    history = HistoryFile(path)
    for line in lines:
        history.add(line)
    history.close()


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history.jsonl"
    save(path, LINES)
    found = load(path)
    assert found == collect(LINES)
    assert found.writes == (
        Write(1, 0, "t", 2, 77, 2, 0, 10, 14),
        Write(1, 1, "t", 2, 78, 1, None, 11, 17),
        Write(1, 2, "t", 0, 79, None, None, 16, 0),
    )
    assert found.reads == (LINES[2],)
    assert [note.text for note in found.notes] == ["a leader died"]


def test_what_was_flushed_is_there_and_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = HistoryFile(path)
    for line in LINES:
        history.add(line)
    history.flush()
    assert load(path) == collect(LINES)
    history.close()
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines(keepends=True)[-1])):
        path.write_bytes(whole[:-cut])
        assert load(path) == collect(LINES[:-1])
    save(path, LINES[-1:])
    assert load(path) == collect(LINES)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"what":"read"}\n', "missing required field"),
        (b'{"what":"danced"}\n', "Invalid value 'danced'"),
        (b"\xff\n", "line begins"),
        (b'{"what":"ended","writer":1,"sequence":-1,"attempts":1,"at_us":1}\n', ">= 0"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: bytes, problem: str) -> None:
    path = tmp_path / "history"
    save(path, LINES[:1])
    path.write_bytes(path.read_bytes() + text)
    with pytest.raises(MalformedError, match=problem) as raised:
        load(path)
    assert raised.value.path == f"{path}:2"


def test_ends_and_beginnings_must_fit() -> None:
    with pytest.raises(MalformedError, match="record 0 ended but never began"):
        collect([LINES[3]])
    with pytest.raises(MalformedError, match="record 0 was begun twice"):
        collect([LINES[0], LINES[0]])


@given(st.integers(0, 10**6), st.integers(0, 10**9), st.integers(0, 300))
def test_a_value_says_which_record_it_is(writer: int, sequence: int, size: int) -> None:
    value = value_of(writer, sequence, size)
    found = content_of(value)
    assert (found.writer, found.sequence) == (writer, sequence)
    assert len(value) == max(size, len(f"w{writer}-{sequence}-"))
    assert content_of(value + b"!").crc != found.crc
    assert str(found).startswith(f"record {sequence} of writer {writer} ")


@pytest.mark.parametrize("value", [None, b"", b"hello", b"w1-", b"w1-2", b"w-1-2-", b"xw1-2-"])
def test_other_values_are_foreign(value: bytes | None) -> None:
    found = content_of(value)
    assert (found.writer, found.sequence) == (-1, -1)
    assert str(found).startswith("a foreign record")
    assert isinstance(found, Content)


def test_neighbours_are_padded_otherwise() -> None:
    """A part of one that stands in the place of another is seen."""
    for writer in range(3):
        padding = [value_of(writer, n, 100)[len(b"w%d-%d-" % (writer, n)) :][:12] for n in range(30)]
        assert all(a != b for a, b in pairwise(padding))


def test_what_another_process_appends_is_read_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    tail = Tail(path)
    assert tail.new_lines() == []
    lines = [Noted(f"line {n}", n) for n in range(4)]
    texts = [msgspec.json.encode(line) + b"\n" for line in lines]
    path.write_bytes(texts[0] + texts[1] + texts[2][:9])
    assert tail.new_lines() == lines[:2]
    assert tail.new_lines() == []
    path.write_bytes(b"".join(texts[:3]))
    assert tail.new_lines() == lines[2:3]
    path.write_bytes(b"".join(texts))
    assert tail.new_lines() == lines[3:]


def test_the_rest_of_a_line_is_none_where_its_writer_goes_on_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lines = tmp_path / "history", [Noted("first", 1), Noted("second", 2), Noted("third", 3)]
    whole = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    path.write_bytes(whole)

    class Growing(BytesIO):
        """The end of what is there is in the second line, and then further on."""

        def __iter__(self) -> Iterator[bytes]:
            first, second, third = whole.splitlines(keepends=True)
            return iter([first, second[:9], second[9:], third])

    tail = Tail(path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda *_: Growing(whole))
        assert tail.new_lines() == lines[:1]
    assert tail.new_lines() == lines[1:]
