"""Names of topics (reference, section 7)."""

from __future__ import annotations

import re

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def topic_name_problem(name: str) -> str | None:
    """Why a name is no topic name, in words; None when it is one."""
    if name in (".", "..") or not _NAME.fullmatch(name):
        return f"topic name {name!r}: must be 1 to 249 of a-z A-Z 0-9 . _ - and not . or .."
    return None
