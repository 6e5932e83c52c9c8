"""The lake without Spark: commits, identities of files, what is set aside of them."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import Row

from controller.analysis.errors import ReportError
from controller.analysis.lake import compaction, condensed, delta_log, identity, spool, storage
from controller.analysis.lake.delta_log import (
    LOG_DIR,
    DeltaLog,
    Snapshot,
    add_action,
    domain_action,
    remove_action,
)
from controller.analysis.lake.errors import LakeError, SetAsideError
from controller.analysis.lake.identity import TakenFile
from controller.analysis.lake.job import Writer, pieces_of, run_follow
from controller.analysis.lake.loading import Lake, _follows, _with_counts, taken_files
from controller.analysis.lake.source import open_snapshot
from controller.analysis.lake.spool import Piece, Spool
from controller.analysis.lake.storage import LocalStorage
from controller.analysis.local_files import LogFile
from controller.analysis.session import first_line

PARTITION = {"day": "2026-01-14", "kind": "leader"}


def lines(first: int, last: int) -> bytes:
    return b"".join(b'{"schema":1,"event_id":%d}\n' % number for number in range(first, last))


def table(root: Path) -> tuple[DeltaLog, Snapshot]:
    log = DeltaLog(LocalStorage(root))
    return log, log.create('{"type":"struct","fields":[]}')


# --- commits ---------------------------------------------------------------------------------------------------


def test_a_commit_is_read_back_and_a_removed_file_is_not_there(tmp_path: Path) -> None:
    log, snapshot = table(tmp_path)
    log.commit(snapshot, [add_action("a", PARTITION, 10), add_action("b", PARTITION, 20)], "WRITE")
    log.commit(snapshot, [domain_action("d", "x"), remove_action(snapshot.files["a"])], "WRITE")
    log.commit(snapshot, [domain_action("e", "y")], "WRITE")
    log.commit(snapshot, [domain_action("e", "", removed=True)], "WRITE")
    read = log.read()
    assert (read.version, set(read.files), set(read.removed), read.bytes) == (4, {"b"}, {"a"}, 20)
    assert read.domains == {"d": "x"}
    assert read == snapshot


def test_of_two_writers_of_one_version_the_second_is_told(tmp_path: Path) -> None:
    log, snapshot = table(tmp_path)
    other = log.read()
    log.commit(snapshot, [add_action("a", PARTITION, 1)], "WRITE")
    with pytest.raises(LakeError, match="version 1 was committed by another program; nothing was written"):
        log.commit(other, [add_action("b", PARTITION, 1)], "WRITE")
    assert set(log.read().files) == {"a"}
    assert not list((tmp_path / LOG_DIR).glob(".draft-*"))


def test_a_checkpoint_tells_what_the_commits_before_it_told(tmp_path: Path) -> None:
    log, snapshot = table(tmp_path)
    for number in range(delta_log.CHECKPOINT_EVERY + 2):
        log.commit(
            snapshot, [add_action(f"f{number}", PARTITION, 1), domain_action("n", str(number))], "WRITE"
        )
    assert log.read().files.keys() == snapshot.files.keys(), "some that write keep the commits"
    for path in (tmp_path / LOG_DIR).glob("[0-9]*.json"):
        if ".checkpoint." not in path.name and int(path.name[:20]) <= delta_log.CHECKPOINT_EVERY:
            path.unlink()
    read = log.read()
    assert len(list((tmp_path / LOG_DIR).glob("*.checkpoint.*.json"))) == 1
    assert (read.version, set(read.files), read.domains) == (
        snapshot.version,
        set(snapshot.files),
        {"n": "21"},
    )


def test_a_checkpoint_that_nobody_points_to_is_no_commit(tmp_path: Path) -> None:
    """Its writer was killed before it did."""
    log, snapshot = table(tmp_path)
    for number in range(delta_log.CHECKPOINT_EVERY + 1):
        log.commit(snapshot, [domain_action("n", str(number))], "WRITE")
    (tmp_path / LOG_DIR / "_last_checkpoint").unlink()
    assert log.read() == snapshot


def test_commits_that_go_while_they_are_read_are_read_from_the_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, snapshot = table(tmp_path)
    log.commit(snapshot, [domain_action("a", "b")], "WRITE")
    read, gone = LocalStorage.read, [f"{LOG_DIR}/{1:020}.json"] * 2

    def going(storage: LocalStorage, name: str) -> bytes:
        if gone and name == gone[-1]:
            raise FileNotFoundError(2, "No such file or directory", gone.pop())
        return read(storage, name)

    monkeypatch.setattr(LocalStorage, "read", going)
    assert log.read() == snapshot
    gone += [f"{LOG_DIR}/{1:020}.json"] * 3
    with pytest.raises(LakeError, match=r"00001\.json: No such file"):
        log.read()


def test_a_table_that_was_changed_is_of_this_version(tmp_path: Path) -> None:
    log, snapshot = table(tmp_path)
    snapshot.metadata["configuration"]["statelog.lakeVersion"] = "1"
    assert (
        log.change_schema(snapshot, '{"type":"struct","fields":[]}', []).lake_version
        == delta_log.LAKE_VERSION
    )
    assert log.read() == snapshot


def test_rows_that_another_writer_may_be_about_to_commit_are_left_alone(tmp_path: Path) -> None:
    class Shared(LocalStorage):
        alone = False

    log = DeltaLog(Shared(tmp_path))
    snapshot = log.create('{"type":"struct","fields":[]}')
    log.storage.write("day=1/kind=a/new.parquet", b"x")
    assert log.sweep(snapshot) == 0
    os.utime(tmp_path / "day=1/kind=a/new.parquet", (1, 1))
    assert log.sweep(snapshot) == 1


def test_a_missing_commit_and_a_damaged_one_are_errors(tmp_path: Path) -> None:
    log, snapshot = table(tmp_path)
    for name in "ab":
        log.commit(snapshot, [add_action(name, PARTITION, 1)], "WRITE")
    second = tmp_path / LOG_DIR / f"{1:020}.json"
    text = second.read_text()
    second.write_text(text[:-20])
    with pytest.raises(LakeError, match=r"00001\.json: damaged"):
        log.read()
    second.unlink()
    with pytest.raises(LakeError, match="not whole: commit 1 is missing"):
        log.read()


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{}", b"[]", b"5", b"\xff", b"\0" * 300, b'{"add":' + b"[" * 100_000),
        *(
            b'{"add":5}',
            b'{"add":{}}',
            b'{"add":null}',
            b'{"add":{"path":"a","size":"x","partitionValues":{}}}',
        ),
        *(b'{"remove":{"path":"a"}}', b'{"txn":{}}', b'{"domainMetadata":{"domain":"d"}}'),
        *(b'{"metaData":{"schemaString":"","configuration":null}}', b'{"protocol":{"readerFeatures":5}}'),
    ],
)
def test_whatever_is_in_a_commit_or_in_the_last_checkpoint_is_named(tmp_path: Path, text: bytes) -> None:
    log, snapshot = table(tmp_path)
    commit, last = tmp_path / LOG_DIR / f"{1:020}.json", tmp_path / LOG_DIR / "_last_checkpoint"
    commit.write_bytes(text)
    with pytest.raises(LakeError, match=rf"^{commit}: damaged: "):
        log.read()
    commit.unlink()
    last.write_bytes(text)
    with pytest.raises(LakeError, match=rf"^{last}: damaged, or another program's: "):
        log.read()
    last.unlink()
    assert log.read() == snapshot


def test_what_is_no_file_and_what_is_known_of_a_log_are_named(tmp_path: Path) -> None:
    log, snapshot = table(tmp_path)
    (tmp_path / LOG_DIR / "_last_checkpoint").write_text('{"version":0,"v2Checkpoint":{"path":"gone"}}')
    with pytest.raises(LakeError, match=r"_delta_log/gone: No such file or directory"):
        log.read()
    with pytest.raises(LakeError, match=r"damaged: statelog\.file\.1: Object missing"):
        taken_files(log.commit(snapshot, [domain_action("statelog.file.1", "{}")], "WRITE"))


def test_rows_without_commits_are_left_alone(tmp_path: Path) -> None:
    """A lake whose log was lost is no new one: its rows would be deleted as those of a killed writer."""
    rows = tmp_path / "day=2026-01-14" / "kind=leader" / "a.parquet"
    rows.parent.mkdir(parents=True)
    rows.touch()
    with pytest.raises(
        LakeError, match=r"_delta_log is missing or empty, and there are rows \(day=2026-01-14/"
    ):
        Writer(LocalStorage(tmp_path), tmp_path, [tmp_path], lambda _: None)
    assert rows.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"statelog.lakeVersion": "3"}, "made by a newer version: lake version 3, known is 2"),
        ({"statelog.lakeVersion": "x"}, "made by a newer version: lake version x, known is 2"),
        ({}, "a Delta Lake table, but not of state-change logs"),
    ],
)
def test_a_table_of_another_kind_or_a_newer_version_is_left_alone(
    tmp_path: Path, change: dict[str, str], message: str
) -> None:
    log, snapshot = table(tmp_path)
    log.commit(snapshot, [{"metaData": snapshot.metadata | {"configuration": change}}], "WRITE")
    with pytest.raises(LakeError, match=message):
        log.read()


def test_a_table_of_an_earlier_version_is_not_reported_on(tmp_path: Path) -> None:
    log, snapshot = table(tmp_path)
    configuration = snapshot.metadata["configuration"] | {"statelog.lakeVersion": "1"}
    log.commit(snapshot, [{"metaData": snapshot.metadata | {"configuration": configuration}}], "WRITE")
    advice = "an earlier version: lake version 1, now 2; pctl lake update LOGDIR... --lake .* changes it"
    with pytest.raises(LakeError, match=advice):
        open_snapshot(LocalStorage(tmp_path))


def test_a_feature_that_another_program_turned_on_is_not_ignored(tmp_path: Path) -> None:
    log, snapshot = table(tmp_path)
    features = [*snapshot.protocol["readerFeatures"], "deletionVectors"]
    log.commit(snapshot, [{"protocol": snapshot.protocol | {"readerFeatures": features}}], "WRITE")
    with pytest.raises(LakeError, match="turned on deletionVectors"):
        log.read()


def test_files_that_no_commit_names_are_deleted_and_removed_ones_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, snapshot = table(tmp_path)
    directory = tmp_path / "day=2026-01-14" / "kind=leader"
    directory.mkdir(parents=True)
    names = {name: f"{directory.relative_to(tmp_path)}/{name}.parquet" for name in ("kept", "old", "left")}
    for name in names:
        (directory / f"{name}.parquet").touch()
    log.commit(snapshot, [add_action(names[name], PARTITION, 1) for name in ("kept", "old")], "WRITE")
    log.commit(snapshot, [remove_action(snapshot.files[names["old"]])], "OPTIMIZE")
    assert log.sweep(snapshot) == 1
    assert {path.stem for path in directory.iterdir()} == {"kept", "old"}
    later = storage.now_ms() + delta_log.RETENTION_MS + 1
    monkeypatch.setattr(storage, "now_ms", lambda: later)
    assert log.sweep(snapshot) == 1
    assert {path.stem for path in directory.iterdir()} == {"kept"}


def test_the_checkpoint_in_use_outlives_the_commits_that_it_covers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 2)
    log, snapshot = table(tmp_path)
    for name in "abc":
        log.commit(snapshot, [add_action(f"day=1/{name}.parquet", PARTITION, 1)], "WRITE")
    commits = len(list((tmp_path / "_delta_log").glob("*.json")))
    log.sweep(snapshot)
    assert len(list((tmp_path / "_delta_log").glob("*.json"))) == commits, "somebody may still read them"
    later = storage.now_ms() + delta_log.RETENTION_MS + 1
    monkeypatch.setattr(storage, "now_ms", lambda: later)
    log.sweep(snapshot)
    assert len(list((tmp_path / "_delta_log").glob("*.json"))) < commits
    assert (log.read().version, set(log.read().files)) == (snapshot.version, set(snapshot.files))


def test_a_second_writer_is_refused_and_told_who_writes(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from controller.analysis.lake.storage import LocalStorage\n"
        "from controller.analysis.lake.errors import LakeError\n"
        "try:\n    with LocalStorage(Path(sys.argv[1])).writing(): print('writes')\n"
        "except LakeError as error: print(error)"
    )

    def second() -> str:
        return subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
        ).stdout

    with LocalStorage(tmp_path).writing():
        assert "is writing this lake; one writer at a time" in second()
        with pytest.raises(LakeError, match=r"process \d+ is writing"), LocalStorage(tmp_path).writing():
            pass
    assert second() == "writes\n"
    # Not the one that wrote before.
    with LocalStorage(tmp_path).writing():
        assert f"process {os.getpid()} is writing this lake" in second()


def test_a_report_without_a_lake_is_an_error_that_tells_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"no lake; pctl lake update LOGDIR... --lake .* makes it"):
        open_snapshot(LocalStorage(tmp_path))
    table(tmp_path)
    with pytest.raises(LakeError, match="no usable line"):
        open_snapshot(LocalStorage(tmp_path))


# --- identities and the spool -------------------------------------------------------------------------------------


class Taker:
    """Sets aside what is new in a directory, and takes it as if it had been committed."""

    def __init__(self, root: Path) -> None:
        self.logs = root / "logs"
        self.logs.mkdir()
        self.spool = Spool(root / "spool")
        self.known: dict[str, TakenFile] = {}

    def fill(self) -> list[Piece]:
        self.spool.clear()
        return self.spool.fill([self.logs], list(self.known.values()))

    def take(self) -> bytes:
        """Out: the content of the pieces, in the order of their names' files."""
        found = b""
        for piece in self.fill():
            self.known[piece.after.id] = piece.after
            if piece.name:
                data = (self.spool.directory / piece.name).read_bytes()
                found += gzip.decompress(data) if piece.name.endswith(".gz") else data
        return found

    @property
    def names(self) -> set[str]:
        return {one.path.rpartition("/")[2] for one in self.known.values()}


