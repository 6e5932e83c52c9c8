"""All logs of a data directory: open, recover, checkpoint, flush, close.

::

    DIR/replication-offset-checkpoint       high watermarks
    DIR/recovery-point-offset-checkpoint    offsets below which everything is on stable storage

A log that ends exactly at its recovery point, as after a clean shutdown, is not verified again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from broker_stub.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets, write_offsets
from broker_stub.log.errors import CheckpointFault, LogError
from broker_stub.log.files import FilePool
from broker_stub.log.interface import LogConfig
from broker_stub.log.log import PartitionLog

#: A partition: topic name and partition number.
Key = tuple[str, int]

#: Names of the files that this module writes into the data directory.
OWN_FILES = frozenset({HIGH_WATERMARKS, f"{HIGH_WATERMARKS}.tmp", RECOVERY_POINTS, f"{RECOVERY_POINTS}.tmp"})


class LogDirectory:
    """The open logs below one data directory. Used by one thread at a time.

    ``problems``: text for each defect found while opening. ``high_watermarks``: those of the last checkpoint.
    ``all_flushed``: after `close`, whether every log is on stable storage as a whole.
    """

    def __init__(self, path: Path, config: LogConfig) -> None:
        """Read the checkpoints."""
        self.path, self._config = path, config
        self.problems: list[str] = []
        #: A log failed: what it had written may not be on stable storage.
        self._any_failed = False
        self.all_flushed = False
        self.high_watermarks = self._read(HIGH_WATERMARKS)
        self._recovery_points = self._read(RECOVERY_POINTS)
        self._logs: dict[Key, PartitionLog] = {}
        self._files = FilePool()

    def _read(self, name: str) -> dict[Key, int]:
        try:
            return read_offsets(self.path / name)
        except CheckpointFault as error:
            self.problems.append(f"{error}: continuing without it")
            return {}

    def open(self, key: Key) -> PartitionLog:
        """The log of a partition whose folder exists. The first call opens and recovers it. Raises LogError."""
        log = self._logs.get(key)
        if log is None:
            point = self._recovery_points.pop(key, 0)
            folder = self.path / f"{key[0]}-{key[1]}"
            log = self._logs[key] = PartitionLog.open(folder, self._config, point, self._files)
            self.problems.extend(log.problems)
        return log

    def recover(self, keys: Iterable[Key]) -> dict[Key, str]:
        """Open the logs found at start. Returns the partitions whose log could not be opened, with the reason.

        Checkpoint entries of any other partition are dropped: its replica was deleted since.
        """
        failed: dict[Key, str] = {}
        found = set(keys)
        self.high_watermarks = {key: at for key, at in self.high_watermarks.items() if key in found}
        self._recovery_points = {key: at for key, at in self._recovery_points.items() if key in found}
        for key in sorted(found):
            try:
                self.open(key)
            except LogError as error:
                failed[key] = str(error)
        self._any_failed = bool(failed)
        return failed

    def forget(self, key: Key) -> None:
        """Close the log of a partition whose folder was removed or is no longer used."""
        log = self._logs.pop(key, None)
        if log is not None:
            self._any_failed = self._any_failed or bool(log.failure)
            with contextlib.suppress(LogError):
                log.close(flush=False)

    def missing(self) -> list[Key]:
        """Open logs whose folder no longer exists. Raises OSError when the directory cannot be read."""
        with os.scandir(self.path) as entries:
            present = {entry.name for entry in entries if entry.is_dir()}
        return [key for key in list(self._logs) if f"{key[0]}-{key[1]}" not in present]

    def recovery_points(self) -> dict[Key, int]:
        """For the checkpoint: those of open logs, and those of the last checkpoint for logs not opened yet."""
        return self._recovery_points | {key: log.recovery_point for key, log in self._logs.items()}

    def checkpoint(self, high_watermarks: Mapping[Key, int], recovery_points: Mapping[Key, int]) -> None:
        """Replace both checkpoint files; may run on another thread. Raises OSError."""
        write_offsets(self.path / HIGH_WATERMARKS, high_watermarks)
        write_offsets(self.path / RECOVERY_POINTS, recovery_points)

    def flush(self) -> dict[Key, str]:
        """Flush all logs. Returns the partitions whose log failed, with the reason."""
        failed: dict[Key, str] = {}
        for key, log in list(self._logs.items()):
            try:
                log.flush()
            except LogError as error:
                failed[key] = str(error)
        return failed

    def close(self, high_watermarks: Mapping[Key, int]) -> None:
        """Flush and close all logs, then write both checkpoints. Raises OSError after all logs are closed."""
        unflushed = self.flush()
        points = self.recovery_points()
        for key in list(self._logs):
            self.forget(key)
        self.all_flushed = not unflushed and not self._any_failed
        self._files.close()
        self.checkpoint(high_watermarks, points)
