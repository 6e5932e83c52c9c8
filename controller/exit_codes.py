"""Exit codes of every command. 0: done."""

from __future__ import annotations

#: Failed; wrong usage or settings; refused by a safety check.
EXIT_FAILED, EXIT_USAGE, EXIT_REFUSED = 1, 2, 3
