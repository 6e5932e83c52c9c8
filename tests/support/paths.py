"""Where things are in the repository."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def take_away(folder: Path) -> None:
    """Remove a folder that a running process writes to: moved first, for it may make files while others are removed."""
    shutil.rmtree(folder.rename(folder.parents[1] / f"{folder.parent.name}-{folder.name}"))
