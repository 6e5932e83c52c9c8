"""Topic names (reference, section 7), and external texts and long lists in messages."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Characters of an external text shown in a message.
SHOWN_MAX = 100
#: Broker ids shown in one message.
IDS_SHOWN_MAX = 20
#: Problems listed in one message.
LISTED_MAX = 10
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def topic_name_problem(name: str) -> str | None:
    """Why a name is not a valid topic name, as text; None when it is valid."""
    if name in (".", "..") or not _NAME.fullmatch(name):
        return f"topic name {shown(name)}: must be 1 to 249 of a-z A-Z 0-9 . _ - and not . or .."
    return None


def shown(text: str) -> str:
    """An external text for a message: quoted, and truncated where it is long."""
    if len(text) <= SHOWN_MAX:
        return repr(text)
    return f"{text[:SHOWN_MAX]!r}... ({len(text)} characters)"


def number_in(text: str, most: int) -> int | None:
    """The number from 0 to ``most`` that a text is, in at most ten digits; None: it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= most else None


def name_shown(name: str) -> str:
    """A topic or feature name for a message: unchanged if it is a valid topic name, else ``shown``."""
    return name if topic_name_problem(name) is None else shown(name)


def listed(problems: Sequence[str]) -> str:
    """Problems joined for one message; only the first ``LISTED_MAX``."""
    more = f"; and {len(problems) - LISTED_MAX} more" if len(problems) > LISTED_MAX else ""
    return "; ".join(problems[:LISTED_MAX]) + more


def first_few(names: Sequence[object], most: int, count: int | None = None) -> str:
    """The first ``most`` names for a message, and how many more there are. ``count``: of all, if ``names`` has only the
    first."""
    more = (len(names) if count is None else count) - most
    return ", ".join(map(str, names[:most])) + (f" and {more} more" if more > 0 else "")


def ids_shown(ids: Sequence[int]) -> str:
    """Broker ids for a message; only the first ``IDS_SHOWN_MAX``."""
    more = f" and {len(ids) - IDS_SHOWN_MAX} more" if len(ids) > IDS_SHOWN_MAX else ""
    return f"{list(ids[:IDS_SHOWN_MAX])}{more}"


def counted(count: int, noun: str) -> str:
    """``1 partition``, ``2 partitions``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def counted_are(count: int, noun: str) -> str:
    """``1 partition is``, ``2 partitions are``."""
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"


#: Topics that brokers create for themselves (``org.apache.kafka.common.internals.Topic``).
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
