"""The logs of all data directories of a broker: each log in the directory where its replica was put."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from broker_stub.log.directory import Key, LogDirectory
from broker_stub.log.errors import LogFault
from broker_stub.log.interface import LogConfig
from broker_stub.log.log import PartitionLog


class LogDirectories:
    """One `LogDirectory` for each data directory. Used by one thread at a time."""

    def __init__(self, paths: Sequence[Path], config: LogConfig, path_of: Callable[[Key], Path]) -> None:
        """Read the checkpoints. ``path_of``: the data directory of a hosted replica."""
        self._by_path = {path: LogDirectory(path, config) for path in paths}
        self._path_of = path_of
        #: Open logs: a replica that is deleted has no directory any more when its log is closed.
        self._opened: dict[Key, LogDirectory] = {}

    @property
    def problems(self) -> list[str]:
        return [problem for directory in self._by_path.values() for problem in directory.problems]

    @property
    def high_watermarks(self) -> dict[Key, int]:
        """The high watermarks in the last checkpoints of all directories."""
        found: dict[Key, int] = {}
        for directory in self._by_path.values():
            found |= directory.high_watermarks
        return found

    def working(self) -> list[LogDirectory]:
        return list(self._by_path.values())

    def drop(self, path: Path) -> list[Key]:
        """The data directory has failed: nothing is written there any more. Returns its open logs, for `forget`."""
        failed = self._by_path.pop(path, None)
        return [key for key, directory in self._opened.items() if directory is failed]

    def open(self, key: Key) -> PartitionLog:
        """The log of a hosted replica. The first call opens and recovers it. Raises LogError."""
        path = self._path_of(key)
        directory = self._by_path.get(path)
        if directory is None:
            raise LogFault(f"{path}: this data directory has failed")
        log = directory.open(key)
        self._opened[key] = directory
        return log

    def recover(self, keys: Iterable[Key]) -> dict[Key, str]:
        """Open the logs found at start. Returns the partitions whose log could not be opened, with the reason."""
        by_path: dict[Path, list[Key]] = {path: [] for path in self._by_path}
        for key in keys:
            by_path[self._path_of(key)].append(key)
        failed: dict[Key, str] = {}
        for path, found in by_path.items():
            directory = self._by_path[path]
            failed |= directory.recover(found)
            self._opened |= dict.fromkeys(found, directory)
        return failed

    def forget(self, key: Key) -> None:
        """Close the log of a partition whose folder was removed or is no longer used."""
        directory = self._opened.pop(key, None)
        if directory is not None:
            directory.forget(key)

    def flush(self) -> dict[Key, str]:
        """Flush all logs. Returns the partitions whose log failed, with the reason."""
        failed: dict[Key, str] = {}
        for directory in self._by_path.values():
            failed |= directory.flush()
        return failed

    def own(self, directory: LogDirectory, of_all: Mapping[Key, int]) -> dict[Key, int]:
        """The entries of replicas in one directory. A replica that was never opened keeps its former one."""
        former, opened = directory.high_watermarks, self._opened
        return {
            k: at
            for k, at in of_all.items()
            if opened.get(k) is directory or (k not in opened and k in former)
        }

    def close(self, high_watermarks: Mapping[Key, int]) -> dict[Path, OSError | None]:
        """Flush and close all logs, then write the checkpoints. Returns the directories in which all is on stable
        storage, and those that failed, with the error."""
        closed: dict[Path, OSError | None] = {}
        for path, directory in self._by_path.items():
            try:
                directory.close(self.own(directory, high_watermarks))
            except OSError as error:
                closed[path] = error
            else:
                if directory.all_flushed:
                    closed[path] = None
        return closed
