"""Checkpoint files in Kafka's text format: a version, the number of entries, one entry per line.

::

    0                        0
    2                        2
    orders 0 1500            3 0
    orders 1 1498            5 1200

Left: an offset checkpoint of a data directory (high watermarks, recovery points). Right: the leader epochs of
one replica. A file with a wrong line was damaged or edited, and its other lines may be wrong too. So the whole
file is refused, and the caller continues without it. That is safe for all three: a high watermark of 0 rises
again with the ISR, a recovery point of 0 makes recovery check everything, and the batches carry their epochs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from broker_stub.log.epochs import EpochEntry, LeaderEpochCache
from broker_stub.log.errors import CheckpointFault
from broker_stub.log.files import write_atomically

HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
_VERSION = 0
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def read_offsets(path: Path) -> dict[tuple[str, int], int]:
    """Offset by (topic, partition); empty when there is no such file. Raises CheckpointFault."""
    found: dict[tuple[str, int], int] = {}

    def entry(where: str, fields: list[str]) -> None:
        topic, partition, offset = fields
        if not _TOPIC.fullmatch(topic):
            raise CheckpointFault(
                f"{where}: topic is {topic[:80]!r}: must be 1 to 249 letters, digits, '.', '_' or '-'"
            )
        key = topic, _number(where, "partition", partition, _INT32_MAX)
        if key in found:
            raise CheckpointFault(
                f"{where}: partition {topic}-{partition} is listed twice: must be listed once"
            )
        found[key] = _number(where, "offset", offset, _INT64_MAX)

    _read(path, ("topic", "partition", "offset"), entry)
    return found


def write_offsets(path: Path, offsets: Mapping[tuple[str, int], int]) -> None:
    """Replace the file durably. Raises OSError."""
    _write(path, (f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets.items()))


def read_epochs(path: Path) -> tuple[EpochEntry, ...] | None:
    """A replica's leader epochs; None when there is no such file. Raises CheckpointFault."""
    found: list[EpochEntry] = []

    def entry(where: str, fields: list[str]) -> None:
        epoch = _number(where, "epoch", fields[0], _INT32_MAX)
        found.append(EpochEntry(epoch, _number(where, "start offset", fields[1], _INT64_MAX)))
        if problem := LeaderEpochCache(found[-2:-1]).problem_with(found[-1]):
            raise CheckpointFault(f"{where}: {problem}")

    return tuple(found) if _read(path, ("epoch", "start offset"), entry) else None


def write_epochs(path: Path, entries: Iterable[EpochEntry]) -> None:
    """Replace the file durably. Raises OSError."""
    _write(path, (f"{epoch} {start_offset}\n" for epoch, start_offset in entries))


def _write(path: Path, lines: Iterable[str]) -> None:
    entries = list(lines)
    write_atomically(path, f"{_VERSION}\n{len(entries)}\n{''.join(entries)}".encode())


def _read(path: Path, fields: tuple[str, ...], entry: Callable[[str, list[str]], None]) -> bool:
    """Call ``entry`` with the place and the fields of each line. False: there is no such file."""
    try:
        text = path.read_bytes().decode("ascii")
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CheckpointFault(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CheckpointFault(f"{path}: byte {error.start} is not ASCII: must be text") from error
    *lines, rest = text.split("\n")
    if rest or len(lines) < 2:
        raise CheckpointFault(
            f"{path}:{len(lines) + bool(rest)}: truncated: must be a version, a count and entries, "
            "each line ended by a newline"
        )
    _number(f"{path}:1", "version", lines[0], _VERSION)
    count = _number(f"{path}:2", "count", lines[1], _INT32_MAX)
    if count != len(lines) - 2:
        raise CheckpointFault(f"{path}:2: count is {count}: must be {len(lines) - 2}, the number of entries")
    for number, line in enumerate(lines[2:], start=3):
        parts = line.split(" ")
        if len(parts) != len(fields):
            raise CheckpointFault(
                f"{path}:{number}: {line[:80]!r}: must be {', '.join(fields)}, one space between"
            )
        entry(f"{path}:{number}", parts)
    return True


def _number(where: str, field: str, value: str, largest: int) -> int:
    if not _NUMBER.fullmatch(value) or int(value) > largest:
        allowed = "0" if largest == 0 else f"a number from 0 to {largest}"
        raise CheckpointFault(f"{where}: {field} is {value[:80]!r}: must be {allowed}")
    return int(value)
