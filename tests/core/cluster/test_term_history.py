"""The history of leadership: bounded, ended by whoever can, and what a candidate learns of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.cluster.term_history import (
    FLAPPING_MS,
    KEPT_MAX,
    WHY_MAX,
    YIELD_MAX_US,
    TermRecord,
    begun,
    ended,
    failures,
    yields_us,
)
from controller.core.znode_paths import TERM_HISTORY, NodePath
from controller.errors import MalformedError
from controller.runtime.zookeeper import single_codecs


def test_a_term_that_did_not_end_is_ended_by_the_next() -> None:
    terms = begun(begun((), 1, 7, 1000), 2, 8, 5000)
    assert [(t.controller_id, t.from_ms, t.until_ms, t.end_unknown, bool(t.why)) for t in terms] == [
        (1, 1000, 5000, True, True),
        (2, 5000, 0, False, False),
    ]
    done = ended(terms, 8, 6000, "stop requested", requested=True)
    assert done[1] == TermRecord(2, 8, 5000, 6000, True, "stop requested")
    assert ended(done, 8, 9000, "again", requested=False) == done


@given(st.lists(st.booleans(), max_size=300))
def test_it_is_bounded_and_in_order(requested: list[bool]) -> None:
    terms: tuple[TermRecord, ...] = ()
    for epoch, asked in enumerate(requested):
        terms = ended(
            begun(terms, epoch % 3, epoch, epoch * 10), epoch, epoch * 10 + 5, "x" * 999, requested=asked
        )
    assert [t.controller_epoch for t in terms] == list(range(len(requested)))[-KEPT_MAX:]
    assert {len(t.why) for t in terms} <= {WHY_MAX}
    assert len(single_codecs.encode(TERM_HISTORY, terms)) < 900_000


def test_failures_of_a_candidate() -> None:
    now = 10 * FLAPPING_MS
    terms = (
        TermRecord(1, 1, 0, now - FLAPPING_MS, why="long ago"),
        TermRecord(1, 2, now - 9, now - 8, why="lost"),
        TermRecord(1, 3, now - 8, now - 7, requested=True),
        TermRecord(2, 4, now - 7, now - 6, why="lost"),
        TermRecord(1, 5, now - 5),
        TermRecord(1, 6, now, now + FLAPPING_MS, why="by a clock that was ahead"),
    )
    assert failures(terms, 1, now) == 2
    assert failures(terms, 2, now) == 1
    assert [yields_us(n) for n in (0, 1, 2, 3, 9, 10**9)] == [
        0,
        0,
        10**6,
        2 * 10**6,
        YIELD_MAX_US,
        YIELD_MAX_US,
    ]


@pytest.mark.parametrize(
    "bad", [b"", b"{}", b'{"version":1,"terms":[{"controller_id":-1}]}', b'{"version":1,"terms":3}']
)
def test_what_does_not_decode_is_named(bad: bytes) -> None:
    with pytest.raises(MalformedError):
        single_codecs.decode(NodePath(TERM_HISTORY), bad)


def test_it_is_read_as_it_was_written() -> None:
    terms = (TermRecord(1, 2, 3, 4, True, "why"),)
    assert single_codecs.decode(NodePath(TERM_HISTORY), single_codecs.encode(TERM_HISTORY, terms)) == terms


def test_of_too_many_terms_the_newest_are_kept() -> None:
    terms: tuple[TermRecord, ...] = ()
    for epoch in range(KEPT_MAX + 3):
        terms = begun(terms, 1, epoch, epoch + 1)
    assert [t.controller_epoch for t in terms] == list(range(3, KEPT_MAX + 3))
    # Also a controller's own former term is over.
    assert [t.controller_epoch for t in terms if not t.until_ms] == [KEPT_MAX + 2]


def test_only_the_term_that_ends_is_ended() -> None:
    terms = (TermRecord(1, 7, 1000), TermRecord(2, 8, 2000))
    assert [t.until_ms for t in ended(terms, 8, 3000, "r", requested=True)] == [0, 3000]
