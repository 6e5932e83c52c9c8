"""The data directory: what is written is found again, what is broken is named, skipped and left alone."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_stub import data_identity
from broker_stub.control import journal
from broker_stub.control.gates import ControllerTerm
from broker_stub.control.handlers import ControlHandlers
from broker_stub.control.journal import FILE_NAME, Journal, read
from broker_stub.control.replicas import Replica, Replicas, Role, Step
from broker_stub.control.requests import StopReplica
from broker_stub.data_dirs import DataDirs
from broker_stub.errors import SettingError, StorageFault
from broker_stub.storage import (
    DataDir,
    folder_name,
    parse_folder_name,
    parse_partition_metadata,
    read_contents,
)
from proto.gen import broker_control_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.support.broker.builders import ID_X, ID_Y, BrokerHarness, RecordedLog, leader_state, stop_state
from tests.support.broker.unsynced_names import unsynced_names

Opener = Callable[[], DataDir]


def until(reached: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def opener(tmp_path: Path) -> Iterator[Opener]:
    """Opens the directory, as a broker's start does; closes whatever a test left open."""
    opened: list[DataDir] = []

    def open_it() -> DataDir:
        while opened:
            opened.pop().close()
        opened.append(DataDir(tmp_path / "data", 1, ["state-log"]))
        return opened[-1]

    yield open_it
    while opened:
        opened.pop().close()


def make(data: DataDir, *replicas: Replica) -> dict[tuple[str, int], str]:
    return data.apply([Step(replica.key, None, replica, True, True) for replica in replicas]).failed


def delete(data: DataDir, *replicas: Replica) -> dict[tuple[str, int], str]:
    return data.apply([Step(replica.key, replica, None, True, True) for replica in replicas]).failed


LEADER = Replica("foo", 0, ID_X, Role.LEADER, 1, 5, 7, 3, (1, 2), (1, 2, 3), (3,), (2,))
PLAIN = Replica("b-a.r_", 12, None, Role.FOLLOWER, 2, 1)


#: As a restart finds it.
FOUND = Replica("foo", 0, ID_X, Role.NONE, 1, 5, 7)


def test_folders_are_found_again_without_roles(opener: Opener, tmp_path: Path) -> None:
    assert make(opener(), LEADER, PLAIN) == {}
    again = opener()
    assert sorted(again.found, key=lambda r: r.topic) == [
        Replica("b-a.r_", 12),
        FOUND,
    ]
    assert again.problems == []
    file = tmp_path / "data" / "foo-0" / "partition.metadata"
    assert file.read_bytes() == f"version: 0\ntopic_id: {ID_X}\n".encode()
    assert not (tmp_path / "data" / "b-a.r_-12" / "partition.metadata").exists()


def test_the_state_last_written_can_be_read(opener: Opener, tmp_path: Path) -> None:
    data = opener()
    make(data, LEADER, PLAIN)
    assert read_contents(tmp_path / "data").replicas == {LEADER.key: LEADER, PLAIN.key: PLAIN}


def test_a_topic_id_may_come_later(opener: Opener) -> None:
    data = opener()
    make(data, PLAIN)
    with_id = Replica(PLAIN.topic, PLAIN.partition, topic_id=ID_X)
    assert make(data, with_id) == {}
    assert opener().found == [with_id]


def test_a_folder_that_holds_another_topic_is_not_taken_over(opener: Opener) -> None:
    data = opener()
    make(data, LEADER)
    assert "topic id" in make(data, Replica("foo", 0, topic_id=ID_Y))[LEADER.key]
    assert read(data.path / FILE_NAME)[0] == {LEADER.key: LEADER}, "what was refused is no state of it"


def test_names_are_in_the_directory_for_good_before_the_answer(opener: Opener, tmp_path: Path) -> None:
    """A power cut takes back no folder that a controller or leader was told of, and brings none back."""
    with unsynced_names() as unsynced:
        data = opener()
        assert unsynced <= {tmp_path}, "a directory that is gone as a whole gets another id"
        replica = Replica("foo", 0, topic_id=ID_X)
        assert make(data, replica) == {}
        # Its partition.metadata may be gone: the journal has the topic id, too.
        assert unsynced <= {tmp_path, data.path / "foo-0"}
        assert data.apply([Step(replica.key, replica, None, True, True)]).failed == {}
        assert data.path not in unsynced
        data.stopped_cleanly(7)
        assert data.path not in unsynced
        data_identity.started(data.path, synced=False)
        assert data.path not in unsynced, "else the mark of a clean shutdown may come back"


