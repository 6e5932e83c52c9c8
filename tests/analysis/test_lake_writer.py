"""A lake's one writer, without Spark: orders, places of files, and what is swept."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest

from controller.analysis.lake import compaction, condensed, job, loading
from controller.analysis.lake.delta_log import LOG_DIR, RETENTION_MS, Action, DeltaLog, Snapshot, add_action
from controller.analysis.lake.errors import SetAsideError
from controller.analysis.lake.identity import TakenFile
from controller.analysis.lake.job import Writer
from controller.analysis.lake.loading import Lake, _file_action, _partition
from controller.analysis.lake.storage import LocalStorage

SPARK: Any = None


def lake_in(root: Path) -> Lake:
    log = DeltaLog(LocalStorage(root))
    log.create(loading.COLUMNS.json())
    return Lake(SPARK, log)


def put(root: Path, name: str, *, days_old: float = 0) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"rows")
    at_s = (LocalStorage(root).now_ms() - days_old * RETENTION_MS) / 1000
    os.utime(path, (at_s, at_s))


# --- places ----------------------------------------------------------------------------------------------------


def test_new_files_go_where_their_partition_is_and_the_draft_goes(tmp_path: Path) -> None:
    lake, draft = lake_in(tmp_path), "_new/1"
    for name in (
        "day=2026-01-14/kind=a%3Ab/1.parquet",
        "day=__HIVE_DEFAULT_PARTITION__/kind=unread/2.parquet",
    ):
        put(tmp_path, f"{draft}/{name}")
    put(tmp_path, f"{draft}/_SUCCESS")
    settled = lake._settle(draft, "")
    assert settled == [
        ("day=2026-01-14/kind=a%3Ab/1.parquet", 4),
        ("day=__HIVE_DEFAULT_PARTITION__/kind=unread/2.parquet", 4),
    ]
    assert [_partition(name) for name, _ in settled] == [
        {"day": "2026-01-14", "kind": "a:b"},
        {"day": None, "kind": "unread"},
    ]
    assert all((tmp_path / name).exists() for name, _ in settled)
    assert not (tmp_path / draft).exists()
    put(tmp_path, f"{draft}/3.parquet")
    assert lake._settle(draft, "_condensed/") == [("_condensed/3.parquet", 4)]


def test_a_lake_that_is_opened_keeps_what_counts_and_what_readers_may_still_have_open(tmp_path: Path) -> None:
    lake = lake_in(tmp_path)
    snapshot = lake.log.commit(lake.log.read(), [condensed.added("named.parquet", 4)], "WRITE")
    for name, days_old in (("named", 9), ("young", 0.5), ("old", 2)):
        put(tmp_path, f"_condensed/{name}.parquet", days_old=days_old)
    put(tmp_path, "_new/1/rows.parquet")
    opened = lake.open()
    assert opened.version == snapshot.version, "nothing was changed"
    assert {path.name for path in (tmp_path / "_condensed").iterdir()} == {"named.parquet", "young.parquet"}
    assert not (tmp_path / "_new").exists()


def test_condensed_files_that_are_replaced_are_young_again(tmp_path: Path) -> None:
    lake = lake_in(tmp_path)
    put(tmp_path, "_condensed/a.parquet", days_old=9)
    told = [condensed.added("a.parquet", 4), _file_action(TakenFile.new("file:/log", "head"))]
    before = lake.log.commit(lake.log.read(), told, "WRITE")
    assert condensed.condensed_files(before) == {"a.parquet": 4}
    after = lake.log.commit(before, [condensed.replaced(lake.storage, "a.parquet")], "OPTIMIZE")
    assert condensed.condensed_files(after) == {}
    condensed.sweep(lake.storage, after)
    assert (tmp_path / "_condensed" / "a.parquet").exists()


@pytest.mark.parametrize(("rows", "parts"), [(8, 0), (7, 8), (8, 8), (7, 7)])
def test_small_files_are_put_together_in_one_commit(
    rows: int, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are no new data then, for those that follow the table."""
    lake, partition = lake_in(tmp_path), {"day": "2026-01-14", "kind": "leader"}
    actions: list[Action] = [add_action(f"r{n}", partition, 10) for n in range(rows)]
    actions += [condensed.added(f"c{n}", 10) for n in range(parts)]
    snapshot = lake.log.commit(lake.log.read(), actions, "WRITE")
    (tmp_path / "_condensed").mkdir()
    monkeypatch.setattr(lake, "rows", lambda paths: sorted(paths))
    monkeypatch.setattr(lake, "condensed", lambda names: sorted(names))
    monkeypatch.setattr(compaction, "merge_condensed", lambda rows: rows)

    def written(rows: list[str], *, new_data: bool = True) -> list[Action]:
        return [add_action("all", partition, 10 * len(rows), new_data=new_data)]

    monkeypatch.setattr(lake, "write", written)
    monkeypatch.setattr(lake, "write_condensed", lambda names: [condensed.added("one", 10 * len(names))])
    before = snapshot.version
    after = compaction.compact(lake, snapshot)
    assert set(after.files) == ({"all"} if rows == 8 else {f"r{n}" for n in range(rows)})
    assert condensed.condensed_files(after) == (
        {"one": 80} if parts == 8 else {f"c{n}": 10 for n in range(parts)}
    )
    assert after.version - before == (rows == 8 or parts == 8)
    if rows == 8:
        assert after.files["all"]["dataChange"] is False
        assert len(after.removed) == 8


