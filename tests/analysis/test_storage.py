"""What a lake needs of a storage, of a directory and of a bucket alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from controller.analysis.lake import delta_log
from controller.analysis.lake.delta_log import DeltaLog, add_action, domain_action
from controller.analysis.lake.errors import LakeError
from controller.analysis.lake.s3_storage import S3Storage
from controller.analysis.lake.storage import LocalStorage, Storage, local_storage
from tests.support.analysis.s3 import Bucket, Middleman, fetched_jars, s3
from tests.support.broker.unsynced_names import unsynced_names

PARTITION = {"day": "2026-01-14", "kind": "leader"}
ON_S3 = [pytest.mark.slow, pytest.mark.s3_long]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    fetched_jars()
    with s3(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A JVM with Hadoop and its client of S3, without Spark."""
    conf = SparkConf(loadDefaults=False).set("spark.driver.extraClassPath", f"{fetched_jars()}/*")
    log = (tmp_path_factory.mktemp("jvm") / "log").open("wb")
    before = {name: os.environ.get(name) for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")}
    with log:
        gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        yield gateway.jvm
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
    assert SparkContext._gateway is not gateway
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)


Reach = Callable[[str, int], S3Storage]


@pytest.fixture
def reach(jvm: Any, bucket: Bucket) -> Reach:
    """The bucket below a prefix, by a port."""

    def made(prefix: str, port: int) -> S3Storage:
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        for name, value in bucket.properties.items():
            configuration.set(name, value)
        configuration.set("fs.s3a.endpoint", f"http://127.0.0.1:{port}")
        configuration.set("fs.s3a.impl.disable.cache", "true")
        return S3Storage(jvm, configuration, f"{bucket.url}/{prefix}")

    return made