def test_deletion_is_by_name_at_once_and_by_removal_later(opener: Opener, tmp_path: Path) -> None:
    data = opener()
    make(data, LEADER, PLAIN)
    (tmp_path / "data" / "foo-0" / "00000.log").write_bytes(b"data")
    assert delete(data, LEADER) == {}
    assert not (tmp_path / "data" / "foo-0").exists()
    until(lambda: not list((tmp_path / "data").glob("*-delete")))
    data.close()
    assert opener().found == [Replica("b-a.r_", 12)]


def test_a_deletion_cut_short_is_finished_at_the_next_start(opener: Opener, tmp_path: Path) -> None:
    opener().close()
    stray = tmp_path / "data" / f"{'0' * 32}-delete"
    (stray / "inside").mkdir(parents=True)
    data = opener()
    assert data.found == []
    assert data.problems == []
    until(lambda: not stray.exists())


def test_deleting_what_is_not_there_is_fine(opener: Opener) -> None:
    assert delete(opener(), LEADER) == {}


def test_a_file_in_a_folder_s_place_is_a_storage_error_and_survives(opener: Opener, tmp_path: Path) -> None:
    data = opener()
    (tmp_path / "data" / "foo-0").write_text("precious")
    assert LEADER.key in make(data, LEADER, PLAIN)
    assert delete(data, LEADER) == {}
    assert (tmp_path / "data" / "foo-0").read_text() == "precious"
    assert (tmp_path / "data" / "b-a.r_-12").is_dir()


@pytest.mark.parametrize(
    "name",
    ["orders-", "orders-01", "-3", "orders", "a b-1", "..-1", "orders-99999999999", "orders--1x", "orders-٣"],
)
def test_strange_entries_are_named_and_left_alone(opener: Opener, tmp_path: Path, name: str) -> None:
    opener().close()
    (tmp_path / "data" / name).mkdir()
    data = opener()
    assert data.found == []
    assert [problem.path for problem in data.problems] == [str(tmp_path / "data" / name)]
    assert (tmp_path / "data" / name).is_dir()


def test_a_state_log_inside_is_no_strange_entry(opener: Opener, tmp_path: Path) -> None:
    opener().close()
    (tmp_path / "data" / "state-log").mkdir()
    assert opener().problems == []


BAD_METADATA = [
    b"\xff\xfe",
    b"version: 0\n",
    f"version: 1\ntopic_id: {ID_X}\n".encode(),
    b"version: 0\ntopic_id: short\n",
    f"topic_id: {ID_X}".encode(),
    f"version: 0\ntopic_id: {ID_X}\nmore: 1\n".encode(),
    b"\0" * 50,
]


@pytest.mark.parametrize("content", BAD_METADATA)
def test_unreadable_partition_metadata(opener: Opener, tmp_path: Path, content: bytes) -> None:
    """Known by the journal: hosted under its id. Unknown: skipped, and never given to another topic."""
    make(opener(), LEADER)
    file = tmp_path / "data" / "foo-0" / "partition.metadata"
    file.write_bytes(content)
    data = opener()
    assert data.found == [FOUND]
    assert [problem.path for problem in data.problems] == [str(file)]
    data.close()
    (tmp_path / "data" / FILE_NAME).unlink()
    data = opener()
    assert data.found == []
    assert [problem.path for problem in data.problems] == [str(file)]
    assert LEADER.key in make(data, LEADER)


def test_empty_partition_metadata_is_of_a_kill_between_create_and_write(
    opener: Opener, tmp_path: Path
) -> None:
    folder = tmp_path / "data" / "foo-0"
    folder.mkdir(parents=True)
    (folder / "partition.metadata").touch()
    data = opener()
    assert data.found == [Replica("foo", 0)]
    assert make(data, Replica("foo", 0, topic_id=ID_X)) == {}
    assert opener().found == [Replica("foo", 0, topic_id=ID_X)]


def test_the_folder_s_topic_id_counts_over_the_journal_s(opener: Opener, tmp_path: Path) -> None:
    make(opener(), LEADER)
    file = tmp_path / "data" / "foo-0" / "partition.metadata"
    file.write_text(f"version: 0\ntopic_id: {ID_Y}\n")
    data = opener()
    assert data.found == [Replica("foo", 0, topic_id=ID_Y)]
    assert len(data.problems) == 1


def test_a_folder_removed_by_hand_is_forgotten(opener: Opener, tmp_path: Path) -> None:
    make(opener(), LEADER, PLAIN)
    shutil.rmtree(tmp_path / "data" / "foo-0")
    assert opener().found == [Replica("b-a.r_", 12)]