@pytest.mark.parametrize("new_data", [True, False])
def test_only_rows_of_logs_are_new_data(
    new_data: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_in(tmp_path)
    settled = [("day=2026-01-14/kind=leader/a.parquet", 10)]
    monkeypatch.setattr(lake, "_settle", lambda *_: settled)
    rows: Any = MagicMock()
    (action,) = lake.write(rows, new_data=new_data)
    assert (action["add"]["path"], action["add"]["dataChange"]) == (settled[0][0], new_data)


# --- orders ----------------------------------------------------------------------------------------------------


class Taking:
    """A lake that takes orders as the test says."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.fails, self.taken = fails, list[str]()

    def take(self, snapshot: Snapshot, pieces: list[Any], _spool: object) -> Snapshot:
        if self.fails is not None:
            raise self.fails
        for piece in pieces:
            self.taken.append(piece.name)
            snapshot.apply(_file_action(msgspec.structs.replace(piece.after, lines=5, ok=4)))
        return snapshot


def writer_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: Taking) -> Writer:
    logs = tmp_path / "logs"
    logs.mkdir(exist_ok=True)
    (logs / "state-change.jsonl").write_bytes(b'{"schema":1}\n' * 5)
    root = tmp_path / "lake"
    root.mkdir(exist_ok=True)
    storage = LocalStorage(root)
    if not (root / LOG_DIR).exists():
        DeltaLog(storage).create(loading.COLUMNS.json())
    writer = Writer(storage, root, [logs], lambda _: None)
    writer.lake = lake  # type: ignore[assignment]
    monkeypatch.setattr(job, "compact", lambda _, snapshot: snapshot)
    return writer


@pytest.mark.parametrize(
    ("fails", "left"), [(None, 0), (SetAsideError("lines are missing"), 0), (OSError("the disk is full"), 1)]
)
def test_an_order_stays_until_it_is_carried_out_or_cannot_be(
    fails: Exception | None, left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Taking(fails)
    writer = writer_of(tmp_path, monkeypatch, lake)
    assert writer.order()
    (order,) = writer.ordered()
    if fails is None:
        writer.carry_out(order.name, order.read_text())
        found = writer.summary(2)
        assert (found.files, found.lines, found.unread, found.added_lines) == (1, 5, 1, 3)
    else:
        with pytest.raises(type(fails)):
            writer.carry_out(order.name, order.read_text())
    assert len(writer.ordered()) == left


@pytest.mark.parametrize(("ordered", "full", "orders"), [(False, 0, 1), (True, 0, 2), (False, 2, 3)])
def test_an_update_ends_when_nothing_is_left_to_take(
    ordered: bool, full: int, orders: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an order of an earlier update it looks at the logs once more, and after one that was full again."""
    lake = Taking()
    writer = writer_of(tmp_path, monkeypatch, lake)
    log, fills = tmp_path / "logs" / "state-change.jsonl", 0
    if ordered:
        writer.order()
        with log.open("ab") as opened:
            opened.write(b'{"schema":1}\n')
    fill = writer.spool.fill

    def filled(*given: Any) -> Any:
        nonlocal fills
        fills += 1
        pieces = fill(*given)
        writer.spool.full = fills <= full
        if writer.spool.full:
            with log.open("ab") as opened:
                opened.write(b'{"schema":1}\n')
        return pieces

    monkeypatch.setattr(writer.spool, "fill", filled)

    @contextmanager
    def given(*_: Any) -> Iterator[Any]:
        yield writer, lambda: SPARK

    monkeypatch.setattr(job, "_writer", given)
    job.run_update([tmp_path / "logs"], tmp_path / "lake", progress=lambda _: None)
    assert len(lake.taken) == orders
    assert writer.ordered() == []
    fills, said = full, list[str]()
    job.run_update([tmp_path / "logs"], tmp_path / "lake", progress=said.append)
    assert said == ["nothing new in the logs"]
    assert len(lake.taken) == orders


def test_who_follows_looks_again_after_its_time_and_tells_what_was_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And ends with what ended its stream."""
    writer, ended = writer_of(tmp_path, monkeypatch, Taking()), threading.Event()

    class Query:
        failure: Exception | None = None
        stopped = 0

        def exception(self) -> Exception | None:
            for order in writer.ordered():
                writer.carry_out(order.name, order.read_text())
                ended.set()
            return self.failure

        def stop(self) -> None:
            self.stopped += 1

    @contextmanager
    def given(*_: Any) -> Iterator[Any]:
        yield writer, lambda: SPARK

    query = Query()
    monkeypatch.setattr(job, "_writer", given)
    monkeypatch.setattr(job, "_stream", lambda *_: query)
    monkeypatch.setattr(job, "_POLL_S", 0)
    found = job.run_follow([tmp_path / "logs"], tmp_path / "lake", stop=ended, progress=lambda _: None)
    assert (found.added_lines, query.stopped) == (5, 1)
    query.failure = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        job.run_follow(
            [tmp_path / "logs"], tmp_path / "lake", stop=threading.Event(), progress=lambda _: None
        )
    assert query.stopped == 2


def test_columns_of_a_partition_are_told_apart(tmp_path: Path) -> None:
    """Small files are those of one day and kind."""
    files: Mapping[str, Any] = {
        f"{day}{kind}{n}": add_action(f"{day}{kind}{n}", {"day": day, "kind": kind}, 10)["add"]
        for day, kind, count in (("1", "a", 8), ("1", "b", 7), ("2", "a", 7))
        for n in range(count)
    }
    assert len(compaction.scattered(Snapshot(files=dict(files)))) == 8
