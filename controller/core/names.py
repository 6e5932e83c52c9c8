"""Names of topics (reference, section 7), and texts from outside in messages."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Characters of a text from outside that a message repeats.
SHOWN_MAX = 100
#: Problems that one message tells of.
LISTED_MAX = 10
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def topic_name_problem(name: str) -> str | None:
    """Why a name is no topic name, in words; None when it is one."""
    if name in (".", "..") or not _NAME.fullmatch(name):
        return f"topic name {shown(name)}: must be 1 to 249 of a-z A-Z 0-9 . _ - and not . or .."
    return None


def shown(text: str) -> str:
    """A text from outside as messages show it: quoted, and only its beginning where it is long."""
    if len(text) <= SHOWN_MAX:
        return repr(text)
    return f"{text[:SHOWN_MAX]!r}... ({len(text)} characters)"


def name_shown(name: str) -> str:
    """A topic or feature as messages name it: as it is, but what no topic can be called as `shown`."""
    return name if topic_name_problem(name) is None else shown(name)


def listed(problems: Sequence[str]) -> str:
    """Problems in one message; of very many only the first."""
    more = f"; and {len(problems) - LISTED_MAX} more" if len(problems) > LISTED_MAX else ""
    return "; ".join(problems[:LISTED_MAX]) + more
