"""Files that settings name and that hold secrets: read when they change, and reported when others may read them."""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Bytes of one file.
FILE_BYTES_MAX = 1_048_576
#: Files that cannot be used are tried again after so many seconds, though none of them changed: somebody may have been
#: given the right to read them, and a certificate's time may have come.
AGAIN_S = 10.0


def _log() -> Any:
    # Not imported above: tools without such files start faster.
    import structlog

    return structlog.get_logger(__name__)


class FileSettingError(ValueError):
    """A file that a setting names cannot be used: ``key`` and ``value`` of the setting, and what is ``allowed``."""

    def __init__(self, key: str, value: str, allowed: str) -> None:
        self.key, self.value, self.allowed = key, value, allowed
        super().__init__(f"{key} = {value!r}: must be {allowed}")


class FromFiles(Generic[T]):
    """A value made of files, made again when one of them changes.

    ``make`` raises FileSettingError. At the start that error is the caller's; later it is logged, and the last good
    value stays in use.
    """

    def __init__(self, files: Sequence[Path], make: Callable[[], T]) -> None:
        self._files, self._make = tuple(files), make
        #: Why the files cannot be used, and when to try again by the monotonic clock; empty: they can.
        self._unusable, self._again_at = "", math.inf
        self.reload()

    def current(self) -> T:
        """The value for a new connection. Costs one ``stat`` a file while nothing changes."""
        changed = self._signature() != self._seen
        if changed or time.monotonic() >= self._again_at:
            said = "" if changed else self._unusable
            try:
                self.reload()
            except FileSettingError as error:
                if self._unusable != said:
                    _log().error("security_files_not_usable", why=str(error), kept="what was read before")
            else:
                _log().info("security_files_read", files=[str(file) for file in self._files])
        return self._value

    def reload(self) -> None:
        """Make the value again, changed or not. Raises FileSettingError: the last good value stays in use."""
        self._seen = self._signature()
        try:
            self._value = self._make()
        except FileSettingError as error:
            self._unusable, self._again_at = str(error), time.monotonic() + AGAIN_S
            raise
        self._unusable, self._again_at = "", math.inf

    def _signature(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_of_file, self._files))


def _of_file(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_file(setting: str, path: Path, what: str, *, secret: bool) -> bytes:
    """A file's content. Raises FileSettingError. ``secret``: log a warning if other users may read it."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
            others = os.fstat(file.fileno()).st_mode & stat.S_IROTH
    except OSError as error:
        raise FileSettingError(setting, str(path), f"{what} that can be read ({error.strerror})") from None
    if len(content) > FILE_BYTES_MAX:
        raise FileSettingError(setting, str(path), f"{what} of at most {FILE_BYTES_MAX} bytes")
    if secret and others:
        _log().warning("secret_readable_by_others", setting=setting, file=str(path))
    return content


def password_in(setting: str, path: Path) -> FromFiles[str]:
    """The password in a file's first line; ``setting``: who names the file. Raises FileSettingError."""

    def read() -> str:
        try:
            lines = read_file(setting, path, "a file", secret=True).decode().splitlines()
        except UnicodeDecodeError:
            lines = []
        if not lines or not lines[0] or "\0" in lines[0]:
            raise FileSettingError(setting, str(path), "a file with the password in its first line, in UTF-8")
        return lines[0]

    return FromFiles([path], read)
