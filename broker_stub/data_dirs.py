"""All data directories of a running broker (JBOD): which of them work, and in which one each replica is.

A new replica goes into the working directory with the fewest, as in Kafka's ``LogManager.nextLogDir``. A directory that
fails stays failed until the broker restarts; its replicas go offline, the others stay (KIP-112).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from broker_stub.control.journal import Problem
from broker_stub.control.replicas import Applied, Replica, Step
from broker_stub.control.requests import Key
from broker_stub.data_identity import NO_EPOCH, UNKNOWN, short_id
from broker_stub.errors import DirectoryInUse, StorageFault
from broker_stub.storage import DataDir, folder_name
from proto.incarnations import Incarnation


class DataDirs:
    """The locked directories. Used by the control thread only, but for `path_of`, `directory_of`, `working` and
    `lost`.

    ``failed``: why each directory that cannot be used failed, at the start or since. ``found``: the replicas on the
    disks at start.
    """

    def __init__(
        self, paths: Sequence[Path], broker_id: int, ignored: Sequence[str] = (), *, synced: bool = False
    ) -> None:
        """Open or create each of them. ``ignored`` and ``synced``: see `DataDir`.

        Raises StorageFault when none can be used, another broker has locked one, a partition is in two of them,
        or two belong to different clusters; SettingError when one belongs to another broker id.
        """
        self._dirs: dict[Path, DataDir] = {}
        self.failed: dict[Path, str] = {}
        self._placed: dict[Key, Path] = {}
        self.problems: list[Problem] = []
        self.found: list[Replica] = []
        try:
            for path in paths:
                self._open(path, broker_id, ignored, synced)
            if not self._dirs:
                raise StorageFault("; ".join(self.failed.values()))
            for path, directory in self._dirs.items():
                self._take(path, directory)
            self.cluster_id = self._common_cluster_id()
        except BaseException:
            self.close()
            raise
        #: Those that the broker registers, whatever becomes of them.
        self.ids = {path: d.identity.directory_id for path, d in self._dirs.items()}
        self._short_ids = {path: short_id(id_) for path, id_ in self.ids.items()}

    def _open(self, path: Path, broker_id: int, ignored: Sequence[str], synced: bool) -> None:
        own = next((d.incarnation.own for d in self._dirs.values()), "")
        try:
            self._dirs[path] = DataDir(path, broker_id, ignored, synced=synced, incarnation=own)
        except DirectoryInUse:
            raise
        except StorageFault as error:
            self.failed[path] = str(error)

    def _take(self, path: Path, directory: DataDir) -> None:
        self.problems += directory.problems
        for replica in directory.found:
            other = self._placed.setdefault(replica.key, path)
            if other != path:
                name = folder_name(replica.key)
                raise StorageFault(
                    f"partition {name} is in two data directories, {other} and {path}: remove the folder of it"
                    " that is not wanted"
                )
            self.found.append(replica)

    def _common_cluster_id(self) -> str:
        """Empty: the data belongs to no cluster yet. Raises StorageFault."""
        found = {directory.cluster_id: path for path, directory in self._dirs.items()}
        found.pop("", None)
        if len(found) > 1:
            texts = [f"{path} to cluster {cluster_id[:80]}" for cluster_id, path in found.items()]
            raise StorageFault(
                f"data directories belong to different clusters (cluster.id in meta.properties): {'; '.join(texts)}"
            )
        return next(iter(found), "")

    def join(self, cluster_id: str) -> list[OSError]:
        """The data belongs to this cluster from here on. Returns why directories could not note it."""
        errors = []
        for path in self.working:
            try:
                self._dirs[path].join(cluster_id)
            except OSError as error:
                errors.append(error)
        return errors

    @property
    def incarnation(self) -> Incarnation:
        found = [directory.incarnation for directory in self._dirs.values()]
        return Incarnation(found[0].own, frozenset().union(*(i.former for i in found)))

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch of the former registration if all directories were left cleanly after it; else -1."""
        epochs = {directory.identity.previous_broker_epoch for directory in self._dirs.values()}
        return epochs.pop() if len(epochs) == 1 and not self.failed else NO_EPOCH

    @property
    def working(self) -> list[Path]:
        return [path for path in self._dirs if path not in self.failed]

    def path_of(self, key: Key) -> Path:
        """Where a hosted replica is."""
        return self._placed[key]

    def directory_of(self, key: Key) -> int:
        """The short id of its directory; 0: the broker has registered only one, so that goes without saying."""
        return self._short_ids[self._placed[key]] if len(self._short_ids) > 1 else UNKNOWN

    def apply(self, steps: Sequence[Step]) -> Applied:
        """See `DataDir.apply`. A directory that turns out to be lost has failed."""
        parts: dict[Path, list[Step]] = {}
        for step in steps:
            for path in self._concerned(step):
                parts.setdefault(path, []).append(step)
        applied = Applied({})
        for path, part in parts.items():
            if path in self.failed:
                applied.failed.update({s.key: self.failed[path] for s in part if s.folder or s.save})
                continue
            done = self._dirs[path].apply(part)
            applied.failed.update(done.failed)
            if done.lost:
                gone = (*applied.gone, *self.fail(path, done.lost))
                applied = Applied(applied.failed, done.lost, gone)
        for step in steps:
            if step.after is None and step.key not in applied.failed:
                self._placed.pop(step.key, None)
        return applied

    def _concerned(self, step: Step) -> Iterable[Path]:
        """The directory of the step's replica. To delete one that is not hosted: each, as an earlier run may have left
        it."""
        path = self._placed.get(step.key)
        if path is None and step.after is None:
            return self.working
        if path is None:
            path = self._placed[step.key] = self._next()
        return (path,)

    def _next(self) -> Path:
        """The working directory with the fewest replicas, the first of several."""
        counts = Counter(self._placed.values())
        return min(self.working or self._dirs, key=counts.__getitem__)

    def lost(self, path: Path) -> str:
        """Why a directory is no longer the one that was opened; empty while it still is."""
        return self._dirs[path].lost()

    def fail(self, path: Path, why: str) -> list[Key]:
        """The directory has failed. Returns its replicas."""
        self.failed.setdefault(path, why)
        return [key for key, placed in self._placed.items() if placed == path]

    def stopped_cleanly(self, flushed: Collection[Path], broker_epoch: int) -> None:
        """Of these directories all logs are flushed and closed, and nothing more is written. Raises OSError."""
        for path in self.working:
            if path in flushed:
                self._dirs[path].stopped_cleanly(broker_epoch)

    def close(self) -> None:
        for directory in self._dirs.values():
            directory.close()