@pytest.fixture(params=["local", pytest.param("s3", marks=ON_S3)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return LocalStorage(tmp_path)
    made: Reach = request.getfixturevalue("reach")
    return made(tmp_path.name, request.getfixturevalue("bucket").port)


def names(storage: Storage, beginning: str, end: str = "") -> list[tuple[str, int]]:
    return sorted((file.name, file.size) for file in storage.found(beginning, end))


def test_what_is_there_already_is_not_overwritten(storage: Storage) -> None:
    assert storage.write_new("_delta_log/0.json", b"first")
    assert not storage.write_new("_delta_log/0.json", b"second")
    assert storage.read("_delta_log/0.json") == b"first"
    storage.write("_delta_log/0.json", b"third")
    assert storage.read("_delta_log/0.json") == b"third"
    assert storage.names("_delta_log") == ["0.json"]


def test_files_are_found_by_how_their_names_begin_and_end(storage: Storage) -> None:
    assert names(storage, "day=") == []
    assert storage.names("_delta_log") == []
    for name in ("day=1/kind=a b/x.parquet", "day=1/kind=a b/x.crc", "_new/d/day=1/kind=c/y.parquet"):
        storage.write(name, b"12345")
    assert names(storage, "day=", ".parquet") == [("day=1/kind=a b/x.parquet", 5)]
    assert names(storage, "_new/d/", ".parquet") == [("_new/d/day=1/kind=c/y.parquet", 5)]
    storage.move("_new/d/day=1/kind=c/y.parquet", "day=1/kind=c/y.parquet")
    storage.delete("_new/d")
    assert names(storage, "_new/") == []
    assert storage.read("day=1/kind=c/y.parquet") == b"12345"


def test_a_touched_file_is_as_it_was_and_younger(storage: Storage) -> None:
    storage.write("_condensed/a.parquet", b"a")
    before = next(storage.found("_condensed/", ".parquet"))
    storage.touch("_condensed/a.parquet")
    (after,) = storage.found("_condensed/", ".parquet")
    assert (after.name, after.size) == (before.name, before.size)
    assert before.changed_ms <= after.changed_ms <= storage.now_ms()
    storage.delete("_condensed/a.parquet")
    assert names(storage, "_condensed/") == []


def test_what_is_absent_is_told(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read("_delta_log/_last_checkpoint")
    storage.delete("nothing")


def test_of_two_writers_of_one_version_the_second_is_told(storage: Storage) -> None:
    log = DeltaLog(storage)
    snapshot = log.create('{"type":"struct","fields":[]}')
    other = log.read()
    log.commit(snapshot, [add_action("a", PARTITION, 1)], "WRITE")
    with pytest.raises(LakeError, match="version 1 was committed by another program; nothing was written"):
        log.commit(other, [add_action("b", PARTITION, 1)], "WRITE")
    assert set(log.read().files) == {"a"}


def test_a_checkpoint_tells_what_the_commits_before_it_told(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 2)
    log = DeltaLog(storage)
    snapshot = log.create('{"type":"struct","fields":[]}')
    for number in range(3):
        log.commit(snapshot, [domain_action("n", str(number))], "WRITE")
    for version in range(3):
        storage.delete(f"_delta_log/{version:020}.json")
    assert log.read() == snapshot


def test_rows_of_an_uncommitted_write_go_when_nobody_can_be_at_it(storage: Storage) -> None:
    """At once where there is a lock; on S3 another writer may be about to commit them."""
    log = DeltaLog(storage)
    snapshot = log.create('{"type":"struct","fields":[]}')
    storage.write("day=1/kind=a/left.parquet", b"x")
    assert log.sweep(snapshot) == (1 if storage.alone else 0)
    assert bool(names(storage, "day=")) is not storage.alone


def test_a_checkpoint_tells_removals_that_readers_may_still_need() -> None:
    snapshot = delta_log.Snapshot()
    for path, removed_ms in (("old", 0), ("new", 10)):
        snapshot.apply({"remove": {"path": path, "deletionTimestamp": removed_ms}})
    snapshot.apply({"remove": {"path": "again", "deletionTimestamp": 10}})
    snapshot.apply({"add": {"path": "again", "size": 1}})
    told = [
        action["remove"]["path"]
        for action in snapshot.actions(delta_log.RETENTION_MS + 5)
        if "remove" in action
    ]
    assert told == ["new"]


def test_what_a_killed_writer_left_goes_with_the_next_one(tmp_path: Path) -> None:
    lake = LocalStorage(tmp_path)
    lake.write_new("_delta_log/0.json", b"commit")
    draft = tmp_path / "_delta_log" / ".draft-of-a-killed-writer"
    draft.touch()
    with lake.writing():
        assert [path.name for path in (tmp_path / "_delta_log").iterdir()] == ["0.json"]


def test_what_a_commit_names_outlives_a_power_cut(tmp_path: Path) -> None:
    lake = LocalStorage(tmp_path / "lake")
    with unsynced_names() as unsynced:
        lake.write_new("_new/draft/part.parquet", b"rows")
        lake.move("_new/draft/part.parquet", "day=2026-01-14/kind=leader/part.parquet")
        lake.write_new("_delta_log/0.json", b"commit")
    # Where it was moved from nothing is looked for.
    assert unsynced <= {tmp_path / "lake" / "_new" / "draft"}


@pytest.mark.slow
@pytest.mark.s3_long
def test_a_server_that_overwrites_what_it_should_refuse_gets_no_lake(bucket: Bucket, reach: Reach) -> None:
    with Middleman(bucket.port, forgets="If-None-Match").running() as port:
        storage = reach("forgetful", port)
        with pytest.raises(LakeError, match="this server of S3 ignores If-None-Match"), storage.writing():
            pass
    with reach("forgetful", bucket.port).writing():
        pass
    assert [name for name in bucket.names("forgetful/") if not name.endswith("/")] == []


@pytest.mark.slow
@pytest.mark.s3_long
def test_a_commit_whose_answer_was_lost_is_known_to_have_landed(bucket: Bucket, reach: Reach) -> None:
    """The client asks again, and is refused: by what it had written itself."""
    middleman = Middleman(bucket.port, loses=1)
    with middleman.running() as port:
        log = DeltaLog(reach("lost", port))
        log.create('{"type":"struct","fields":[]}')
    assert middleman.loses == 0
    assert DeltaLog(reach("lost", bucket.port)).read().version == 0


@pytest.mark.parametrize("lake", ["hdfs://host/lake", "s3://bucket/lake", "file:/lake"])
def test_a_lake_elsewhere_is_refused(lake: str) -> None:
    with pytest.raises(LakeError, match=r"a directory of this machine, or one on S3: s3a://BUCKET"):
        local_storage(lake)
