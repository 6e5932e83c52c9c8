"""A broker's disk in memory: it survives the broker's processes, and fails when told to.

On it the broker's own ``LogDirectory`` runs as it is; `DataDir` and `PartitionLog` have twins here (`SimDataDir`,
`SimLog`), held equal to them by a contract test. What a kill leaves is what was written; what a power cut leaves is
what was flushed, and of the rest as much as is drawn.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from unittest import mock

from broker_stub.control.journal import FILE_NAME, Problem
from broker_stub.control.replicas import Applied, Replica, Role, Step
from broker_stub.control.requests import Key
from broker_stub.data_identity import NO_EPOCH, DataIdentity, kept_all, random_uuid
from broker_stub.errors import DirectoryInUse, SettingError, StorageFault
from broker_stub.log import batches, directory
from broker_stub.log.errors import LogFault
from broker_stub.log.interface import Appended, LogConfig, TimestampOffset
from broker_stub.storage import META_PROPERTIES, PARTITION_METADATA, folder_name, remembered
from proto.incarnations import Incarnation
from tests.support.broker.memory_log import MemoryLog

FAILED = "Input/output error"


@dataclass(eq=False)
class Folder:
    """One partition's. ``content`` is its log as written; below ``flushed_offset`` it is on stable storage."""

    topic_id: str | None = None
    content: SimLog | None = None
    flushed_offset: int = 0
    #: Why it refuses; empty while it does not.
    failure: str = ""


@dataclass(eq=False)
class Disk:
    """What is on it: as in `broker_stub.storage` and `broker_stub.log.directory`."""

    broker_id: int | None = None
    folders: dict[Key, Folder] = field(default_factory=dict)
    states: dict[Key, Replica] = field(default_factory=dict)
    checkpoints: dict[str, dict[Key, int]] = field(default_factory=dict)
    #: As in `broker_stub.data_identity`: its id, the epoch of a clean shutdown, and the machine's boots at the last
    #: start and now.
    directory_id: str | None = None
    cluster_id: str = ""
    clean_epoch: int | None = None
    boot_before: str = ""
    boot_now: str = "0"
    #: Whether the last process flushed each write before it was acknowledged.
    synced: bool = False
    #: Of the broker's processes so far.
    incarnations: list[str] = field(default_factory=list)
    #: Why every write is refused; empty while none is.
    failure: str = ""
    #: Who has it open.
    holder: object = None
    #: Counts disks that were put in the place of the former.
    replaced: int = 0
    #: Told of what a leader appends: partition, topic id, first offset, and the batches as a client sent them.
    on_append: Callable[[Key, str | None, int, bytes], None] = lambda *_: None

    # what happens to it

    def process_killed(self) -> None:
        """All that was written stays; nobody has the disk open any more."""
        self.holder = None

    def power_cut(self, rng: Random) -> int:
        """The machine stops: each log keeps what was flushed and a drawn part of the rest. Records lost."""
        self.holder = None
        self.boot_now = str(int(self.boot_now) + 1)
        lost = 0
        for folder in self.folders.values():
            log = folder.content
            if log is not None and folder.flushed_offset < log.log_end_offset:
                before = log.log_end_offset
                log.cut_power(rng.randint(folder.flushed_offset, before))
                lost += before - log.log_end_offset
        return lost

    def lose(self) -> None:
        """Another disk is in its place, an empty one."""
        self.broker_id, self.cluster_id = None, ""
        self.folders, self.states, self.checkpoints = {}, {}, {}
        self.incarnations = []
        self.directory_id, self.clean_epoch, self.boot_before, self.synced = None, None, "", False
        self.failure = ""
        self.replaced += 1

    @property
    def kept_all(self) -> bool:
        """Whether the next process may take it that nothing is gone."""
        return kept_all(
            clean=self.clean_epoch is not None,
            synced=self.synced,
            boot_before=self.boot_before,
            boot_now=self.boot_now,
        )

    def fail(self, why: str = FAILED) -> None:
        """It refuses to write from here on; what is on it can still be read."""
        self.failure = why

    def fail_log(self, key: Key, why: str = FAILED) -> bool:
        """One partition's files refuse; False when it has none."""
        folder = self.folders.get(key)
        if folder is not None:
            folder.failure = why
        return folder is not None

    def repair(self) -> None:
        """It works again, for whoever opens it next."""
        self.failure = ""
        for folder in self.folders.values():
            folder.failure = ""

    @property
    def failing(self) -> bool:
        return bool(self.failure) or any(folder.failure for folder in self.folders.values())

    def refuse_to_write(self, folder: Folder | None = None) -> None:
        """Raises OSError when the disk, or one of its folders, refuses."""
        if why := self.failure or (folder.failure if folder else ""):
            raise OSError(errno.EIO, why)


