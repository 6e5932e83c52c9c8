"""What a lake on S3 makes of the answers of Hadoop's client; the real one: `test_storage`, ``make spark-s3``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from controller.analysis.lake.errors import LakeError
from controller.analysis.lake.s3_storage import S3Storage

ROOT = "s3a://bucket/lake"


def raised(name: str) -> Py4JJavaError:
    """What py4j makes of an exception of this class."""
    kind = SimpleNamespace(getName=lambda: name)
    return Py4JJavaError("An error", SimpleNamespace(_target_id="o1", getClass=lambda: kind))


class Path:
    def __init__(self, url: str, client: Client) -> None:
        self.url, self.client = url, client

    def __str__(self) -> str:
        return self.url

    toString = __str__  # noqa: N815

    def getFileSystem(self, _: object) -> Client:
        return self.client


class Client:
    """Hadoop's, with objects in memory; each write comes a second after the one before. ``overwrites``: the server
    does not know If-None-Match."""

    def __init__(self, *, overwrites: bool = False) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.overwrites, self.now_ms = overwrites, 0

    def path(self, url: str) -> Path:
        return Path(url, self)

    def _stream(self, path: Path, *, absent: bool = False) -> Any:
        written = bytearray()

        def close() -> None:
            if absent and path.url in self.objects and not self.overwrites:
                raise raised("org.apache.hadoop.fs.PathExistsException")
            self.now_ms += 1000
            self.objects[path.url] = bytes(written), self.now_ms

        return SimpleNamespace(write=written.extend, close=close)

    def create(self, path: Path, _: bool) -> Any:
        return self._stream(path)

    def createFile(self, path: Path) -> Any:
        asked: dict[str, bool] = {}
        builder: Any = SimpleNamespace(
            overwrite=lambda _: builder,
            must=lambda option, value: asked.update({option: value}) or builder,
            build=lambda: self._stream(
                path, absent=asked.get("fs.option.create.conditional.overwrite", False)
            ),
        )
        return builder

    def open(self, path: Path) -> Any:
        if path.url not in self.objects:
            raise raised("java.io.FileNotFoundException")
        return SimpleNamespace(readAllBytes=lambda: self.objects[path.url][0], close=lambda: None)

    def listFiles(self, path: Path, _: bool) -> Any:
        found = [
            SimpleNamespace(
                getPath=lambda url=url: self.path(url),
                getLen=lambda data=data: len(data),
                getModificationTime=lambda ms=ms: ms,
            )
            for url, (data, ms) in self.objects.items()
            if url.startswith(path.url)
        ]
        if not found:
            raise raised("java.io.FileNotFoundException")
        return SimpleNamespace(hasNext=lambda: bool(found), next=lambda: found.pop(0))

    def delete(self, path: Path, _: bool) -> None:
        self.objects.pop(path.url, None)


def reach(client: Client) -> S3Storage:
    fs = SimpleNamespace(Path=client.path)
    jvm: Any = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=fs))))
    return S3Storage(jvm, None, ROOT)


def test_what_is_absent_is_told() -> None:
    storage = reach(Client())
    with pytest.raises(FileNotFoundError):
        storage.read("a")
    assert list(storage.found("a/", "")) == []


def test_of_two_writers_the_second_is_told_unless_both_are_one() -> None:
    """Whose answer was lost sends its request again, and is refused."""
    storage = reach(Client())
    assert storage.write_new("a", b"one")
    assert not storage.write_new("a", b"two")
    assert storage.write_new("a", b"one")
    assert storage.read("a") == b"one"


def test_a_touched_object_is_younger_and_goes_as_a_whole() -> None:
    client = Client()
    storage = reach(client)
    for name in ("d/a.parquet", "d/b.parquet"):
        storage.write(name, b"x")
    storage.touch("d/a.parquet")
    assert {one.name: one.changed_ms for one in storage.found("d/", ".parquet")} == {
        "d/a.parquet": 3000,
        "d/b.parquet": 2000,
    }
    storage.delete("d/a.parquet")
    assert list(client.objects) == [f"{ROOT}/d/b.parquet"]


@pytest.mark.parametrize("overwrites", [False, True])
def test_a_server_that_overwrites_is_written_nothing(overwrites: bool) -> None:
    client = Client(overwrites=overwrites)
    storage = reach(client)
    if overwrites:
        with pytest.raises(LakeError, match="ignores If-None-Match"), storage.writing():
            raise AssertionError
    else:
        with storage.writing():
            storage.write("a", b"x")
    assert len(client.objects) == int(not overwrites), "the probe is gone"
