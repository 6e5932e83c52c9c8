"""External data in messages: one printable line, of bounded length, without secrets."""

from __future__ import annotations

#: Characters of a library's error message, which may quote external data.
WORDS_MAX = 300


def printable(text: str) -> str:
    """External text with control characters escaped: it can neither move the cursor nor forge a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def in_words(error: Exception) -> str:
    """A library's error about external data as part of one printable line."""
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    text = str(error)
    if len(text) > WORDS_MAX:
        # The position comes last in the message.
        text = f"{text[: WORDS_MAX // 2]} ... {text[-WORDS_MAX // 2 :]}"
    return printable(text)


def is_secret(setting: str) -> bool:
    """Whether a setting, or a misspelt one, may hold a secret itself: ours name files that do."""
    lower = setting.lower()
    return any(word in lower for word in ("password", "secret", "token", "credential")) and not (
        lower.endswith(("_file", "_ms"))
    )