class SimDataDir:
    """In the place of `broker_stub.storage.DataDir`."""

    def __init__(
        self, disk: Disk, path: Path, broker_id: int, *, synced: bool = False, incarnation: str = ""
    ) -> None:
        """Raises StorageFault, SettingError."""
        self.path, self._disk = path, disk
        if disk.holder is not None:
            raise DirectoryInUse(f"data directory {path} is in use by another broker")
        if disk.failure:
            raise StorageFault(f"data directory {path} cannot be used: {disk.failure}")
        if disk.broker_id is None:
            disk.broker_id = broker_id
        elif disk.broker_id != broker_id:
            raise SettingError(
                "broker_id",
                broker_id,
                f"{disk.broker_id}: {path / META_PROPERTIES} says this directory is that broker's",
            )
        disk.holder = self
        self.cluster_id = disk.cluster_id
        self.identity = self._identity(disk, synced)
        self.incarnation = Incarnation(
            incarnation or f"{path}-{disk.replaced}-{len(disk.incarnations)}", frozenset(disk.incarnations)
        )
        disk.incarnations.append(self.incarnation.own)
        self._replaced = disk.replaced
        self.problems: list[Problem] = []
        self.found = list(map(self._remembered, disk.folders))
        disk.states = {
            key: state
            for key, folder in disk.folders.items()
            if (state := disk.states.get(key)) is not None and folder.topic_id in (None, state.topic_id)
        }

    @staticmethod
    def _identity(disk: Disk, synced: bool) -> DataIdentity:
        if disk.directory_id is None or not disk.kept_all:
            disk.directory_id = random_uuid()
        epoch = NO_EPOCH if disk.clean_epoch is None else disk.clean_epoch
        disk.boot_before, disk.clean_epoch, disk.synced = disk.boot_now, None, synced
        return DataIdentity(disk.directory_id, epoch)

    def join(self, cluster_id: str) -> None:
        if cluster_id != self.cluster_id and not self.lost():
            self._disk.refuse_to_write()
            self._disk.cluster_id = self.cluster_id = cluster_id

    def stopped_cleanly(self, broker_epoch: int) -> None:
        if not self.lost():
            self._disk.refuse_to_write()
            self._disk.clean_epoch = broker_epoch

    def _remembered(self, key: Key) -> Replica:
        id_, state = self._topic_id(key), self._disk.states.get(key)
        return remembered(
            state if state is not None and state.topic_id == id_ else Replica(*key, topic_id=id_)
        )

    def _topic_id(self, key: Key) -> str | None:
        """The folder's own, or, where it has none, that of the journal."""
        found, state = self._disk.folders[key].topic_id, self._disk.states.get(key)
        if found is not None and state is not None and state.topic_id not in (None, found):
            file = self.path / folder_name(key) / PARTITION_METADATA
            self.problems.append(
                Problem(str(file), f"topic id {found} differs from {FILE_NAME}, {state.topic_id}")
            )
        return found if found is not None or state is None else state.topic_id

    def lost(self) -> str:
        if self._disk.replaced != self._replaced:
            return f"data directory {self.path} was replaced by another one"
        return ""

    def apply(self, steps: Sequence[Step]) -> Applied:
        applied = Applied({})
        if not steps:
            return applied
        if lost := self.lost():
            return Applied({step.key: lost for step in steps if step.folder or step.save}, lost)
        for step in steps:
            if not step.folder:
                continue
            try:
                if step.after is None:
                    self._remove(step.key)
                else:
                    self._make(step.key, step.after.topic_id)
            except OSError as error:
                applied.failed[step.key] = f"{self.path / folder_name(step.key)}: {error.strerror}"
        try:
            self._save([s for s in steps if s.save and s.key not in applied.failed])
            if any(step.folder for step in steps):
                self._disk.refuse_to_write()
        except OSError as error:
            why = f"{self.path / FILE_NAME}: {error.strerror}"
            return Applied({step.key: why for step in steps if step.folder or step.save}, why)
        return applied

    def _save(self, steps: Sequence[Step]) -> None:
        if steps:
            self._disk.refuse_to_write()
        for step in steps:
            if step.after is None or step.after.role is Role.DELETED:
                self._disk.states.pop(step.key, None)
            else:
                self._disk.states[step.key] = step.after

    def _make(self, key: Key, topic_id: str | None) -> None:
        disk = self._disk
        folder = disk.folders.get(key)
        disk.refuse_to_write(folder)
        if folder is None:
            disk.folders[key] = Folder(topic_id)
        elif folder.topic_id not in (None, topic_id):
            raise OSError(0, f"{PARTITION_METADATA} holds topic id {folder.topic_id}, not {topic_id}")
        else:
            folder.topic_id = topic_id

    def _remove(self, key: Key) -> None:
        if key in self._disk.folders:
            self._disk.refuse_to_write()
            del self._disk.folders[key]

    def close(self) -> None:
        if self._disk.holder is self:
            self._disk.holder = None


