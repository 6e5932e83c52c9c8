"""External texts in messages: printable, and no longer than they may be."""

from __future__ import annotations

import pytest

from proto.texts import WORDS_MAX, in_words


@pytest.mark.parametrize("more", [0, 1, 5000])
def test_of_a_long_message_begin_and_end_are_told(more: int) -> None:
    """The position comes last."""
    text = "what is wrong: " + "x" * (WORDS_MAX + more - 24) + "at byte 7"
    told = in_words(ValueError(text))
    assert (told[:13], told[-9:]) == ("what is wrong", "at byte 7")
    assert told == text if not more else len(told) == WORDS_MAX + len(" ... ")
