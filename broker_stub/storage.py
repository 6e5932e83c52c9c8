"""A data directory: one folder per partition, read back after a restart.

::

    DIR/.lock                       held while a broker runs
    DIR/.incarnations               of this broker and its former processes (`proto.incarnations`)
    DIR/meta.properties             broker.id, directory.id and cluster.id, as Kafka writes them
    DIR/.kafka_cleanshutdown, .boot-id  how the last process ended (`broker_stub.data_identity`)
    DIR/replica-states.jsonl        the journal (`broker_stub.control.journal`)
    DIR/*-checkpoint                see `broker_stub.log.directory`
    DIR/<topic>-<partition>/        one replica: its log, and partition.metadata with the topic id, as in Kafka
    DIR/<uuid>-delete/              a replica being deleted in the background

Any other entry is reported and skipped; the broker never changes it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import stat
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from broker_stub import data_identity
from broker_stub.control.journal import FILE_NAME, Journal, Problem, read, write_all
from broker_stub.control.replicas import Applied, Replica, Role, Step
from broker_stub.control.requests import TOPIC_ID, Key, topic_name_problem
from broker_stub.data_identity import DataIdentity
from broker_stub.errors import DirectoryInUse, SettingError, StorageFault
from broker_stub.log.directory import OWN_FILES
from broker_stub.log.files import write_atomically
from proto import incarnations

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
_OWN_FILES = (
    OWN_FILES
    | data_identity.FILES
    | {
        META_PROPERTIES,
        f"{META_PROPERTIES}.tmp",
        incarnations.LOCK,
        incarnations.FORMER,
        f"{incarnations.FORMER}.tmp",
        FILE_NAME,
        "replica-states.tmp",
    }
)
_FOLDER = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})\Z", re.DOTALL)
_DELETED_FOLDER = re.compile(r"[0-9a-f]{32}-delete\Z")
_PARTITION_MAX = _ID_MAX = 2**31 - 1


class Contents(NamedTuple):
    """What a data directory holds. ``replicas``: last written states; ``deleted``: folders still to be removed."""

    replicas: dict[Key, Replica]
    deleted: list[Path]
    problems: list[Problem]


def folder_name(key: Key) -> str:
    return f"{key[0]}-{key[1]}"


def parse_folder_name(name: str) -> Key | None:
    """The partition whose folder has this name; None when it is not the name of a partition folder."""
    match = _FOLDER.match(name)
    if match is None or topic_name_problem(match[1]) or int(match[2]) > _PARTITION_MAX:
        return None
    return match[1], int(match[2])


def parse_partition_metadata(content: bytes) -> str | None:
    """The topic id in a ``partition.metadata``; None when the file is empty (the process was killed before the write).

    Raises ValueError.
    """
    if not content:
        return None
    lines = content.decode("utf-8", errors="replace").strip().split("\n")
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    if len(fields) != len(lines) or fields.keys() != {"version", "topic_id"}:
        raise ValueError("must be the two lines 'version: 0' and 'topic_id: <id>'")
    if fields["version"] != "0":
        raise ValueError(f"version is {fields['version'][:80]!r}: must be 0")
    if not TOPIC_ID.match(fields["topic_id"]):
        raise ValueError(f"topic_id is {fields['topic_id'][:80]!r}: must be 22 characters of URL-safe base64")
    return fields["topic_id"]


def read_contents(directory: Path, ignored: Iterable[str] = ()) -> Contents:
    """Read a data directory without changing it. ``ignored``: names of entries that are not ours.

    The folders decide which replicas exist: a journal line without a folder is left from an interrupted
    deletion. If ``partition.metadata`` is unreadable, the topic id comes from the journal; without one there,
    the folder is skipped. Raises OSError when the directory cannot be read.
    """
    states, problems = read(directory / FILE_NAME)
    contents = Contents({}, [], problems)
    skipped = _OWN_FILES | set(ignored)
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name in skipped:
                continue
            key = parse_folder_name(entry.name)
            if _DELETED_FOLDER.match(entry.name):
                contents.deleted.append(Path(entry.path))
            elif key is None or not entry.is_dir():
                problems.append(Problem(entry.path, "not a partition folder, skipped"))
            elif (replica := _read_folder(Path(entry.path), key, states.get(key), problems)) is not None:
                contents.replicas[key] = replica
    return contents


def _read_folder(path: Path, key: Key, state: Replica | None, problems: list[Problem]) -> Replica | None:
    file = path / PARTITION_METADATA
    topic_id: str | None = None
    try:
        topic_id = parse_partition_metadata(file.read_bytes())
    except FileNotFoundError:
        topic_id = None
    except (OSError, ValueError) as error:
        if state is None or state.topic_id is None:
            problems.append(Problem(str(file), f"unreadable, folder skipped: {error}"))
            return None
        problems.append(Problem(str(file), f"unreadable, topic id taken from {FILE_NAME}: {error}"))
    if state is None:
        return Replica(*key, topic_id=topic_id)
    if topic_id is not None and state.topic_id is not None and topic_id != state.topic_id:
        problems.append(Problem(str(file), f"topic id {topic_id} differs from {FILE_NAME}, {state.topic_id}"))
        return Replica(*key, topic_id=topic_id)
    return state if topic_id in (None, state.topic_id) else Replica(*key, topic_id=topic_id)


def remembered(known: Replica) -> Replica:
    """What of a replica survives a start. The next LeaderAndIsr gives it its role; of a topic with an id, none of an
    older state does. With Kafka only topic ids survive, and it takes what a ZooKeeper says that was restored from a
    backup."""
    if known.topic_id is None:
        return Replica(*known.key)
    return Replica(
        *known.key, known.topic_id, Role.NONE, known.leader, known.leader_epoch, known.partition_epoch
    )


class DataDir:
    """The locked data directory of a running broker. Not thread-safe; a background thread removes deleted folders."""

    def __init__(
        self,
        path: Path,
        broker_id: int,
        ignored: Sequence[str] = (),
        *,
        synced: bool = False,
        incarnation: str = "",
    ) -> None:
        """Open or create it. ``ignored``: entries that are not ours (a state log kept inside). ``synced``: logs flush
        each write before it is acknowledged. ``incarnation``: of this process, if it has one already.

        Raises StorageFault when it cannot be used, DirectoryInUse when another broker has locked it, SettingError when
        it belongs to another broker id.
        """
        self.path, self._broker_id = path, broker_id
        self._dir_fd = self._lock_fd = -1
        self._journal: Journal | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._dir_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            self._lock()
            self.identity = self._claim(synced)
            self.incarnation = incarnations.begin(path, incarnation)
            contents = read_contents(path, ignored)
            self._journal = Journal(path / FILE_NAME, contents.replicas)
        except OSError as error:
            self._close_files()
            raise StorageFault(f"data directory {path} cannot be used: {error}") from error
        except BaseException:
            self._close_files()
            raise
        self.problems = contents.problems
        self.found = list(map(remembered, contents.replicas.values()))
        self._to_remove: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        for folder in contents.deleted:
            self._to_remove.put(folder)
        self._remover = threading.Thread(target=self._remove_folders, name="remover", daemon=True)
        self._remover.start()

    def _lock(self) -> None:
        try:
            self._lock_fd = incarnations.lock(self.path)
        except incarnations.InUseError as error:
            raise DirectoryInUse(
                f"data directory {self.path} is in use by another broker ({error})"
            ) from None

    def _claim(self, synced: bool) -> DataIdentity:
        """Raises SettingError, OSError."""
        file = self.path / META_PROPERTIES
        properties = _read_properties(file)
        if properties is not None and (found := _broker_id(file, properties)) != self._broker_id:
            raise SettingError(
                "broker_id", self._broker_id, f"{found}: {file} says this directory is that broker's"
            )
        properties = properties or {}
        #: The cluster that the data belongs to; empty: none yet.
        self.cluster_id = properties.get("cluster.id", "").strip()
        if self.cluster_id and not data_identity.CLUSTER_ID.fullmatch(self.cluster_id):
            what = f"{file}: cluster.id is {self.cluster_id[:80]!r}"
            raise StorageFault(f"{what}: must be {data_identity.CLUSTER_ID_ALLOWED}")
        text = properties.get("directory.id", "").strip()
        directory_id = text if _DIRECTORY_ID.match(text) else None
        identity = data_identity.begin(self.path, directory_id)
        if identity.directory_id != directory_id:
            self._write_properties(identity.directory_id, self.cluster_id)
        data_identity.started(self.path, synced=synced)
        return identity

    def join(self, cluster_id: str) -> None:
        """The data belongs to this cluster from here on. Raises OSError."""
        if cluster_id != self.cluster_id and not self.lost():
            self._write_properties(self.identity.directory_id, cluster_id)
            self.cluster_id = cluster_id

    def _write_properties(self, directory_id: str, cluster_id: str) -> None:
        lines = ["version=0", f"broker.id={self._broker_id}", f"directory.id={directory_id}"]
        if cluster_id:
            lines.append(f"cluster.id={cluster_id}")
        write_atomically(self.path / META_PROPERTIES, "\n".join([*lines, ""]).encode())

    def stopped_cleanly(self, broker_epoch: int) -> None:
        """All logs are flushed and closed, and nothing more is written. Raises OSError."""
        if not self.lost():
            data_identity.stopped_cleanly(self.path, broker_epoch)

    def apply(self, steps: Sequence[Step]) -> Applied:
        """Create, complete and remove folders, then write the new states. All of it is on disk before the response."""
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
                    self._delete(step.key)
                else:
                    self._make(step.key, step.after.topic_id)
            except OSError as error:
                applied.failed[step.key] = f"{self.path / folder_name(step.key)}: {error.strerror or error}"
        try:
            assert self._journal is not None
            self._journal.append(
                step.after or Replica(*step.key, role=Role.DELETED)
                for step in steps
                if step.save and step.key not in applied.failed
            )
            if any(step.folder for step in steps):
                os.fsync(self._dir_fd)
        except OSError as error:
            why = f"{self.path / FILE_NAME}: {error.strerror or error}"
            return Applied({step.key: why for step in steps if step.folder or step.save}, why)
        return applied

    def lost(self) -> str:
        """Why the directory is no longer the one that was opened; empty while it still is."""
        try:
            there, ours = self.path.stat(), os.fstat(self._dir_fd)
        except OSError as error:
            return f"data directory {self.path} is gone: {error.strerror or error}"
        if (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            return f"data directory {self.path} was replaced by another one"
        return ""

    def _make(self, key: Key, topic_id: str | None) -> None:
        name = folder_name(key)
        try:
            os.mkdir(name, dir_fd=self._dir_fd)
        except FileExistsError:
            if self._existing_topic_id(name, topic_id) == topic_id:
                return
        if topic_id is None:
            return
        content = f"version: 0\ntopic_id: {topic_id}\n".encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        fd = os.open(f"{name}/{PARTITION_METADATA}", flags, 0o644, dir_fd=self._dir_fd)
        try:
            write_all(fd, content)
        finally:
            os.close(fd)

    def _existing_topic_id(self, name: str, wanted: str | None) -> str | None:
        """The topic id of an existing folder. Raises OSError when it is another one than ``wanted``."""
        path = self.path / name
        if not path.is_dir():
            raise NotADirectoryError(0, "not a directory")
        try:
            found = parse_partition_metadata((path / PARTITION_METADATA).read_bytes())
        except FileNotFoundError:
            found = None
        except ValueError as error:
            raise OSError(0, f"{PARTITION_METADATA}: {error}") from error
        if found is not None and found != wanted:
            raise OSError(0, f"{PARTITION_METADATA} holds topic id {found}, not {wanted}")
        return found

    def _delete(self, key: Key) -> None:
        """Rename the folder to a name that no partition has; the background thread removes it."""
        name, renamed = folder_name(key), f"{uuid.uuid4().hex}-delete"
        try:
            if not stat.S_ISDIR(os.stat(name, dir_fd=self._dir_fd, follow_symlinks=False).st_mode):
                return  # not ours
            os.rename(name, renamed, src_dir_fd=self._dir_fd, dst_dir_fd=self._dir_fd)
        except FileNotFoundError:
            return
        self._to_remove.put(self.path / renamed)

    def _remove_folders(self) -> None:
        while (path := self._to_remove.get()) is not None:
            if self._closing.is_set():
                return  # the next start removes the rest
            with contextlib.suppress(OSError):  # the next start tries again
                shutil.rmtree(path)

    def close(self) -> None:
        """Release the lock. The next start finishes removals that are still queued."""
        self._closing.set()
        self._to_remove.put(None)
        self._remover.join(10.0)
        self._close_files()

    def _close_files(self) -> None:
        if self._journal is not None:
            self._journal.close()
        for fd in (self._lock_fd, self._dir_fd):
            if fd >= 0:
                os.close(fd)
        self._lock_fd = self._dir_fd = -1


_DIRECTORY_ID = re.compile(r"[A-Za-z0-9_-]{22}\Z")


def _read_properties(file: Path) -> dict[str, str] | None:
    """None: there is no such file. Raises StorageFault."""
    try:
        text = file.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageFault(f"{file}: {error.strerror or error}") from error
    lines = (line.strip() for line in text.splitlines())
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def read_broker_id(directory: Path) -> int | None:
    """The broker id in ``meta.properties``; None when there is no such file.

    Raises StorageFault when the file is unreadable.
    """
    file = directory / META_PROPERTIES
    properties = _read_properties(file)
    return None if properties is None else _broker_id(file, properties)


def _broker_id(file: Path, properties: Mapping[str, str]) -> int:
    """Raises StorageFault."""
    value = properties.get("broker.id", "").strip()
    # Check the length first: int() raises another error for thousands of digits.
    if not (value.isascii() and value.isdigit() and len(value) <= 10 and int(value) <= _ID_MAX):
        raise StorageFault(f"{file}: broker.id is {value[:80]!r}: must be a number from 0 to {_ID_MAX}")
    return int(value)
