"""What explains branches that no seed reaches."""

from __future__ import annotations

import pytest

from tests.provers.sim import reached
from tests.provers.sim.reached import Missing
from tests.provers.sim.unreached import Place, explained, place_of, places
from tests.support.paths import ROOT


def test_each_entry_is_of_a_line_that_there_is_and_says_why() -> None:
    """Whoever changes such a line looks at its reason again."""
    gone = [place for place in explained() if place not in places(place.file)]
    assert not gone, gone
    assert all(len(reason.split()) > 3 for reason in explained().values())


def test_a_place_is_known_by_the_innermost_function() -> None:
    file, text = "controller/core/partitions/lost_data.py", "lacking = looked_at.get(key)"
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    line = next(number for number, found in enumerate(lines, 1) if text in found)
    assert place_of(file, line) == Place(file, "_Removal.concerned", text)
    assert place_of(file, 1).function == ""


def test_the_report_names_what_is_neither_reached_nor_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known, unknown = Place("a.py", "f", "if x:"), Place("a.py", "f", "if y:")
    never, whole = Place("a.py", "g", "if z:"), Place("b.py", "*", "*")
    monkeypatch.setattr(reached, "explained", lambda: {known: "no x", never: "no z", whole: "no b"})
    missing = [
        Missing(known, 3, "4"),
        Missing(unknown, 5, "the end"),
        Missing(Place("b.py", "h", "if v:"), 7, "8"),
    ]
    reached.tell(missing, {"a.py", "b.py"})
    said = capsys.readouterr().out
    assert "a.py:5 never to the end: if y:" in said
    assert "a.py:3" not in said
    assert "1 branch is neither reached nor explained, 2 are explained" in said
    assert "b.py" not in said
    assert "explained, but reached: a.py, g: if z:" in said
