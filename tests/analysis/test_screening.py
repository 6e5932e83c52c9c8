"""A look at the bytes of log files, without Spark: which lines may be records, and what is wrong with the whole."""

from __future__ import annotations

import gzip

from controller.analysis.intake.quality import FileRow, overlapping
from controller.analysis.intake.screening import Block, FileCheck, inflate, screen
from tests.support.analysis.verdict_logs import GOOD


def test_a_look_at_the_bytes_tells_lines_that_may_be_records_from_others() -> None:
    good = GOOD.encode()
    for content, records, odd in (
        ([good, good], [0, 1], {}),
        ([b"\xef\xbb\xbf" + good, b"\xef\xbb\xbf" + good], [0], {1: b"\xef\xbb\xbf" + good}),
        ([good[:-9], good, b""], [1], {0: good[:-9]}),
        ([b'{"sche'], [], {0: b'{"sche'}),
        *(
            ([good, foreign, good], [0, 2], {1: foreign})
            for foreign in (
                b"",
                good + b" and more",
                b"garbage",
                b"[" + good + b"]",
                good + b"\r",
                b" " + good,
            )
        ),
        ([good, good.replace(b"Test", b"\xff\xfe")], [0], {1: good.replace(b"Test", b"\xff\xfe")}),
    ):
        raw = b"\n".join(content)
        for size in (1, 7, 1000):
            blocks: list[Block] = []
            check = screen([raw[at : at + size] for at in range(0, len(raw), size)], blocks.append)
            found_odd: dict[int, bytes] = {}
            found: list[int] = []
            at = 0
            for block in blocks:
                found += [at + number for number in block.numbers]
                found_odd |= {at + number: line for number, line in block.odd.items()}
                at += block.lines
            assert (found, found_odd) == (records, odd)
            assert check == FileCheck(len(raw), None, len(records) + len(odd))


def test_gzip_is_inflated_piece_by_piece_whatever_is_wrong_with_it() -> None:
    whole = gzip.compress(b"x" * 5_000_000)
    flipped = bytearray(whole)
    flipped[-6] ^= 0xFF
    sizes = [
        inflate(chunks).size for chunks in ([whole], [whole[:100], whole[100:], gzip.compress(b"more")], [])
    ]
    assert sizes == [5_000_000, 5_000_004, 0]
    assert inflate([whole]).problem is None
    assert inflate([whole[:-9]]).problem == "truncated gzip"
    assert "incorrect data check" in str(inflate([bytes(flipped)]).problem)
    assert "incorrect header check" in str(inflate([b"plain text"]).problem)


def test_a_line_that_a_damage_cut_counts_for_nothing() -> None:
    """Of a file that only ends without a newline the last line counts."""
    lines = b"".join(b'{"schema":%d}\n' % n for n in range(9))
    blocks: list[Block] = []
    cut = inflate([gzip.compress(lines + b'{"schema"')[:-8]], blocks.append)
    assert (cut.problem, cut.lines, sum(block.lines for block in blocks)) == ("truncated gzip", 9, 9)
    assert inflate([gzip.compress(lines + b'{"schema"')]).lines == 10


def test_only_overlapping_files_of_one_node_can_hold_copies() -> None:
    def found(*spans: tuple[str, int, int, int]) -> set[str]:
        rows = [
            FileRow(str(n), 1, 1, 1, 0, 0, 0, None, role, node, first, last)
            for n, (role, node, first, last) in enumerate(spans)
        ]
        return overlapping(rows)

    assert found(("controller", 1, 0, 10), ("controller", 1, 11, 20), ("broker", 1, 5, 15)) == set()
    assert found(("controller", 1, 0, 10), ("broker", 1, 0, 10), ("controller", 1, 5, 6)) == {"0", "2"}
    assert found(("broker", 2, 0, 0), ("broker", 2, 0, 0)) == {"0", "1"}
    # Rotated between lines of one event, and copies of which one has nothing but them.
    assert found(("broker", 2, 0, 5), ("broker", 2, 5, 9), ("broker", 2, 9, 12)) == set()
    assert found(("broker", 2, 0, 5), ("broker", 2, 5, 5)) == {"0", "1"}
    assert found(("broker", 2, 5, 5), ("broker", 2, 5, 9)) == {"0", "1"}
    assert found(("broker", 2, 5, 9), ("broker", 2, 5, 5), ("broker", 3, 5, 9)) == {"0", "1"}
