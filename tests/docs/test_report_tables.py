"""docs/report.md lists every table that the report writes."""

from __future__ import annotations

import re
from pathlib import Path

from controller.analysis.tables import TABLES

DOCUMENT = Path(__file__).parents[2] / "docs" / "report.md"


def test_every_table_is_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text[text.index("## Tables") :], re.MULTILINE)
    assert sorted(listed) == sorted(spec.name for spec in TABLES)
