"""The disk in memory and the real data directory with its logs, driven alike: every answer is the same."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from broker_stub import data_identity
from broker_stub.control.replicas import Replica, Role, Step
from broker_stub.errors import BrokerError, SettingError, StorageFault
from broker_stub.log import batches
from broker_stub.log.directory import LogDirectory
from broker_stub.log.interface import LogConfig
from broker_stub.storage import DataDir
from tests.provers.sim.environment.disk import FAILED, Disk, SimDataDir, log_directories_on

MEMORY_DISK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
KEYS = [("foo", 0), ("foo", 1), ("bar", 0)]
TOPIC_IDS = [None, "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"]
CONFIG = LogConfig(segment_bytes=300, flush_interval_messages=9)
SOME_KEYS = st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True)


def outcome(work: Any, *arguments: Any) -> object:
    """What a call answers, or the kind and words of what it raises."""
    try:
        return work(*arguments)
    except (BrokerError, OSError) as error:
        return type(error), str(error)


@contextmanager
def failing_disk() -> Iterator[None]:
    """The real one refuses to write."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, FAILED)

    with ExitStack() as stack:
        for name in ("mkdir", "rename", "write", "pwrite", "fsync", "fdatasync", "ftruncate"):
            stack.enter_context(mock.patch.object(os, name, refuse))
        yield