@pytest.fixture
def taker(tmp_path: Path) -> Taker:
    return Taker(tmp_path)


def test_only_what_was_appended_is_taken_and_an_unfinished_line_later(taker: Taker) -> None:
    log = taker.logs / "state-change.jsonl"
    log.write_bytes(lines(0, 300) + b'{"schema"')
    assert taker.take() == lines(0, 300)
    assert [one.pending for one in taker.known.values()] == [9]
    assert taker.fill() == []
    with log.open("ab") as file:
        file.write(b':1}\n{"tor')
    assert taker.take() == b'{"schema":1}\n'
    assert taker.take() == b""


def test_a_batch_that_is_full_to_the_byte_says_that_more_may_follow(
    taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [lines(0, 100), lines(100, 150)]
    for number, part in enumerate(parts):
        (taker.logs / f"state-change.2026011{number}T101500.000000Z.jsonl").write_bytes(part)
    monkeypatch.setattr(spool, "BATCH_BYTES", len(parts[0]))
    assert (taker.take(), taker.spool.full) == (parts[0], True)
    assert (taker.take(), taker.spool.full) == (parts[1], False)


def test_a_renamed_and_gzipped_log_is_the_same_log(taker: Taker) -> None:
    log = taker.logs / "state-change.jsonl"
    log.write_bytes(lines(0, 300))
    taker.take()
    with log.open("ab") as file:
        file.write(lines(300, 400) + b'{"torn"')
    rotated = taker.logs / "state-change.20260114T101500.000000Z.jsonl"
    log.rename(rotated)
    log.write_bytes(lines(1000, 1100))
    # By name, the rotated log comes first.
    assert taker.take() == lines(300, 400) + b'{"torn"' + lines(1000, 1100)
    packed = Path(f"{rotated}.gz")
    packed.write_bytes(gzip.compress(rotated.read_bytes()))
    assert taker.fill() == []  # Beside its plain file it is no log of its own.
    rotated.unlink()
    assert taker.take() == b""
    assert taker.names == {log.name, packed.name}
    assert [one.lines for one in taker.known.values()] == [0, 0]  # Spark counts.


def test_a_log_that_was_gzipped_between_two_looks_gives_its_rest(taker: Taker) -> None:
    log = taker.logs / "state-change.jsonl"
    log.write_bytes(lines(0, 1000))
    taker.take()
    log.unlink()
    packed = taker.logs / "state-change.20260114T101500.000000Z.jsonl.gz"
    packed.write_bytes(gzip.compress(lines(0, 1200)))
    assert taker.take() == lines(1000, 1200)
    assert len(taker.known) == 1
    assert taker.fill() == []


def test_a_damaged_gzip_file_is_taken_to_the_damage_and_named(taker: Taker) -> None:
    packed = taker.logs / "state-change.20260114T101500.000000Z.jsonl.gz"
    packed.write_bytes(gzip.compress(lines(0, 1000))[:-100])
    (piece,) = taker.fill()
    assert piece.after.problem == "truncated gzip; what came before the damage was read"
    assert 0 < piece.after.taken < len(lines(0, 1000))
    # Spark may read less of it than was counted here.
    assert piece.lines is None


@pytest.mark.parametrize("name", ["state-change.jsonl", "state-change.1.jsonl", "state-change.2.jsonl.gz"])
def test_a_line_that_would_fill_the_memory_is_not_taken(
    taker: Taker, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A piece with it would be the end of every update."""
    monkeypatch.setattr(identity, "LINE_BYTES_MAX", 4 << 20)
    data = lines(0, 3) + b"x" * (9 << 20) + b"\n" + lines(3, 5)
    (taker.logs / name).write_bytes(gzip.compress(data, 1) if name.endswith(".gz") else data)
    (piece,) = taker.fill()
    assert piece.after.problem == "a line of more than 16 MiB; what came before the damage was read"
    set_aside = (taker.spool.directory / piece.name).read_bytes()
    assert set_aside.startswith(lines(0, 3))
    assert len(set_aside) < 5 << 20
    taker.known[piece.after.id] = piece.after
    assert taker.fill() == []


def test_members_of_gzip_that_lie_in_one_piece_are_all_read(taker: Taker) -> None:
    packed = gzip.compress(lines(0, 3)) + gzip.compress(lines(3, 5)) + gzip.compress(lines(5, 6))
    (taker.logs / "state-change.2.jsonl.gz").write_bytes(packed)
    (piece,) = taker.fill()
    assert (piece.lines, piece.after.taken) == (6, len(lines(0, 6)))


def test_a_copy_beside_its_original_is_a_log_of_its_own_and_a_moved_directory_is_not(taker: Taker) -> None:
    (taker.logs / "a").mkdir()
    (taker.logs / "a" / "state-change.jsonl").write_bytes(lines(0, 10))
    taker.take()
    (taker.logs / "a").rename(taker.logs / "b")
    assert taker.take() == b""
    assert len(taker.known) == 1
    (taker.logs / "c").mkdir()
    (taker.logs / "c" / "state-change.jsonl").write_bytes(lines(0, 10))
    assert taker.take() == lines(0, 10)
    assert len(taker.known) == 2


def test_another_file_of_the_same_name_or_the_same_first_line_is_another_log(taker: Taker) -> None:
    log = taker.logs / "state-change.jsonl"
    log.write_bytes(lines(0, 10))
    taker.take()
    log.write_bytes(lines(5, 30))
    assert taker.take() == lines(5, 30)
    log.write_bytes(lines(5, 6) + lines(100, 130))
    assert taker.take() == lines(5, 6) + lines(100, 130)
    assert len(taker.known) == 3


def test_a_log_that_is_replaced_while_it_is_set_aside_is_another_log(
    taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = taker.logs / "state-change.jsonl"
    log.write_bytes(lines(10, 20))
    taker.take()
    log.write_bytes(lines(10, 30))
    match = identity.match

    def replaced(*arguments: Any) -> Any:
        matched = match(*arguments)
        log.write_bytes(lines(50, 90))
        return matched

    with monkeypatch.context() as patched:
        patched.setattr(identity, "match", replaced)
        assert taker.take() == b""
    assert taker.take() == lines(50, 90)
    assert len(taker.known) == 2


def test_of_a_moved_log_and_a_copy_of_it_one_goes_on(taker: Taker) -> None:
    (taker.logs / "a").mkdir()
    (taker.logs / "a" / "state-change.jsonl").write_bytes(lines(0, 10))
    taker.take()
    (taker.logs / "a").rename(taker.logs / "b")
    (taker.logs / "c").mkdir()
    (taker.logs / "c" / "state-change.jsonl").write_bytes(lines(0, 10))
    assert taker.take() == lines(0, 10)
    assert len(taker.known) == 2


def test_a_log_that_lost_its_end_is_another_log(taker: Taker) -> None:
    """What it had of the place where taking stopped is gone: whatever comes there is new."""
    log = taker.logs / "state-change.jsonl"
    log.write_bytes(lines(0, 300))
    taker.take()
    log.write_bytes(lines(0, 10))
    assert taker.take() == lines(0, 10)
    assert len(taker.known) == 2


def test_a_large_log_is_taken_in_parts(taker: Taker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.analysis.lake.spool.BATCH_BYTES", 2 << 20)
    (taker.logs / "state-change.jsonl").write_bytes(lines(0, 100_000))
    parts = [taker.take()]
    while taker.spool.full:
        parts.append(taker.take())
    assert len(parts) == 2
    assert b"".join(parts) == lines(0, 100_000)


@pytest.mark.parametrize("name", ["a\u2028b", "a\x85b", "a\nb", "a%20b?c#d[e]{f}"])
def test_orders_tell_names_with_anything_in_them(tmp_path: Path, name: str) -> None:
    log_dir = tmp_path / name
    log_dir.mkdir()
    (log_dir / "state-change.jsonl").write_bytes(lines(0, 3))
    writer = Writer(LocalStorage(tmp_path), tmp_path, [log_dir], lambda _: None)
    assert writer.order()
    (order,) = writer.ordered()
    (piece,) = pieces_of(order.read_text(encoding="utf-8"))
    assert piece.after.path == f"file:{log_dir}/state-change.jsonl"


def test_a_name_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    log_dir = os.fsdecode(bytes(tmp_path / "logs") + b"\xff")
    os.mkdir(log_dir)
    Path(log_dir, "state-change.jsonl").write_bytes(lines(0, 3))
    with pytest.raises(ReportError, match=r"logs\\udcff/state-change\.jsonl': names .* must be UTF-8"):
        Writer(LocalStorage(tmp_path), tmp_path, [log_dir], lambda _: None).order()


@pytest.mark.parametrize("name", ["a[b]", "a{b}", "a*", "a?", "a\\b"])
def test_a_directory_that_no_stream_can_watch_is_named(tmp_path: Path, name: str) -> None:
    """An update can use it."""
    (tmp_path / "state-change.jsonl").write_bytes(lines(0, 3))
    with pytest.raises(
        LakeError, match=r"a stream cannot watch a directory with one of {}\[\]\*\?\\ in its path"
    ):
        run_follow([tmp_path], tmp_path / name, stop=threading.Event(), progress=lambda _: None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "An error occurred while calling o5.parquet.\n: a.B: Job aborted\n\tat x\nCaused by: c.D: No space",
            "c.D: No space",
        ),
        ("An error occurred while calling o5.parquet.\n: a.B: Job aborted\n\tat x", "a.B: Job aborted"),
        (
            "An error occurred while calling o5.parquet.\n: a.B: Job aborted\nCaused by: c.D:"
            " no snappyjava in java.library.path: /usr/lib",
            f"no room for its temporary files in {tempfile.gettempdir()}; the environment variable TMPDIR names another"
            " directory",
        ),
        ("An error occurred", "An error occurred"),
        ("", "Py4JError"),
    ],
)
def test_an_error_of_the_jvm_is_told_by_its_cause(text: str, told: str) -> None:
    assert first_line(Py4JError(text)) == told


@pytest.mark.parametrize("what", ["a piece is missing", "the order is torn"])
def test_an_order_that_cannot_be_carried_out_is_set_aside_anew(tmp_path: Path, what: str) -> None:
    log_dir, said = tmp_path / "logs", list[str]()
    log_dir.mkdir()
    (log_dir / "state-change.jsonl").write_bytes(lines(0, 3))
    writer = Writer(LocalStorage(tmp_path), tmp_path, [log_dir], said.append)
    assert writer.order()
    (order,) = writer.ordered()
    assert Writer(LocalStorage(tmp_path), tmp_path, [log_dir], said.append).ordered() == [order]
    if what == "a piece is missing":
        next(writer.spool.directory.iterdir()).unlink()
    else:
        order.write_bytes(order.read_bytes()[:-9])
    again = Writer(LocalStorage(tmp_path), tmp_path, [log_dir], said.append)
    assert said == [f"{order}: what it names is not set aside any more; it is read from the logs again"]
    assert again.order()
    (piece,) = pieces_of(again.ordered()[0].read_text(encoding="utf-8"))
    assert [path.name for path in writer.spool.directory.iterdir()] == [piece.name]
    assert (writer.spool.directory / piece.name).read_bytes() == lines(0, 3)


def test_an_unreadable_and_an_empty_log_are_known_and_no_log_is_an_error(taker: Taker) -> None:
    with pytest.raises(ReportError, match="no state-change log"):
        taker.fill()
    (taker.logs / "state-change.jsonl").touch()
    assert taker.take() == b""
    assert taker.names == {"state-change.jsonl"}
    assert taker.fill() == []


@pytest.mark.parametrize("rotated", [False, True])
def test_a_log_that_cannot_be_read_for_a_while_is_the_same_log(
    taker: Taker, monkeypatch: pytest.MonkeyPatch, rotated: bool
) -> None:
    log = taker.logs / "state-change.jsonl"
    log.write_bytes(lines(0, 300))
    taker.take()
    if rotated:
        log.rename(taker.logs / "state-change.20260110T101500.000000Z.jsonl")
    with log.open("ab") as file:
        file.write(lines(300, 310))
    head = identity.head

    def denied(file: LogFile) -> str:
        if file.path.endswith("/state-change.jsonl"):
            raise PermissionError(13, "Permission denied", file.shown)
        return head(file)

    with monkeypatch.context() as patched:
        patched.setattr(identity, "head", denied)
        assert taker.take() == b""
        assert [one.problem for one in taker.known.values() if one.problem] == [
            "unreadable: Permission denied; what came before the damage was read"
        ]
        assert taker.fill() == []
    assert taker.take() == lines(300, 310)
    assert len(taker.known) == 1 + rotated
    assert not any(one.problem for one in taker.known.values())


def test_what_is_known_of_a_file_survives_as_json() -> None:
    known = TakenFile.new("file:/a/state-change.jsonl", "ab")
    assert msgspec.json.decode(json.dumps(msgspec.to_builtins(known)), type=TakenFile) == known


# --- what is put together and what is left alone -------------------------------------------------------------


@pytest.mark.parametrize(("small", "large", "together"), [(8, 3, 8), (7, 9, 0), (9, 0, 9)])
def test_small_files_of_one_partition_are_put_together(small: int, large: int, together: int) -> None:
    sizes = [compaction.SMALL_BYTES - 1] * small + [compaction.SMALL_BYTES] * large
    snapshot = Snapshot()
    for number, size in enumerate(sizes):
        snapshot.apply(add_action(f"f{number}", PARTITION, size))
    for number in range(compaction.FILES_MAX - 1):
        snapshot.apply(add_action(f"g{number}", {**PARTITION, "kind": "isr"}, 1))
    assert [added["path"] for added in compaction.scattered(snapshot)] == [f"f{n}" for n in range(together)]


def test_a_file_that_is_being_compressed_is_seen_once(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.jsonl.gz", "b.jsonl.gz"):
        (tmp_path / name).write_bytes(b"")
    files = [LogFile(f"file:{path}", 0) for path in sorted(tmp_path.iterdir())]
    assert [Path(file.path).name for file in identity.seen(files, [])] == ["a.jsonl", "b.jsonl.gz"]


def test_what_is_read_of_a_log_is_added_to_what_is_known_of_it() -> None:
    counts = {"lines": 3, "ok": 2, "torn": 1, "malformed": 0, "newer_schema": 0}
    read: Any = Row(**counts, role="controller", node=7, first_us=5, last_us=6)
    known = TakenFile("id", "file:/log", lines=4, ok=4, role="controller", node=2, first_us=1, last_us=4)
    after = _with_counts(known, read)
    assert (after.lines, after.ok, after.torn) == (7, 6, 1)
    assert (after.node, after.first_us, after.last_us) == (7, 1, 6)
    first = _with_counts(TakenFile("id", "file:/log"), read)
    assert (first.lines, first.role, first.first_us, first.last_us) == (3, "controller", 5, 6)
    zero: Any = Row(**counts, role="controller", node=0, first_us=0, last_us=0)
    assert _with_counts(TakenFile("id", "file:/log"), zero).node == 0


@pytest.mark.parametrize(
    ("start", "taken", "follows"), [(0, None, True), (5, 5, True), (0, 5, False), (9, 5, False)]
)
def test_a_piece_is_taken_once_and_in_its_turn(start: int, taken: int | None, follows: bool) -> None:
    known = None if taken is None else TakenFile("id", "file:/log", taken=taken)
    assert _follows(Piece("name", start, 1, TakenFile("id", "file:/log")), known) is follows


@pytest.mark.parametrize(
    ("set_aside", "read", "taken"),
    [(3, 3, True), (3, 2, False), (3, None, False), (None, 2, True), (None, None, True)],
)
def test_no_line_that_was_counted_is_left_out(
    set_aside: int | None, read: int | None, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark passes over a file that vanishes in silence."""
    log, snapshot = table(tmp_path)
    spark: Any = None
    lake, counts = Lake(spark, log), dict[str, Row]()
    if read is not None:
        none = dict.fromkeys(("torn", "malformed", "newer_schema"), 0)
        counts["f"] = Row(lines=read, ok=read, **none, role="controller", node=1, first_us=5, last_us=6)
    made: dict[str, Any] = {"_rows": None, "rows": None, "write": [], "write_condensed": [], "_count": counts}
    for name, given in made.items():
        monkeypatch.setattr(lake, name, lambda *_, given=given: given)
    monkeypatch.setattr(condensed, "condense_rows", lambda rows: rows)
    piece = Piece("f-0.jsonl", 0, set_aside, TakenFile("f", "file:/log", taken=30))
    if taken:
        lake.take(snapshot, [piece], Spool(tmp_path / "_spool"))
        assert [file.lines for file in taken_files(log.read())] == [read or 0]
    else:
        with pytest.raises(SetAsideError):
            lake.take(snapshot, [piece], Spool(tmp_path / "_spool"))
        assert taken_files(log.read()) == []
