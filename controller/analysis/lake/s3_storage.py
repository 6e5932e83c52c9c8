"""A lake's files on S3, through Hadoop's client of it.

There is no lock: of two writers of one version, the one whose commit comes second is told. So no writer may delete
what another one is about to commit; what no commit names is left alone for a day.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from controller.analysis.lake.errors import LakeError
from controller.analysis.lake.storage import Stored
from controller.analysis.session import first_line

#: PUT with If-None-Match.
_IF_ABSENT = "fs.option.create.conditional.overwrite"
_ABSENT = "java.io.FileNotFoundException"
#: An object's time cannot be set: that of an empty one beside it stands for it.
_TOUCHED = ".touched"
_PROBE = "_probe-"


class S3Storage:
    """A lake below ``url`` (s3a://BUCKET/PREFIX)."""

    alone = False

    def __init__(self, jvm: Any, configuration: Any, url: str) -> None:
        """``configuration``: Hadoop's."""
        self._jvm, self._root = jvm, url.rstrip("/")
        self._files: Any = self._path("").getFileSystem(configuration)

    @classmethod
    def of(cls, spark: SparkSession, url: str) -> Self:
        jsc: Any = spark.sparkContext._jsc
        return cls(spark.sparkContext._jvm, jsc.hadoopConfiguration(), url)

    @property
    def shown(self) -> str:
        return self._root

    def url(self, name: str = "") -> str:
        return f"{self._root}/{name}" if name else self._root

    def names(self, directory: str) -> list[str]:
        try:
            return [status.getPath().getName() for status in self._files.listStatus(self._path(directory))]
        except Py4JJavaError as error:
            if _is_absent(error):
                return []
            raise

    def found(self, beginning: str, end: str) -> Iterator[Stored]:
        folder = beginning.rpartition("/")[0]
        stored: dict[str, Stored] = {}
        try:
            listed = self._files.listFiles(self._path(folder), True)
            while listed.hasNext():
                status = listed.next()
                name = status.getPath().toString().removeprefix(f"{self._root}/")
                stored[name] = Stored(name, status.getLen(), status.getModificationTime())
        except Py4JJavaError as error:
            if not _is_absent(error):
                raise
        for name, file in stored.items():
            if name.startswith(beginning) and name.endswith(end):
                yield Stored(name, file.size, stored.get(name + _TOUCHED, file).changed_ms)

    def read(self, name: str) -> bytes:
        try:
            stream = self._files.open(self._path(name))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()
        except Py4JJavaError as error:
            if _is_absent(error):
                raise FileNotFoundError(2, "no such object", self.url(name)) from error
            raise

    def write(self, name: str, content: bytes) -> None:
        stream = self._files.create(self._path(name), True)
        stream.write(bytearray(content))
        stream.close()

    def write_new(self, name: str, content: bytes) -> bool:
        """A refusal may be of our own request, sent again because its answer was lost: reading tells."""
        try:
            builder = self._files.createFile(self._path(name)).overwrite(True)
            stream = builder.must(_IF_ABSENT, True).build()
            stream.write(bytearray(content))
            stream.close()
        except Py4JJavaError:
            with suppress(FileNotFoundError):
                return self.read(name) == content
            raise
        return True

    def move(self, name: str, to: str) -> None:
        if not self._files.rename(self._path(name), self._path(to)):
            raise LakeError(f"{self.url(name)}: could not be moved to {self.url(to)}")

    def touch(self, name: str) -> None:
        self.write(name + _TOUCHED, b"")

    def delete(self, name: str) -> None:
        self._files.delete(self._path(name), True)
        self._files.delete(self._path(name + _TOUCHED), False)

    def now_ms(self) -> int:
        name = f"{_PROBE}{uuid.uuid4()}"
        self.write(name, b"")
        try:
            return int(self._files.getFileStatus(self._path(name)).getModificationTime())
        finally:
            self.delete(name)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Whoever overwrites what should be refused would let two writers commit one version."""
        name = f"{_PROBE}{uuid.uuid4()}"
        try:
            refused = self.write_new(name, b"first") and not self.write_new(name, b"second")
        except Py4JJavaError as error:
            raise LakeError(f"{self._root}: {first_line(error)}") from error
        finally:
            with suppress(Py4JJavaError):
                self.delete(name)
        if not refused:
            raise LakeError(
                f"{self._root}: this server of S3 ignores If-None-Match, by which a lake keeps two writers apart: use "
                "another one, or a directory of this machine"
            )
        yield

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.url(name) if name else f"{self._root}/")


def _is_absent(error: Py4JJavaError) -> bool:
    return str(error.java_exception.getClass().getName()) == _ABSENT