class BothDisks(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="disk-contract-", dir=MEMORY_DISK))
        self.path, self.gone = self.folder / "data", self.folder / "gone"
        self.gone.mkdir()
        self.disk = Disk()
        self.boot_id = self.folder / "boot_id"
        self.boot_id.write_text(self.disk.boot_now)
        self.directory_ids: tuple[str, str] = "", ""
        self.open(kept=False)

    def open(self, *, kept: bool = True, synced: bool = False) -> None:
        """A process starts on each. ``kept``: it finds all that was written before."""
        with mock.patch.object(data_identity, "_BOOT_ID_FILE", self.boot_id):
            self.real = DataDir(self.path, 1, synced=synced), LogDirectory(self.path, CONFIG)
        with log_directories_on(lambda _: self.disk):
            sim = SimDataDir(self.disk, self.path, 1, synced=synced)
            self.sim = sim, LogDirectory(self.path, CONFIG)
        identities = self.real[0].identity, self.sim[0].identity
        assert identities[0].previous_broker_epoch == identities[1].previous_broker_epoch
        for before, identity in zip(self.directory_ids, identities, strict=True):
            assert (identity.directory_id == before) == kept
        self.directory_ids = identities[0].directory_id, identities[1].directory_id
        found = [sorted(data.found, key=lambda replica: replica.key) for data, _ in (self.real, self.sim)]
        assert found[0] == found[1]
        # A directory lists its entries in no order.
        assert sorted(self.real[0].problems) == sorted(self.sim[0].problems)
        keys = [replica.key for replica in found[0]]
        self.both_logs("recover", keys)
        assert self.real[1].problems == self.sim[1].problems
        assert self.real[1].high_watermarks == self.sim[1].high_watermarks
        for key in keys:
            self.same_log(key)

    def both_logs(self, method: str, *arguments: Any) -> None:
        with log_directories_on(lambda _: self.disk):
            answer = outcome(getattr(self.sim[1], method), *arguments)
        assert outcome(getattr(self.real[1], method), *arguments) == answer

    def both(self, key: tuple[str, int], method: str, *arguments: Any) -> None:
        logs = self.real[1]._logs.get(key), self.sim[1]._logs.get(key)
        assert (logs[0] is None) == (logs[1] is None)
        if logs[0] is not None:
            answers = [outcome(getattr(log, method), *arguments) for log in logs]
            assert answers[0] == answers[1]
            self.same_log(key)

    def same_log(self, key: tuple[str, int]) -> None:
        ours, theirs = self.sim[1]._logs.get(key), self.real[1]._logs.get(key)
        if ours is None or theirs is None:
            assert ours is theirs
            return
        for name in (
            "log_start_offset", "log_end_offset", "latest_epoch", "size_bytes", "recovery_point", "failure",
        ):  # fmt: skip
            assert getattr(theirs, name) == getattr(ours, name), name
        start = ours.log_start_offset
        assert outcome(theirs.read, start, 10**9, 10**9) == outcome(ours.read, start, 10**9, 10**9)

    def apply(self, steps: Sequence[Step]) -> None:
        assert self.real[0].apply(steps) == self.sim[0].apply(steps)

    @initialize(topic_id=st.sampled_from(TOPIC_IDS), values=st.integers(1, 4))
    def begin(self, topic_id: str | None, values: int) -> None:
        """There is something for the disk to fail with."""
        self.make(KEYS[:2], topic_id, 0)
        for key in KEYS[:2]:
            self.open_log(key)
        self.append(KEYS[0], values, 1)

    @rule(keys=SOME_KEYS, topic_id=st.sampled_from(TOPIC_IDS), epoch=st.integers(0, 3))
    def make(self, keys: list[tuple[str, int]], topic_id: str | None, epoch: int) -> None:
        replicas = [Replica(*key, topic_id=topic_id, role=Role.LEADER, leader_epoch=epoch) for key in keys]
        self.apply([Step(replica.key, None, replica, True, True) for replica in replicas])

    @rule(keys=SOME_KEYS, topic_id=st.sampled_from(TOPIC_IDS), folder=st.booleans())
    def keep(self, keys: list[tuple[str, int]], topic_id: str | None, folder: bool) -> None:
        """States without folders, folders without states."""
        replicas = [Replica(*key, topic_id=topic_id) for key in keys]
        self.apply([Step(replica.key, None, replica, folder, not folder) for replica in replicas])

    @rule(keys=SOME_KEYS, forget=st.booleans())
    def delete(self, keys: list[tuple[str, int]], forget: bool) -> None:
        self.apply([Step(key, Replica(*key), None, True, True) for key in keys])
        self.both_logs("missing")
        if forget:
            for key in keys:
                self.both_logs("forget", key)

    @rule(key=st.sampled_from(KEYS))
    def open_log(self, key: tuple[str, int]) -> None:
        if key in self.disk.folders:
            with log_directories_on(lambda _: self.disk):
                self.sim[1].open(key)
            self.real[1].open(key)
        self.same_log(key)

    @rule(key=st.sampled_from(KEYS), values=st.integers(1, 4), step=st.integers(-1, 2))
    def append(self, key: tuple[str, int], values: int, step: int) -> None:
        if (log := self.sim[1]._logs.get(key)) is not None and key in self.disk.folders:
            records = batches.encode([(None, b"v" * 30)] * values, 5)
            self.both(key, "append_as_leader", records, max((log.latest_epoch or 0) + step, 0))

    @rule(key=st.sampled_from(KEYS), offset=st.integers(0, 12), fully=st.booleans())
    def truncate(self, key: tuple[str, int], offset: int, fully: bool) -> None:
        if key in self.disk.folders:
            self.both(key, "truncate_fully_and_start_at" if fully else "truncate_to", offset)

    @rule(key=st.sampled_from(KEYS))
    def lead_without_writing(self, key: tuple[str, int]) -> None:
        if (log := self.sim[1]._logs.get(key)) is not None:
            self.both(key, "assign_epoch_start", (log.latest_epoch or 0) + 1)

    @rule()
    @precondition(lambda self: self.opened_logs_have_folders())
    def flush(self) -> None:
        self.both_logs("flush")

    def opened_logs_have_folders(self) -> bool:
        return all(key in self.disk.folders for key in self.sim[1]._logs)

    @rule(high_watermark=st.integers(0, 9))
    def checkpoint(self, high_watermark: int) -> None:
        points = self.real[1].recovery_points()
        assert points == self.sim[1].recovery_points()
        self.both_logs("checkpoint", dict.fromkeys(points, high_watermark), points)

    @rule()
    def killed(self) -> None:
        self.kill()

    def kill(self, *, kept: bool = True) -> None:
        self.real[1]._files.close()
        self.real[0].close()
        self.disk.process_killed()
        self.open(kept=kept)

    @rule(reboot=st.booleans(), mark=st.booleans(), synced=st.booleans())
    @precondition(lambda self: self.opened_logs_have_folders())
    def stop(self, reboot: bool, mark: bool, synced: bool) -> None:
        self.both_logs("close", {("foo", 0): 3})
        if mark:
            for data, _ in (self.real, self.sim):
                data.stopped_cleanly(17)
        self.real[0].close()
        self.sim[0].close()
        kept = mark or not reboot or self.disk.synced
        if reboot:
            self.disk.power_cut(Random(0))
            self.boot_id.write_text(self.disk.boot_now)
        self.open(kept=kept, synced=synced)

    @rule(key=st.sampled_from(KEYS), topic_id=st.sampled_from(TOPIC_IDS))
    def refuse(self, key: tuple[str, int], topic_id: str | None) -> None:
        """The disk refuses everything once; then both start again."""
        if self.opened_logs_have_folders():
            # Else the real one alone may still have to sync the folder of a log without records.
            self.both_logs("flush")
        self.disk.fail()
        with failing_disk():
            self.make([key], topic_id, 1)
            self.append(key, 1, 0)
            self.truncate(key, 1, False)
            self.delete([key], False)
            self.both_logs("checkpoint", {}, {})
            if self.opened_logs_have_folders():
                self.both_logs("flush")
        self.disk.repair()
        self.append(key, 1, 0)
        self.kill()

    @rule(while_open=st.booleans())
    def lose(self, while_open: bool) -> None:
        # Not removed: in its background the real one may be at that itself.
        self.path.rename(self.gone / str(len(os.listdir(self.gone))))
        self.path.mkdir()
        self.disk.lose()
        if while_open:
            self.delete([("foo", 0)], False)
            self.both_logs("missing")
            self.both_logs("checkpoint", {("foo", 0): 1}, {})
        self.kill(kept=False)

    def teardown(self) -> None:
        self.real[1]._files.close()
        self.real[0].close()
        shutil.rmtree(self.folder)


