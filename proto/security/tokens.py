"""Bearer tokens of people without certificates: a file of names with the SHA-256 of each one's token.

A line is ``sha256:DIGEST NAME``, the digest in lower-case hexadecimal; empty lines and lines that begin with ``#`` are
skipped. A token is random (256 bits), so a plain digest keeps it as safe as a slow one would keep a password.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from proto.security.files import FileSettingError, FromFiles, read_file

SETTING = "bearer_tokens_file"
#: Characters of a token that is looked up, and of a name.
TOKEN_MAX, NAME_MAX = 512, 200
_LINE = re.compile(r"sha256:([0-9a-f]{64}) (\S(?:.*\S)?)")
_NAME = re.compile(rf"(?=.{{1,{NAME_MAX}}}\Z)[^\s#](?:.*\S)?")
_ALLOWED = "lines of sha256:DIGEST NAME"


def new_token() -> str:
    """A random token: 43 characters of A-Z, a-z, 0-9, - and _."""
    return secrets.token_urlsafe(32)


def line_of(name: str, token: str) -> str:
    """The line for a token's holder. Raises ValueError for a name that no line can have."""
    if not _NAME.fullmatch(name) or not name.isprintable():
        raise ValueError(f"a printable name of at most {NAME_MAX} characters that does not begin with #")
    return f"sha256:{_digest(token)} {name}"


def name_in(line: str) -> str | None:
    """The holder's name in a line of the file; None: the line has none."""
    found = _LINE.fullmatch(line.strip())
    return found[2] if found else None


class Tokens:
    """Whose token it is. ``holders``: names by digest."""

    def __init__(self, holders: Mapping[str, str]) -> None:
        #: By the beginning of the digest, so that the time to find one tells nothing but that.
        self._holders: dict[str, list[tuple[str, str]]] = {}
        for digest, name in holders.items():
            self._holders.setdefault(digest[:8], []).append((digest, name))

    def holder(self, token: str) -> str | None:
        """The name of a token's holder; None: nobody's."""
        if not 0 < len(token) <= TOKEN_MAX:
            return None
        asked, found = _digest(token), None
        for digest, name in self._holders.get(asked[:8], ()):
            if hmac.compare_digest(digest, asked):
                found = name
        return found


def tokens_in(path: Path) -> FromFiles[Tokens]:
    """The tokens of a file. Raises FileSettingError."""
    return FromFiles([path], lambda: _read(path))


def _read(path: Path) -> Tokens:
    try:
        lines = read_file(SETTING, path, "a file of tokens", secret=True).decode().splitlines()
    except UnicodeDecodeError:
        raise FileSettingError(SETTING, str(path), f"a file with {_ALLOWED}, in UTF-8") from None
    holders: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None or not _NAME.fullmatch(found[2]):
            raise FileSettingError(SETTING, str(path), f"a file with {_ALLOWED} (line {number} is not one)")
        if found[1] in holders:
            raise FileSettingError(
                SETTING, str(path), f"a file with each token once (line {number} has one again)"
            )
        holders[found[1]] = found[2]
    return Tokens(holders)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
