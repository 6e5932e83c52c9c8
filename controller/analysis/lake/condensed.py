"""Condensed records (`condensing`) of all lines in the lake, from which a report makes nearly all of its tables.

They are in Parquet files beside the table's own. The table's commits name them, as domain metadata: they come and go
with the rows that they condense. Their ``file`` is the rows' ``log_file``.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.condensing import COLUMNS, condense, merge
from controller.analysis.intake import reading
from controller.analysis.lake.delta_log import RETENTION_MS, Action, Snapshot, domain_action
from controller.analysis.lake.storage import Storage

#: Other readers of the table leave directories alone whose names begin so.
DIRECTORY = "_condensed"
STATUSES = (reading.OK, reading.TORN, reading.MALFORMED, reading.NEWER)
_DOMAIN = "statelog.condensed."
_COLUMNS = ", ".join([COLUMNS, *(f"{status} bigint" for status in STATUSES)])


def condense_rows(rows: DataFrame) -> DataFrame:
    """`condense` of rows of the table, with the number of lines by status. Of lines that cannot be read there is
    nothing but these numbers, under their kind."""
    ok = F.col("status") == reading.OK
    good = {name: F.when(ok, F.col(name)) for name in ("role", "node", "controller_epoch")}
    by_status = [F.count_if(F.col("status") == status).alias(status) for status in STATUSES]
    return condense(rows.withColumns({**good, "file": F.col("log_file")}), *by_status)


def merge_condensed(condensed: DataFrame) -> DataFrame:
    """What `condense_rows` makes of all rows, from what it made of parts of them."""
    return merge(condensed, *(F.sum(status).alias(status) for status in STATUSES))


def read_condensed(spark: SparkSession, storage: Storage, names: Iterable[str]) -> DataFrame:
    """The rows of these files, which `condense_rows` made of any number of parts."""
    given = [storage.url(f"{DIRECTORY}/{name}") for name in names]
    if not given:
        return spark.createDataFrame([], _COLUMNS)
    return spark.read.option("__globPaths__", "false").schema(_COLUMNS).parquet(*given)


def condensed_files(snapshot: Snapshot) -> dict[str, int]:
    """Bytes by name of file."""
    return {
        domain.removeprefix(_DOMAIN): int(size)
        for domain, size in snapshot.domains.items()
        if domain.startswith(_DOMAIN)
    }


def added(name: str, size: int) -> Action:
    return domain_action(_DOMAIN + name, str(size))


def replaced(storage: Storage, name: str) -> Action:
    """The file stays for a day from now, for those that read it."""
    storage.touch(f"{DIRECTORY}/{name}")
    return domain_action(_DOMAIN + name, "", removed=True)


def sweep(storage: Storage, snapshot: Snapshot) -> None:
    """Delete files that no commit names for a day. For a writer."""
    kept, oldest_ms = condensed_files(snapshot), storage.now_ms() - RETENTION_MS
    for file in storage.found(f"{DIRECTORY}/", ".parquet"):
        if file.name.removeprefix(f"{DIRECTORY}/") not in kept and file.changed_ms < oldest_ms:
            storage.delete(file.name)
