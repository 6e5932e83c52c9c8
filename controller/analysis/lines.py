"""Reads records of state-change logs one by one, without Spark: for the logs of a few nodes.

Lines are checked as for the report (``proto.statelog.schema``). Every bad line is reported; reading continues.
"""

from __future__ import annotations

import gzip
import re
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NamedTuple, cast

import msgspec

from controller.analysis.errors import ReportError
from controller.analysis.local_files import LogFile, check_local, has_scheme, list_and_open, walk_local
from proto.statelog.schema import (
    BROKER_ID,
    INT_FIELDS,
    KINDS,
    LIST_FIELDS,
    SCHEMA_VERSION,
    STRING_FIELDS,
    STRINGS_REQUIRED,
    TS_END,
    TS_MIN,
)
from proto.texts import in_words

Record = dict[str, Any]

_TS = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)$"
_TEXTS: dict[str, Any] = {
    "ts": Annotated[str, msgspec.Meta(pattern=_TS)],
    "role": Literal["controller", "broker"],
}
_ROTATED = "%Y%m%dT%H%M%S.%fZ"
_AGE = re.compile(r"(\d{1,9})([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BadLine(NamedTuple):
    """A line that is not a valid record: file, line number from 1 (0: the whole file), and problem."""

    file: str
    number: int
    problem: str

    def __str__(self) -> str:
        return f"{self.file}: " + (f"line {self.number}: " if self.number else "") + self.problem


def find(log_dirs: Sequence[Path | str]) -> list[LogFile]:
    """Every log file in and below local directories, each once; `read` closes them.

    Raises ReportError if a directory is absent or not local, or if there is no log.
    """
    for path in map(str, log_dirs):
        if has_scheme(path):
            raise ReportError(f"{path}: only directories of this machine can be read here")
    check_local(log_dirs)

    def listed() -> list[LogFile]:
        return sorted(
            {file for path in map(str, log_dirs) for file in walk_local(path)}, key=lambda f: f.path
        )

    return list_and_open(listed)


def read(
    files: Sequence[LogFile], on_bad: Callable[[BadLine], None], since_us: int = 0
) -> Iterator[tuple[int, Record]]:
    """Each record with its time, microseconds since 1970, in the order of the files.

    Files rotated before ``since_us`` are skipped.
    """
    for file in files:
        rotated_us = _rotated_us(file)
        if rotated_us is not None and rotated_us < since_us:
            continue
        number = 0
        try:
            with _open(file) as lines:
                for line in lines:
                    number += 1
                    try:
                        yield _decode(line)
                    except ValueError as error:
                        on_bad(BadLine(file.shown, number, str(error)))
                    if not line.endswith(b"\n"):
                        # What follows is its rest: the writer has gone on meanwhile.
                        break
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            on_bad(BadLine(file.shown, number + 1, f"damaged gzip, the rest is left out: {error}"))
        except OSError as error:
            on_bad(BadLine(file.shown, 0, f"unreadable: {error.strerror or error}"))


def _open(file: LogFile) -> IO[bytes]:
    if file.gzipped:
        return cast(IO[bytes], gzip.open(file.shown, "rb"))
    return open(file.shown if file.descriptor is None else file.descriptor, "rb")


def _rotated_us(file: LogFile) -> int | None:
    """When a rotated file was closed, from its name."""
    stamp = file.path.rpartition("/")[2].removeprefix("state-change.").partition(".jsonl")[0]
    try:
        return _micros(datetime.strptime(stamp, _ROTATED).replace(tzinfo=UTC))
    except ValueError:
        return None


def _micros(at: datetime) -> int:
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def time_of(text: str) -> int:
    """RFC 3339 as microseconds since 1970. Raises ValueError, also for a time without an offset from UTC."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("no offset from UTC")
    return _micros(at)


def time_or_age(text: str) -> int:
    """`time_of`, or of an age (``30s``, ``10m``, ``2h``, ``1d``) the time then. Raises ValueError."""
    ago = _AGE.fullmatch(text)
    if ago is None:
        return time_of(text)
    return max(time.time_ns() // 1000 - int(ago[1]) * _UNITS_S[ago[2]] * 1_000_000, 1)


def _decode(line: bytes) -> tuple[int, Record]:
    """The time and the record of a line. Raises ValueError that names the field and the problem."""
    text = line.rstrip(b"\r\n")
    if not text:
        raise ValueError("empty line")
    if text.startswith(b"{") and not text.endswith(b"}"):
        raise ValueError("torn")
    try:
        record = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"not JSON: {in_words(error)}") from None
    if (
        isinstance(record, dict)
        and isinstance(schema := record.get("schema"), int)
        and schema > SCHEMA_VERSION
    ):
        raise ValueError(f"schema version {schema}: newer than {SCHEMA_VERSION}")
    try:
        msgspec.convert(record, _Line)
    except msgspec.ValidationError as error:
        raise ValueError(in_words(error)) from None
    return _checked(record), record


def _checked(record: Record) -> int:
    """Check what types do not cover. Returns the time. Raises ValueError."""
    kind = record["kind"]
    for name in KINDS.get(kind, ()):
        if name not in record:
            raise ValueError(f"{name}: missing")
    if kind == "leader":
        for name in ("from", "to"):
            if not re.fullmatch(BROKER_ID, record[name]):
                raise ValueError(f"{name}: not a broker id")
    try:
        ts_us = time_of(record["ts"])
    except ValueError:
        raise ValueError("ts: not a time in UTC") from None
    if not _TS_MIN_US <= ts_us < _TS_END_US:
        raise ValueError("ts: out of range")
    return ts_us


def _line_type() -> type[msgspec.Struct]:
    fields: list[Any] = []
    for one in INT_FIELDS:
        kind = Annotated[int, msgspec.Meta(ge=one.low, le=one.high)]
        fields.append((one.name, kind) if one.required else (one.name, kind, 0))
    for name in STRING_FIELDS:
        text = _TEXTS.get(name, str)
        # The underscore: some names are Python keywords.
        fields.append((f"{name}_", text) if name in STRINGS_REQUIRED else (f"{name}_", text, ""))
    fields += [(name, list[int], []) for name in LIST_FIELDS]
    return msgspec.defstruct(
        "_Line", fields, kw_only=True, rename={f"{name}_": name for name in STRING_FIELDS}
    )


_Line = _line_type()
_TS_MIN_US, _TS_END_US = (
    _micros(datetime.fromisoformat(day).replace(tzinfo=UTC)) for day in (TS_MIN, TS_END)
)