class TestJournal:
    def test_torn_and_malformed_lines_are_named_and_skipped(self, opener: Opener, tmp_path: Path) -> None:
        make(opener(), LEADER, PLAIN)
        path = tmp_path / "data" / FILE_NAME
        whole = path.read_bytes()
        path.write_bytes(b'{"topic":"foo"}\n\xff\xff\n[1]\n\n' + whole + b'{"topic":"foo","parti')
        replicas, problems = read(path)
        assert replicas == {LEADER.key: LEADER, PLAIN.key: PLAIN}
        assert [problem.path for problem in problems] == [f"{path}:{n}" for n in (1, 2, 3, 7)]
        opener()
        assert read(path)[1] == []

    def test_is_rewritten_when_mostly_outdated(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal, "COMPACT_BYTES_MIN", 1000)
        path = tmp_path / FILE_NAME
        log = Journal(path, {})
        for _ in range(100):
            log.append([LEADER, PLAIN])
        assert path.stat().st_size < 2000
        # One of the two follows a rewrite.
        log.append([Replica("foo", 0, role=Role.DELETED)])
        log.append([Replica("new", 0)])
        log.close()
        assert read(path)[0] == {PLAIN.key: PLAIN, ("new", 0): Replica("new", 0)}

    def test_a_rewritten_file_has_what_was_not_appended_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal, "COMPACT_BYTES_MIN", 1000)
        path = tmp_path / FILE_NAME
        log = Journal(path, {PLAIN.key: PLAIN})
        for _ in range(100):
            log.append([LEADER])
        assert path.stat().st_size < 2000
        log.close()
        assert read(path)[0] == {PLAIN.key: PLAIN, LEADER.key: LEADER}

    def test_what_is_small_or_mostly_true_is_not_rewritten(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / FILE_NAME
        log = Journal(path, {})
        sizes = [path.stat().st_size]
        for _ in range(20):
            log.append([LEADER])
            sizes.append(path.stat().st_size)
        monkeypatch.setattr(journal, "COMPACT_BYTES_MIN", 1000)
        log.append([Replica("foo", number) for number in range(50)])
        assert sizes == [number * sizes[1] for number in range(21)]
        assert path.stat().st_size > sizes[-1]
        log.close()

    def test_no_file_stays_open_and_none_is_anybody_s_to_write(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal, "COMPACT_BYTES_MIN", 1000)
        path = tmp_path / FILE_NAME
        before = set(os.listdir("/proc/self/fd"))
        log = Journal(path, {})
        for _ in range(100):
            log.append([LEADER])
        assert len(set(os.listdir("/proc/self/fd")) - before) == 1
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        log.close()
        assert set(os.listdir("/proc/self/fd")) <= before

    def test_a_rewrite_that_fails_is_told_and_the_former_file_stays(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / FILE_NAME
        log = Journal(path, {PLAIN.key: PLAIN})
        monkeypatch.setattr(journal, "COMPACT_BYTES_MIN", 0)
        before = set(os.listdir("/proc/self/fd"))

        def failing(_fd: int) -> None:
            raise OSError("the disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", failing)
            with pytest.raises(OSError, match="the disk is full"):
                log.append([LEADER] * 20)
        assert set(os.listdir("/proc/self/fd")) == before
        log.close()
        assert read(path)[0] == {PLAIN.key: PLAIN, LEADER.key: LEADER}

    def test_the_last_line_of_a_partition_counts_also_when_it_is_a_deletion(self, tmp_path: Path) -> None:
        log = Journal(tmp_path / FILE_NAME, {})
        gone = Replica("gone", 0, role=Role.DELETED)
        log.append([LEADER, PLAIN, gone])
        log.append([Replica(*LEADER.key, role=Role.DELETED)])
        log.close()
        assert read(tmp_path / FILE_NAME) == ({PLAIN.key: PLAIN}, [])

    def test_states_are_flushed_before_anybody_is_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the bytes that were there when they were."""
        flushed: list[int] = []
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, lambda fd: flushed.append(os.fstat(fd).st_size))
        monkeypatch.setattr(journal, "sync_directory", lambda _: None)
        path = tmp_path / FILE_NAME
        log = Journal(path, {PLAIN.key: PLAIN})
        assert flushed == [path.stat().st_size]
        log.append([LEADER])
        assert flushed[1:] == [path.stat().st_size]
        assert flushed[0] < flushed[1]
        log.close()

    def test_a_rewritten_file_is_in_the_folder_for_good(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else a power cut brings the former file back, without what was appended since."""
        synced: list[list[str]] = []
        monkeypatch.setattr(
            journal, "sync_directory", lambda path: synced.append([e.name for e in path.iterdir()])
        )
        Journal(tmp_path / FILE_NAME, {}).close()
        assert synced == [[FILE_NAME]]

    @settings(max_examples=2 * settings().max_examples)
    @given(content=st.binary(max_size=300))
    def test_any_content_can_be_opened(
        self, content: bytes, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        path = tmp_path_factory.mktemp("journal") / FILE_NAME
        path.write_bytes(content)
        replicas, _ = read(path)
        Journal(path, replicas).close()
        assert read(path) == (replicas, [])


class TestDirectory:
    def test_two_brokers_cannot_share_it(self, opener: Opener, tmp_path: Path) -> None:
        opener()
        with pytest.raises(StorageFault, match=f"in use by another broker \\(process {os.getpid()}\\)"):
            DataDir(tmp_path / "data", 1)

    def test_it_belongs_to_one_broker_id(self, opener: Opener, tmp_path: Path) -> None:
        opener().close()
        with pytest.raises(SettingError, match=r"broker_id = 2: must be 1: .*meta.properties"):
            DataDir(tmp_path / "data", 2)
        assert "broker.id=1\n" in (tmp_path / "data" / "meta.properties").read_text()

    def test_kafka_s_own_meta_properties_are_read(self, opener: Opener, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        text = "#\n#Thu Jan 01 00:00:00 UTC 2026\ncluster.id=abc\nversion=0\nbroker.id=1\n"
        (tmp_path / "data" / "meta.properties").write_text(text)
        opener().close()
        with pytest.raises(SettingError, match=r"broker_id = 2: must be 1: .*meta.properties"):
            DataDir(tmp_path / "data", 2)

    def test_the_cluster_is_noted_and_outlives_a_new_directory_id(
        self, opener: Opener, tmp_path: Path
    ) -> None:
        directory, file = opener(), tmp_path / "data" / "meta.properties"
        assert directory.cluster_id == ""
        directory.join("a-cluster")
        assert "cluster.id=a-cluster\n" in file.read_text()
        assert f"directory.id={directory.identity.directory_id}\n" in file.read_text()
        directory.close()
        (tmp_path / "data" / ".boot-id").write_text("another boot\n")
        again = opener()
        assert again.cluster_id == "a-cluster"
        assert again.identity.directory_id != directory.identity.directory_id
        again.close()
        assert "cluster.id=a-cluster\n" in file.read_text()

    @pytest.mark.parametrize("content", ["a b", "\N{DEGREE SIGN}", "a" * 256])
    def test_an_odd_cluster_is_named(self, tmp_path: Path, content: str) -> None:
        text = f"version=0\nbroker.id=1\ncluster.id={content}\n"
        (tmp_path / "meta.properties").write_text(text, encoding="utf-8")
        with pytest.raises(
            StorageFault, match=r"meta\.properties: cluster\.id is .*: must be 1 to 255 ASCII"
        ):
            DataDir(tmp_path, 1)

    def test_a_directory_that_was_replaced_notes_no_cluster(self, opener: Opener, tmp_path: Path) -> None:
        directory = opener()
        (tmp_path / "data").rename(tmp_path / "moved")
        (tmp_path / "data").mkdir()
        directory.join("a-cluster")
        assert list((tmp_path / "data").iterdir()) == []
        assert directory.cluster_id == ""

    @pytest.mark.parametrize("content", ["", "broker.id=one\n", "broker.id=-1\n", "\0\0"])
    def test_unreadable_meta_properties(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "meta.properties").write_text(content)
        with pytest.raises(StorageFault, match=r"broker\.id"):
            DataDir(tmp_path, 1)

    def test_a_path_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "data").touch()
        with pytest.raises(StorageFault, match="cannot be used"):
            DataDir(tmp_path / "data", 1)

    @pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
    def test_gone_while_open(self, opener: Opener, tmp_path: Path, how: str) -> None:
        data = opener()
        make(data, LEADER)
        if how == "removed":
            shutil.rmtree(tmp_path / "data")
        else:
            (tmp_path / "data").rename(tmp_path / "elsewhere")
        if how == "replaced":
            (tmp_path / "data").mkdir()
        applied = data.apply([Step(PLAIN.key, None, PLAIN, True, True)])
        assert applied.failed.keys() == {PLAIN.key}
        assert str(tmp_path / "data") in applied.lost


def test_a_lost_directory_through_the_handlers(tmp_path: Path) -> None:
    data, log, losses = DataDirs([tmp_path / "data"], 1), RecordedLog(), list[str]()
    handlers = ControlHandlers(0, data, log, data.found, losses.append)
    requests = [
        wire.LeaderAndIsrRequest(partition_states=[leader_state(), leader_state(partition=1)]),
        wire.LeaderAndIsrRequest(partition_states=[leader_state(leader_epoch=1)]),
    ]
    assert _errors(handlers, requests[0]) == [0, 0]
    shutil.rmtree(tmp_path / "data")
    assert _errors(handlers, requests[1]) == [56]
    assert {replica.role for replica in handlers.replicas} == {Role.OFFLINE}
    assert len(losses) == 1
    stop = wire.StopReplicaRequest(partition_states=[stop_state(partition=1, delete=True)])
    assert [e.error_code for e in handlers.stop_replica(stop.SerializeToString()).partition_errors] == [56]
    assert data.working == []
    data.close()


#: Of requests that say nothing else.
TERM = ControllerTerm(1, 0, 0, 0)


def _errors(handlers: ControlHandlers, request: wire.LeaderAndIsrRequest) -> list[int]:
    answer = handlers.leader_and_isr(request.SerializeToString(), "", TERM)
    return [e.error_code for e in answer.partition_errors]


def test_what_a_run_leaves_a_restart_finds(opener: Opener, tmp_path: Path) -> None:
    """Topic ids, which fence a recreated topic, and leader epochs, which fence an older state of this one."""
    data = DataDirs([tmp_path / "data"], 1)
    handlers = ControlHandlers(0, data, RecordedLog())
    states = [leader_state(leader_epoch=8, partition_epoch=9), leader_state("bar"), leader_state("gone")]
    first = wire.LeaderAndIsrRequest(partition_states=states, topic_ids={"foo": ID_X, "gone": ID_X})
    assert _errors(handlers, first) == [0, 0, 0]
    stop = wire.StopReplicaRequest(partition_states=[stop_state("gone", leader_epoch=-2, delete=True)])
    handlers.stop_replica(stop.SerializeToString())
    data.close()
    restarted = BrokerHarness(found=opener().found)
    assert sorted(r.key for r in restarted.handlers.replicas) == [("bar", 0), ("foo", 0)]
    assert restarted.lead(leader_state(leader_epoch=9), topic_ids={"foo": ID_Y}) == ["INCONSISTENT_TOPIC_ID"]
    for older in (leader_state(leader_epoch=7), leader_state(leader_epoch=8, leader=1)):
        assert restarted.lead(older, topic_ids={"foo": ID_X}) == ["STALE_CONTROLLER_EPOCH"]
    assert restarted.replica().role is Role.NONE
    # A partition epoch may start again: then only a start makes it known.
    again = leader_state(leader_epoch=8, partition_epoch=1)
    assert restarted.lead(again, topic_ids={"foo": ID_X}) == ["NONE"]
    assert restarted.replica().role is Role.LEADER
    # Without an id nobody knows whether it is the same topic.
    assert restarted.lead(leader_state("bar", leader_epoch=0)) == ["NONE"]


@given(
    st.from_regex(r"\A[A-Za-z0-9._-]{1,249}\Z").filter(lambda t: t not in (".", "..")),
    st.integers(0, 2**31 - 1),
)
def test_folder_names_read_back(topic: str, partition: int) -> None:
    assert parse_folder_name(folder_name((topic, partition))) == (topic, partition)


@given(st.binary(max_size=100))
def test_partition_metadata_is_an_id_or_a_value_error(content: bytes) -> None:
    try:
        found = parse_partition_metadata(content)
    except ValueError:
        return
    assert found is None or len(found) == 22


def test_a_partition_number_has_31_bits() -> None:
    assert parse_folder_name("t-2147483647") == ("t", 2**31 - 1)
    assert parse_folder_name("t-2147483648") is None


def test_a_replica_is_stopped_once_and_not_by_an_older_leader_epoch() -> None:
    replicas = Replicas(0, [Replica("foo", 0, role=Role.FOLLOWER, leader=1, leader_epoch=3)])
    stale = replicas.plan_stop_replica([StopReplica(("foo", 0), 2, False)])
    assert [answer.error for answer in stale.answers] == [codes.FENCED_LEADER_EPOCH]
    stop = [StopReplica(("foo", 0), 3, False)]
    (change,) = replicas.complete(replicas.plan_stop_replica(stop), {}).transitions
    assert change.replica.role is Role.STOPPED
    assert replicas.plan_stop_replica(stop).steps == []
