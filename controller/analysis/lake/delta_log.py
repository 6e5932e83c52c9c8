"""The commits of a Delta Lake table, in plain Python (Delta Transaction Log Protocol, reader 3, writer 7).

A table is a directory of Parquet files and ``_delta_log``, whose numbered JSON files say which of them count. A commit
is one such file, which appears whole or not at all; whoever finds its number taken has lost the race. Every
`CHECKPOINT_EVERY` commits one file (a V2 checkpoint in JSON) tells the whole state; earlier commits go after a day.

What is known of each log file lives in the same commits, as domain metadata. Imports no Spark.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from controller.analysis.lake.errors import LakeError
from controller.analysis.lake.storage import Storage, Stored, now_ms
from proto.texts import in_words

LOG_DIR = "_delta_log"
CHECKPOINT_EVERY = 20
#: How long readers of an earlier version may still open its files.
RETENTION_MS = 24 * 3600 * 1000
PARTITION_COLUMNS = ("day", "kind")
#: It stands for the columns, for what is kept of each log file, and for condensed records.
LAKE_VERSION = 2
_VERSION_KEY = "statelog.lakeVersion"
_LAST_CHECKPOINT = "_last_checkpoint"
_FEATURES = {"readerFeatures": {"v2Checkpoint"}, "writerFeatures": {"v2Checkpoint", "domainMetadata"}}
_PROTOCOL = {"minReaderVersion": 3, "minWriterVersion": 7} | {
    name: sorted(features) for name, features in _FEATURES.items()
}

Action = dict[str, Any]


class _File(msgspec.Struct, rename="camel"):
    path: str
    size: int
    partition_values: dict[str, str | None]


class _Removed(msgspec.Struct, rename="camel"):
    path: str
    deletion_timestamp: int


class _Metadata(msgspec.Struct, rename="camel"):
    schema_string: str
    configuration: dict[str, str] = {}


class _Protocol(msgspec.Struct, rename="camel"):
    reader_features: list[str] = []
    writer_features: list[str] = []


class _Transaction(msgspec.Struct, rename="camel"):
    app_id: str
    version: int


class _Domain(msgspec.Struct, rename="camel"):
    domain: str
    configuration: str
    removed: bool


class _Known(msgspec.Struct, rename="camel"):
    """What is used of an action; others tell nothing."""

    add: _File | UnsetType = UNSET
    remove: _Removed | UnsetType = UNSET
    meta_data: _Metadata | UnsetType = UNSET
    protocol: _Protocol | UnsetType = UNSET
    txn: _Transaction | UnsetType = UNSET
    domain_metadata: _Domain | UnsetType = UNSET


class _Checkpoint(msgspec.Struct):
    path: str


class _LastCheckpoint(msgspec.Struct, rename="camel"):
    version: int
    v2_checkpoint: _Checkpoint


@dataclass
class Snapshot:
    """A version of the table (-1: there is none yet): ``files`` and ``removed`` by path, `add` and `remove` actions;
    ``domains``: domain metadata by name; ``transactions``: last version by application id."""

    version: int = -1
    metadata: Action = field(default_factory=dict)
    protocol: Action = field(default_factory=dict)
    files: dict[str, Action] = field(default_factory=dict)
    removed: dict[str, Action] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)

    def apply(self, action: Action) -> None:
        """Unknown actions tell nothing about the state."""
        name, value = next(iter(action.items()))
        if name == "add":
            self.files[value["path"]] = value
            self.removed.pop(value["path"], None)
        elif name == "remove":
            self.files.pop(value["path"], None)
            self.removed[value["path"]] = value
        elif name == "metaData":
            self.metadata = value
        elif name == "protocol":
            self.protocol = value
        elif name == "txn":
            self.transactions[value["appId"]] = value["version"]
        elif name == "domainMetadata":
            if value["removed"]:
                self.domains.pop(value["domain"], None)
            else:
                self.domains[value["domain"]] = value["configuration"]

    def actions(self, now_ms: int) -> Iterator[Action]:
        """The state as actions, without removals that no reader needs any more."""
        yield {"protocol": self.protocol}
        yield {"metaData": self.metadata}
        for app, version in self.transactions.items():
            yield {"txn": {"appId": app, "version": version}}
        for domain, configuration in self.domains.items():
            yield domain_action(domain, configuration)
        for added in self.files.values():
            yield {"add": added | {"dataChange": False}}
        for removed in self.removed.values():
            if removed["deletionTimestamp"] > now_ms - RETENTION_MS:
                yield {"remove": removed | {"dataChange": False}}

    @property
    def bytes(self) -> int:
        return sum(added["size"] for added in self.files.values())

    @property
    def lake_version(self) -> int:
        return int(self.metadata["configuration"][_VERSION_KEY])


def domain_action(domain: str, configuration: str, *, removed: bool = False) -> Action:
    return {"domainMetadata": {"domain": domain, "configuration": configuration, "removed": removed}}


def add_action(path: str, partition: Mapping[str, str | None], size: int, *, new_data: bool = True) -> Action:
    """``path``: relative to the table. ``partition``: value by partition column."""
    return {
        "add": {
            "path": path,
            "partitionValues": dict(partition),
            "size": size,
            "modificationTime": now_ms(),
            "dataChange": new_data,
        }
    }


def remove_action(added: Action) -> Action:
    kept = {name: added[name] for name in ("path", "partitionValues", "size")}
    return {
        "remove": kept | {"deletionTimestamp": now_ms(), "dataChange": False, "extendedFileMetadata": True}
    }


class DeltaLog:
    """The commits of the table in a storage."""

    def __init__(self, storage: Storage) -> None:
        self.storage, self.shown = storage, storage.shown

    def read(self) -> Snapshot:
        """The newest version. Raises LakeError if commits are missing, unreadable or damaged, or another program's."""
        for attempt in range(3):
            try:
                return self._read()
            except OSError as error:
                # A writer has written a checkpoint and deleted what came before it.
                if attempt == 2 or not isinstance(error, FileNotFoundError):
                    raise LakeError(f"{error.filename}: {error.strerror}") from error
        raise AssertionError("the loop returns or raises")

    def _read(self) -> Snapshot:
        snapshot = Snapshot()
        checkpoint = self._last_checkpoint()
        if checkpoint is not None:
            for action in self._actions(checkpoint.v2_checkpoint.path):
                snapshot.apply(action)
            snapshot.version = checkpoint.version
        versions = sorted(v for v in self._versions() if v > snapshot.version)
        for version in versions:
            if version != snapshot.version + 1:
                raise LakeError(f"{self.shown}: not whole: commit {snapshot.version + 1} is missing")
            for action in self._actions(_name(version)):
                snapshot.apply(action)
            snapshot.version = version
        self._check(snapshot)
        return snapshot

    def create(self, schema: str) -> Snapshot:
        """Make an empty table. ``schema``: Spark's StructType as JSON, which is Delta's."""
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": list(PARTITION_COLUMNS),
            "configuration": {
                _VERSION_KEY: str(LAKE_VERSION),
                "delta.checkpointPolicy": "v2",
                "delta.logRetentionDuration": "interval 1 days",
                "delta.deletedFileRetentionDuration": "interval 1 days",
            },
            "createdTime": now_ms(),
        }
        return self.commit(Snapshot(), [{"protocol": _PROTOCOL}, {"metaData": metadata}], "CREATE TABLE")

    def change_schema(self, snapshot: Snapshot, schema: str, more: Iterable[Action]) -> Snapshot:
        """Give the table the columns of this version; what was written before has null in new ones."""
        configuration = snapshot.metadata["configuration"] | {_VERSION_KEY: str(LAKE_VERSION)}
        metadata = snapshot.metadata | {"schemaString": schema, "configuration": configuration}
        return self.commit(snapshot, [{"metaData": metadata}, *more], "CHANGE SCHEMA")

    def commit(self, before: Snapshot, actions: Iterable[Action], operation: str) -> Snapshot:
        """Make the version after ``before``, all of it or nothing. Out: that version.

        Raises LakeError if another program has committed it: nothing has changed then.
        """
        version, actions = before.version + 1, list(actions)
        about = {"timestamp": now_ms(), "operation": operation, "engineInfo": "pctl lake"}
        # No two commits are equal: whoever reads one knows whether it is his.
        info = {"commitInfo": about | {"txnId": str(uuid.uuid4())}}
        if not self.storage.write_new(f"{LOG_DIR}/{_name(version)}", _lines([info, *actions])):
            raise LakeError(
                f"{self.shown}: version {version} was committed by another program; nothing was written"
            )
        for action in actions:
            before.apply(action)
        before.version = version
        if version and version % CHECKPOINT_EVERY == 0:
            self._checkpoint(before)
        return before

    def sweep(self, snapshot: Snapshot) -> int:
        """Delete Parquet files that no commit names (a writer was killed), or that were removed long ago, and commits
        of long ago that a checkpoint covers. Where there may be another writer, only what is old. For a writer.
        Out: the number of files deleted."""
        oldest_ms = self.storage.now_ms() - RETENTION_MS
        kept = set(snapshot.files)
        kept |= {path for path, gone in snapshot.removed.items() if gone["deletionTimestamp"] > oldest_ms}
        swept = 0
        for file in self._row_files():
            if file.name not in kept and (self.storage.alone or file.changed_ms < oldest_ms):
                self.storage.delete(file.name)
                swept += 1
        checkpoint = self._last_checkpoint()
        if checkpoint is not None:
            newest = f"{LOG_DIR}/{checkpoint.v2_checkpoint.path}"
            for file in self.storage.found(f"{LOG_DIR}/", ".json"):
                number = file.name.removeprefix(f"{LOG_DIR}/")[:20]
                covered = number.isdigit() and int(number) <= checkpoint.version and file.name != newest
                if covered and file.changed_ms < oldest_ms:
                    self.storage.delete(file.name)
        return swept

    def require_no_rows(self) -> None:
        """Raises LakeError if there are files of rows: without commits, `sweep` would delete them all."""
        if (found := next(self._row_files(), None)) is not None:
            raise LakeError(
                f"{self.shown}: {LOG_DIR} is missing or empty, and there are rows ({found.name}): "
                f"restore {LOG_DIR}, or name an empty directory"
            )

    def _row_files(self) -> Iterator[Stored]:
        return self.storage.found("day=", ".parquet")

    def _check(self, snapshot: Snapshot) -> None:
        if snapshot.version < 0:
            return
        version = snapshot.metadata.get("configuration", {}).get(_VERSION_KEY)
        if version is None:
            raise LakeError(f"{self.shown}: a Delta Lake table, but not of state-change logs")
        if not (version.isascii() and version.isdigit() and int(version) <= LAKE_VERSION):
            raise LakeError(
                f"{self.shown}: made by a newer version: lake version {version}, known is {LAKE_VERSION}"
            )
        for name, known in _FEATURES.items():
            foreign = set(snapshot.protocol.get(name, [])) - known
            if foreign:
                raise LakeError(f"{self.shown}: another program has turned on {', '.join(sorted(foreign))}")

    def _checkpoint(self, snapshot: Snapshot) -> None:
        name = f"{snapshot.version:020}.checkpoint.{uuid.uuid4()}.json"
        actions = [{"checkpointMetadata": {"version": snapshot.version}}, *snapshot.actions(now_ms())]
        content = _lines(actions)
        self.storage.write_new(f"{LOG_DIR}/{name}", content)
        about = {
            "version": snapshot.version,
            "size": len(actions),
            "v2Checkpoint": {
                "path": name,
                "sizeInBytes": len(content),
                "modificationTime": now_ms(),
                "nonFileActions": [],
                "sidecarFiles": [],
            },
        }
        self.storage.write(f"{LOG_DIR}/{_LAST_CHECKPOINT}", _lines([about]))

    def _last_checkpoint(self) -> _LastCheckpoint | None:
        name = f"{LOG_DIR}/{_LAST_CHECKPOINT}"
        try:
            return msgspec.json.decode(self.storage.read(name), type=_LastCheckpoint)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = f"damaged, or another program's: {in_words(error)}"
            raise LakeError(f"{self.shown}/{name}: {why}") from None

    def _versions(self) -> Iterator[int]:
        for name in self.storage.names(LOG_DIR):
            if len(name) == 25 and name.endswith(".json") and name[:20].isdigit():
                yield int(name[:20])

    def _actions(self, name: str) -> Iterator[Action]:
        """Of a commit or checkpoint. Raises LakeError if the file is not lines of actions, FileNotFoundError."""
        path, number = f"{self.shown}/{LOG_DIR}/{name}", 0
        try:
            for number, line in enumerate(self.storage.read(f"{LOG_DIR}/{name}").splitlines(), 1):
                action = msgspec.json.decode(line, type=Action)
                if not action:
                    raise LakeError(f"{path}: damaged: line {number} is empty")
                msgspec.convert(action, _Known)
                yield action
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LakeError(f"{path}: damaged: line {number}: {in_words(error)}") from None
        if not number:
            raise LakeError(f"{path}: damaged: it is empty")


def _name(version: int) -> str:
    return f"{version:020}.json"


def _lines(actions: Iterable[Action]) -> bytes:
    return b"".join(json.dumps(action, separators=(",", ":")).encode() + b"\n" for action in actions)