class SimLog(MemoryLog):
    """In the place of `broker_stub.log.log.PartitionLog`: a log in a folder, as one process has it open."""

    def __init__(self, disk: Disk, folder: Folder, key: Key, path: Path, config: LogConfig) -> None:
        super().__init__(config)
        self._disk, self._folder, self._key, self._path = disk, folder, key, path
        self.problems: list[str] = []
        #: Why the log refuses changes; empty while it does not.
        self.failure = ""
        self._closed = False

    @classmethod
    def open(cls, disk: Disk, key: Key, path: Path, config: LogConfig, recovery_point: int) -> SimLog:
        """Raises LogFault."""
        folder = disk.folders.get(key)
        if folder is None:
            raise LogFault(f"{path}: cannot be opened: [Errno 2] No such file or directory: '{path}'")
        if folder.failure:
            raise LogFault(f"{path}: cannot be opened: {folder.failure}")
        log = cls(disk, folder, key, path, config)
        former, folder.content = folder.content, log
        if former is not None:
            log._take(former)
        if log._end < recovery_point:
            log.problems.append(
                f"{path}: the log ends at offset {log._end}, {recovery_point} was flushed: "
                "records are gone, or it was truncated just before the stop"
            )
        log.flushed_offset = max(min(recovery_point, log._end), log._start)
        return log

    def _take(self, former: SimLog) -> None:
        """What another process has written; an epoch without records never was."""
        self._batches, self._bytes = former._batches, former._bytes
        self._start, self._end = former._start, former._end
        self._epochs = former._epochs
        self._epochs.truncate_from_end(self._end)

    @property
    def recovery_point(self) -> int:
        return self.flushed_offset

    def cut_power(self, offset: int) -> None:
        """What was written behind this offset is gone; nobody has the log open."""
        super().truncate_to(offset)

    @contextmanager
    def _changing(self, what: str) -> Iterator[None]:
        if self.failure:
            raise LogFault(self.failure)
        try:
            self._disk.refuse_to_write(self._folder)
        except OSError as error:
            self.failure = f"{self._path}: {what}: {error}"
            raise LogFault(self.failure) from error
        yield

    def append_as_leader(self, records: bytes, leader_epoch: int) -> Appended:
        appended = super().append_as_leader(records, leader_epoch)
        self._disk.on_append(self._key, self._folder.topic_id, appended.first_offset, records)
        return appended

    def _store(self, data: bytes, found: list[batches.Batch]) -> Appended:
        if not found:
            return Appended(self._end, self._end)
        with self._changing("append"):
            return super()._store(data, found)

    def read(self, offset: int, max_bytes: int, upto_offset: int) -> bytes:
        self._refuse_reading()
        return super().read(offset, max_bytes, upto_offset)

    def offset_for_timestamp(self, timestamp_ms: int, upto_offset: int) -> TimestampOffset | None:
        self._refuse_reading()
        return super().offset_for_timestamp(timestamp_ms, upto_offset)

    def _refuse_reading(self) -> None:
        if self._closed:
            raise LogFault(f"{self._path}: the log is closed")

    def truncate_to(self, offset: int) -> bool:
        if offset < self._start:
            self.truncate_fully_and_start_at(offset)
            return True
        if offset < self._end:
            with self._changing(f"truncation to offset {offset}"):
                removed = super().truncate_to(offset)
                self._folder.flushed_offset = min(self._folder.flushed_offset, self._end)
                return removed
        return super().truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        with self._changing(f"truncation to start at offset {offset}"):
            super().truncate_fully_and_start_at(offset)
            self._folder.flushed_offset = offset

    def flush(self) -> None:
        if self.flushed_offset == self._end:
            return
        with self._changing("flush"):
            super().flush()
            self._folder.flushed_offset = self._end

    def close(self, *, flush: bool = True) -> None:
        try:
            if flush and not self.failure:
                self.flush()
        finally:
            self._closed = True
            self.failure = self.failure or f"{self._path}: the log is closed"


@contextmanager
def log_directories_on(disk_at: Callable[[Path], Disk]) -> Iterator[None]:
    """Within it every ``LogDirectory`` is on the disk in memory of its path."""

    def open_log(path: Path, config: LogConfig, recovery_point: int, _files: object) -> SimLog:
        topic, _, number = path.name.rpartition("-")
        return SimLog.open(disk_at(path.parent), (topic, int(number)), path, config, recovery_point)

    def read_offsets(path: Path) -> dict[Key, int]:
        return dict(disk_at(path.parent).checkpoints.get(path.name, {}))

    def write_offsets(path: Path, offsets: Mapping[Key, int]) -> None:
        disk = disk_at(path.parent)
        disk.refuse_to_write()
        disk.checkpoints[path.name] = dict(offsets)

    @contextmanager
    def scandir(path: Path) -> Iterator[list[SimpleNamespace]]:
        folders = disk_at(path).folders
        yield [SimpleNamespace(name=folder_name(key), is_dir=lambda: True) for key in folders]

    with ExitStack() as stack:
        for name, value in (
            ("PartitionLog", SimpleNamespace(open=open_log)),
            ("read_offsets", read_offsets),
            ("write_offsets", write_offsets),
            ("os", SimpleNamespace(scandir=scandir)),
        ):
            stack.enter_context(mock.patch.object(directory, name, value))
        yield
