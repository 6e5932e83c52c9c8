"""docs/architecture.md: its drawings are what the sources import, and the modules it names are there."""

from __future__ import annotations

import pytest

from tests.support.import_graph import DRAWINGS, PAGE, drawn, order, redrawn


def test_the_drawings_are_what_the_sources_import() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert redrawn(page) == page, "python -m tests.support.import_graph --write"


@pytest.mark.parametrize("prefix", DRAWINGS.values())
def test_no_circles(prefix: str) -> None:
    graph = drawn(prefix)
    assert sum(map(len, order(graph))) == len(graph) > 5


def test_a_circle_is_named() -> None:
    with pytest.raises(ValueError, match=r"a circle among .'a', 'b'."):
        order({"a": {"b"}, "b": {"a"}, "c": set()})
