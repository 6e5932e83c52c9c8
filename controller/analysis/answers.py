"""Rows of many small queries, fetched by one Spark job: on its own, each costs more than its work."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import TimestampType

Row = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """The first ``limit`` rows of ``table`` (None: all) in this ``order`` (of columns; none: any order), and by all
    their columns if they are equal in it, so that the answer is the same however the table was made."""

    table: DataFrame
    order: Sequence[Column]
    limit: int | None


def fetch(queries: Mapping[str, Query]) -> dict[str, list[Row]]:
    """The rows of each query, by its name, as dictionaries, with times as datetime in UTC."""
    answers: dict[str, list[Row]] = {name: [] for name in queries}
    if not queries:
        return answers
    asked = reduce(DataFrame.unionAll, (_as_text(name, query) for name, query in queries.items()))
    times = {name: _times(query.table) for name, query in queries.items()}
    # Each task of a job gets all of its plan: one is enough.
    for name, text in asked.coalesce(1).collect():
        row = json.loads(text)
        for key in times[name]:
            row[key] = None if row[key] is None else datetime.fromtimestamp(row[key] / 1e6, UTC)
        answers[name].append(row)
    return answers


def _as_text(name: str, query: Query) -> DataFrame:
    """Rows as JSON, as rows of different tables share no columns. A union keeps the order of its parts' rows."""
    table, times = query.table, _times(query.table)
    ordered = table.orderBy(*query.order, *table.columns) if query.order else table
    if query.limit is not None:
        ordered = ordered.limit(query.limit)
    values = [(F.unix_micros(key) if key in times else F.col(key)).alias(key) for key in table.columns]
    text = F.to_json(F.struct(*values), {"ignoreNullFields": "false"})
    return ordered.select(F.lit(name).alias("name"), text.alias("row"))


def _times(table: DataFrame) -> set[str]:
    return {field.name for field in table.schema if isinstance(field.dataType, TimestampType)}