BothDisks.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestBothDisks = BothDisks.TestCase


def test_a_disk_has_one_user_and_one_owner(tmp_path: Path) -> None:
    disk = Disk()
    for opened in (lambda id_: DataDir(tmp_path, id_), lambda id_: SimDataDir(disk, tmp_path, id_)):
        first = opened(1)
        with pytest.raises(StorageFault, match="in use by another broker"):
            opened(1)
        first.close()
        with pytest.raises(SettingError, match=r"broker_id = 2: must be 1: .*meta\.properties"):
            opened(2)
    assert disk.holder is None
    disk.fail()
    with pytest.raises(StorageFault, match=f"cannot be used: {FAILED}"):
        SimDataDir(disk, tmp_path, 1)


def test_the_cluster_stays_on_the_disk_until_it_is_lost(tmp_path: Path) -> None:
    path, disk = tmp_path / "data", Disk()
    for opened in (lambda: DataDir(path, 1), lambda: SimDataDir(disk, path, 1)):
        first = opened()
        assert first.cluster_id == ""
        first.join("one")
        first.close()
        again = opened()
        assert again.cluster_id == "one"
        again.close()
    shutil.rmtree(path)
    disk.lose()
    assert DataDir(path, 1).cluster_id == SimDataDir(disk, path, 1).cluster_id == ""


def test_a_power_cut_takes_what_was_not_flushed(tmp_path: Path) -> None:
    ends = set()
    for seed in range(30):
        disk = Disk()
        with log_directories_on(lambda _, disk=disk: disk):  # type: ignore[misc]
            ends.add(_end_after_power_cut(disk, tmp_path, seed))
    assert ends == {2, 3, 4, 5}


def _end_after_power_cut(disk: Disk, path: Path, seed: int) -> int:
    SimDataDir(disk, path, 1).apply([Step(("foo", 0), None, Replica("foo", 0), True, True)])
    log = LogDirectory(path, LogConfig()).open(("foo", 0))
    for number in range(5):
        log.append_as_leader(batches.encode([(None, b"%d" % number)], 5), 1)
        if number == 1:
            log.flush()
    lost = disk.power_cut(Random(seed))
    SimDataDir(disk, path, 1)
    again = LogDirectory(path, LogConfig()).open(("foo", 0))
    assert again.log_end_offset == 5 - lost
    assert again.latest_epoch == 1
    return again.log_end_offset


def test_one_log_that_refuses_is_offline_at_the_next_start(tmp_path: Path) -> None:
    disk = Disk()
    with log_directories_on(lambda _: disk):
        SimDataDir(disk, tmp_path, 1).apply(
            [Step(("foo", n), None, Replica("foo", n), True, True) for n in (0, 1)]
        )
        assert disk.fail_log(("foo", 0))
        assert not disk.fail_log(("bar", 0))
        logs = LogDirectory(tmp_path, LogConfig())
        assert list(logs.recover([("foo", 0), ("foo", 1)])) == [("foo", 0)]
        disk.repair()
        assert LogDirectory(tmp_path, LogConfig()).recover([("foo", 0), ("foo", 1)]) == {}
