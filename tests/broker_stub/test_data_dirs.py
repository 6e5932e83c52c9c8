"""Several data directories: where replicas go, and what the failure of one takes with it."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from broker_stub import data_identity, storage
from broker_stub.control.handlers import ControlHandlers
from broker_stub.control.replicas import Replica, Role, Step
from broker_stub.data_dirs import DataDirs
from broker_stub.errors import DirectoryInUse, SettingError, StorageFault
from broker_stub.log.directories import LogDirectories
from broker_stub.log.errors import LogFault
from broker_stub.log.interface import LogConfig
from controller.core.model import of_several
from proto.gen import broker_control_pb2 as wire
from tests.broker_stub.test_storage import _errors
from tests.support.broker.builders import RecordedLog, leader_state, stop_state

STORAGE_ERROR = 56
KEY = ("t", 0)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("a", "b", "c")]


def made(dirs: DataDirs, *keys: tuple[str, int]) -> list[str]:
    """In which directory each of them is put."""
    for key in keys:
        replica = Replica(*key)
        assert dirs.apply([Step(key, None, replica, True, True)]).failed == {}
    return [dirs.path_of(key).name for key in keys]


def test_a_replica_goes_where_the_fewest_are(paths: list[Path]) -> None:
    dirs = DataDirs(paths, 1)
    assert made(dirs, *(("t", n) for n in range(4))) == ["a", "b", "c", "a"]
    key = ("t", 1)
    dirs.apply([Step(key, Replica(*key), None, True, True)])
    assert made(dirs, ("u", 0)) == ["b"]
    assert dirs.directory_of(("t", 0)) == data_identity.short_id(dirs.ids[paths[0]])
    dirs.close()


def test_each_has_its_own_id_and_all_are_one_process(paths: list[Path]) -> None:
    first = DataDirs(paths, 1)
    own, ids = first.incarnation.own, first.ids
    assert len(set(ids.values())) == 3
    first.close()
    shutil.rmtree(paths[0])
    second = DataDirs(paths, 1)
    assert own in second.incarnation.former
    assert [second.ids[p] == ids[p] for p in paths] == [False, True, True]
    second.close()


def test_what_a_single_directory_has_goes_without_saying(paths: list[Path]) -> None:
    dirs = DataDirs(paths[:1], 1)
    made(dirs, ("t", 0))
    assert dirs.directory_of(("t", 0)) == 0
    dirs.close()


def test_one_that_cannot_be_opened_is_left_out(paths: list[Path]) -> None:
    paths[1].write_text("a file")
    dirs = DataDirs(paths, 1)
    assert dirs.working == [paths[0], paths[2]]
    assert str(paths[1]) in dirs.failed[paths[1]]
    assert made(dirs, *(("t", n) for n in range(4))) == ["a", "c", "a", "c"]
    dirs.close()
    for path in (paths[0], paths[2]):
        shutil.rmtree(path)
        path.write_text("a file")
    with pytest.raises(StorageFault) as raised:
        DataDirs(paths, 1)
    assert all(str(path) in str(raised.value) for path in paths)


def test_all_of_them_belong_to_one_cluster(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    dirs = DataDirs(paths[:1], 1)
    assert dirs.cluster_id == ""
    assert dirs.join("one") == []
    dirs.close()
    dirs = DataDirs(paths, 1)
    assert dirs.cluster_id == "one", "a new directory belongs to none yet"
    monkeypatch.setattr(storage, "write_atomically", _no_space)
    assert [error.errno for error in dirs.join("one")] == [errno.ENOSPC] * 2, "the first has it"
    dirs.fail(paths[1], "gone")
    assert len(dirs.join("one")) == 1
    dirs.close()
    monkeypatch.undo()
    other = DataDirs(paths[2:], 1)
    other.join("two")
    other.close()
    with pytest.raises(StorageFault, match=r"different clusters .*/a to cluster one; .*/c to cluster two"):
        DataDirs(paths, 1)


def _no_space(_file: Path, _data: bytes) -> None:
    raise OSError(errno.ENOSPC, "no space")


def test_who_may_not_have_it(paths: list[Path]) -> None:
    dirs = DataDirs(paths[:2], 1)
    with pytest.raises(DirectoryInUse):
        DataDirs(paths[1:], 1)
    dirs.close()
    with pytest.raises(SettingError, match="is that broker's"):
        DataDirs(paths[1:], 2)
    DataDirs(paths, 1).close()


def test_a_partition_in_two_of_them_is_not_guessed_at(paths: list[Path]) -> None:
    for path in paths[:2]:
        (path / "t-0").mkdir(parents=True)
    with pytest.raises(StorageFault, match=r"t-0 is in two data directories.*remove the folder"):
        DataDirs(paths, 1)


def test_the_failure_of_one_takes_its_replicas_only(paths: list[Path]) -> None:
    dirs, losses = DataDirs(paths[:2], 1), list[str]()
    handlers = ControlHandlers(0, dirs, RecordedLog(), dirs.found, losses.append)
    both = wire.LeaderAndIsrRequest(partition_states=[leader_state(), leader_state(partition=1)])
    assert _errors(handlers, both) == [0, 0]
    shutil.rmtree(paths[0])
    newer = wire.LeaderAndIsrRequest(
        partition_states=[leader_state(leader_epoch=1), leader_state(partition=1, leader_epoch=1)]
    )
    assert _errors(handlers, newer) == [STORAGE_ERROR, 0]
    assert [r.role for r in handlers.replicas] == [Role.OFFLINE, Role.LEADER]
    assert len(losses) == 1
    # What was never here goes to the other one; what may have been in the failed one is not made again.
    fresh = leader_state("fresh")
    for fresh.leader_epoch in (7, 0):
        assert _errors(handlers, wire.LeaderAndIsrRequest(partition_states=[fresh])) == [STORAGE_ERROR]
    fresh.is_new = True
    assert _errors(handlers, wire.LeaderAndIsrRequest(partition_states=[fresh])) == [0]
    assert dirs.path_of(("fresh", 0)) == paths[1]
    stop = wire.StopReplicaRequest(partition_states=[stop_state(partition=1, leader_epoch=-2, delete=True)])
    assert [e.error_code for e in handlers.stop_replica(stop.SerializeToString()).partition_errors] == [0]
    handlers.directory_failed(paths[1], "it failed")
    assert dirs.working == []
    dirs.close()


def test_what_may_be_in_one_that_failed_is_not_said_to_be_deleted(paths: list[Path]) -> None:
    """Whoever asked would forget it, and it would be there when the disk is back."""
    dirs = DataDirs(paths[:2], 1)
    handlers = ControlHandlers(0, dirs, RecordedLog(), dirs.found, list[str]().append)
    known = wire.LeaderAndIsrRequest(partition_states=[leader_state(partition=1)])
    assert _errors(handlers, known) == [0]
    stop = wire.StopReplicaRequest(partition_states=[stop_state(leader_epoch=-2, delete=True)])

    def answer() -> list[int]:
        return [e.error_code for e in handlers.stop_replica(stop.SerializeToString()).partition_errors]

    assert answer() == [0]
    handlers.directory_failed(paths[1], "it failed")
    assert answer() == [STORAGE_ERROR]
    stop.partition_states[0].delete_partition = False
    assert answer() == [0]
    dirs.close()


def test_of_a_replica_begun_beside_a_failed_directory_an_earlier_one_may_be_left(paths: list[Path]) -> None:
    """A controller that takes up a move again says once more that the replica is new."""
    dirs = DataDirs(paths[:2], 1)
    handlers = ControlHandlers(0, dirs, RecordedLog(), dirs.found, list[str]().append)
    handlers.directory_failed(paths[0], "it failed")
    states = [leader_state(leader_epoch=1), leader_state(partition=1)]
    for state in states:
        state.is_new = True
    assert _errors(handlers, wire.LeaderAndIsrRequest(partition_states=states)) == [0, 0]
    stops = [stop_state(partition=number, leader_epoch=-2, delete=True) for number in (0, 1)]
    stop = wire.StopReplicaRequest(partition_states=stops).SerializeToString()
    answers = [e.error_code for e in handlers.stop_replica(stop).partition_errors]
    assert answers == [STORAGE_ERROR, 0], "no earlier one is of a partition in its first leader epoch"
    assert not list(handlers.replicas), "it is gone all the same"
    dirs.close()


def test_only_what_was_left_cleanly_is_marked(paths: list[Path]) -> None:
    dirs = DataDirs(paths, 1)
    dirs.fail(paths[2], "it failed")
    dirs.stopped_cleanly(paths[1:], 7)
    dirs.close()
    marked = [(path / data_identity.CLEAN_SHUTDOWN).exists() for path in paths]
    assert marked == [False, True, False]
    again = DataDirs(paths[1:2], 1)
    assert again.previous_broker_epoch == 7
    again.close()
    again = DataDirs(paths, 1)
    assert again.previous_broker_epoch == -1
    again.close()


@pytest.mark.parametrize(
    "later", ["", "one of another registration", "one not left", "one that cannot be opened"]
)
def test_the_former_registration_is_known_if_all_were_left_after_it(paths: list[Path], later: str) -> None:
    dirs = DataDirs(paths, 1)
    dirs.stopped_cleanly(paths, 7)
    dirs.close()
    if later == "one that cannot be opened":
        shutil.rmtree(paths[0])
        paths[0].write_text("a file")
    elif later:
        alone = DataDirs(paths[:1], 1)
        alone.stopped_cleanly(paths if later == "one of another registration" else (), 9)
        alone.close()
    again = DataDirs(paths, 1)
    assert again.previous_broker_epoch == (data_identity.NO_EPOCH if later else 7)
    again.close()


def test_in_a_directory_that_failed_nothing_is_written_and_its_replicas_stay_there(paths: list[Path]) -> None:
    dirs = DataDirs(paths, 1)
    made(dirs, KEY)
    assert [dirs.fail(paths[0], why) for why in ("first", "second")] == [[KEY]] * 2
    assert dirs.failed == {paths[0]: "first"}
    here = Replica(*KEY)
    for step, failed in (
        (Step(KEY, here, here, False, True), True),
        (Step(KEY, here, here, False, False), False),
        (Step(KEY, here, None, True, True), True),
    ):
        assert dirs.apply([step]).failed == ({KEY: "first"} if failed else {})
        assert dirs.path_of(KEY) == paths[0]
    dirs.close()


def test_of_several_lost_at_once_all_replicas_are_gone(paths: list[Path]) -> None:
    dirs = DataDirs(paths, 1)
    keys = [("t", n) for n in range(3)]
    made(dirs, *keys)
    for path in paths[:2]:
        shutil.rmtree(path)
    applied = dirs.apply([Step(key, Replica(*key), Replica(*key), False, True) for key in keys])
    assert (list(applied.failed), list(applied.gone), bool(applied.lost)) == (keys[:2], keys[:2], True)
    assert dirs.working == [paths[2]]
    dirs.close()


def test_a_deleted_replica_is_nowhere_and_one_left_by_an_earlier_run_is_deleted_wherever_it_is(
    paths: list[Path],
) -> None:
    dirs = DataDirs(paths, 1)
    made(dirs, KEY)
    dirs.apply([Step(KEY, Replica(*KEY), None, True, True)])
    with pytest.raises(KeyError):
        dirs.path_of(KEY)
    (paths[1] / "t-0").mkdir()
    assert dirs.apply([Step(KEY, None, None, True, True)]).failed == {}
    assert [(path / "t-0").exists() for path in paths] == [False] * 3
    dirs.close()


def test_logs_and_checkpoints_are_where_the_replicas_are(paths: list[Path]) -> None:
    dirs = DataDirs(paths[:2], 1)
    keys = [("t", n) for n in range(4)]
    made(dirs, *keys)
    logs = LogDirectories(dirs.working, LogConfig(), dirs.path_of)
    assert logs.recover(keys) == {}
    marks = {key: n for n, key in enumerate(keys)}
    assert logs.close(marks) == {paths[0]: None, paths[1]: None}
    again = LogDirectories(dirs.working, LogConfig(), dirs.path_of)
    again.recover(keys)
    assert again.high_watermarks == marks
    first, second = again.working()
    assert again.own(first, marks) == {("t", 0): 0, ("t", 2): 2}
    assert again.own(second, marks) == {("t", 1): 1, ("t", 3): 3}
    assert sorted(again.drop(paths[0])) == [("t", 0), ("t", 2)]
    with pytest.raises(LogFault, match="failed"):
        again.open(("t", 0))
    shutil.rmtree(paths[1] / "t-1")
    assert second.missing() == [("t", 1)]
    dirs.close()


def test_a_directory_with_a_log_that_failed_is_not_told_as_closed(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name / "t-0").mkdir(parents=True)
    place = {("t", 0): tmp_path / "a"}
    logs = LogDirectories([tmp_path / "a", tmp_path / "b"], LogConfig(), place.__getitem__)
    logs.open(("t", 0)).failure = "the disk is broken"
    assert logs.close({}) == {tmp_path / "b": None}


def test_a_replica_put_elsewhere_is_in_the_checkpoint_of_its_present_directory_only(tmp_path: Path) -> None:
    """Else a later start may take the high watermark of a log that was deleted."""
    a, b = (tmp_path / name for name in "ab")
    place = {KEY: a}
    for path in (a, b):
        (path / "t-0").mkdir(parents=True)
    logs = LogDirectories([a, b], LogConfig(), place.__getitem__)
    logs.recover([KEY])
    assert logs.close({KEY: 7}) == {a: None, b: None}

    logs = LogDirectories([a, b], LogConfig(), place.__getitem__)
    logs.recover([KEY])
    logs.forget(KEY)
    place[KEY] = b
    logs.open(KEY)
    first, second = logs.working()
    assert (logs.own(first, {KEY: 0}), logs.own(second, {KEY: 0})) == ({}, {KEY: 0})
    logs.close({KEY: 0})


def test_a_broker_that_ends_before_it_opened_its_logs_keeps_their_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    for recovered in (True, False):
        logs = LogDirectories([tmp_path], LogConfig(), lambda _: tmp_path)
        if recovered:
            logs.recover([KEY])
        logs.close({KEY: 7} if recovered else logs.high_watermarks)
    assert LogDirectories([tmp_path], LogConfig(), lambda _: tmp_path).high_watermarks == {KEY: 7}


@pytest.mark.parametrize("directories", [(), (5,), (7, 5), (1, 2**32 - 1, 12345)])
def test_broker_and_controller_name_a_whole_broker_alike(directories: tuple[int, ...]) -> None:
    assert data_identity.of_broker(directories) == of_several(directories)
    assert of_several(directories[::-1]) == of_several(directories)
