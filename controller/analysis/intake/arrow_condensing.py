"""`condensing.condense` of records that Arrow holds. Imports no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from controller.analysis.intake.fields import CONDENSED_KINDS
from proto.statelog.schema import INT64_MAX, READY

_SECOND_US = 1_000_000
_KEYS = ("role", "node", "controller_epoch", "kind", *CONDENSED_KINDS, "reason", "second_us")
#: Columns that `condense` makes, and how those of several parts are put together.
_SUMS = {
    "first_ts": "min",
    "last_ts": "max",
    "longest_us": "max",
    **dict.fromkeys(("spent_us", "lines", "counted", "meant"), "sum"),
}


def condense(columns: Mapping[str, Any], kinds: pa.DictionaryArray) -> pa.Table:
    """In: columns of records, and their kinds. Out: the same but ``file``."""

    def of_kinds(name: str, of: tuple[str, ...]) -> Any:
        return pc.if_else(is_one_of(kinds, of), columns[name], pa.NULL)

    leader = is_one_of(kinds, ("leader",))
    refused = pc.and_(is_one_of(kinds, ("ack",)), pc.is_valid(columns["error"]))
    with_reason = pc.or_(refused, is_one_of(kinds, ("reject", "leader")))
    seconds = pc.divide(columns["ts"].cast(pa.int64()), _SECOND_US)
    count, took = columns["count"], columns["duration_us"]
    given = {
        **{name: columns[name] for name in ("role", "node", "controller_epoch", "kind")},
        **{name: of_kinds(name, of) for name, of in CONDENSED_KINDS.items()},
        "reason": pc.if_else(with_reason, columns["reason"], pa.NULL),
        "second_us": pc.if_else(leader, pc.multiply(seconds, _SECOND_US), pa.NULL),
        **dict.fromkeys(("first_ts", "last_ts"), columns["ts"]),
        **dict.fromkeys(("longest_us", "spent_us"), took),
        "lines": pa.repeat(pa.scalar(1, pa.int64()), len(kinds)),
        "counted": count,
        "meant": pc.fill_null(count, 1),
    }
    return _merged(pa.table(given))


def merge(parts: list[pa.Table]) -> pa.Table | None:
    """The rows of the whole, from those of its parts; None if a sum may need more than 64 bits."""
    whole = _merged(pa.concat_tables(parts))
    most = pc.multiply(whole["longest_us"].cast(pa.float64()), whole["lines"].cast(pa.float64()))
    return whole if (pc.max(most).as_py() or 0) < INT64_MAX / 2 else None


def _merged(parts: pa.Table) -> pa.Table:
    grouped = parts.group_by(list(_KEYS), use_threads=False).aggregate(list(_SUMS.items()))
    return grouped.rename_columns([*_KEYS, *_SUMS])


def ready_times(condensed: Sequence[pa.Table]) -> dict[int, int]:
    """When failovers were over, by controller epoch, microseconds since 1970."""
    found: dict[int, int] = {}
    for table in condensed:
        ready = table.filter(pc.and_kleene(pc.equal(table["kind"], "failover"), pc.equal(table["to"], READY)))
        times = ready["first_ts"].cast(pa.int64()).to_pylist()
        for epoch, at_us in zip(ready["controller_epoch"].to_pylist(), times, strict=True):
            found[epoch] = min(at_us, found.get(epoch, at_us))
    return found


def is_one_of(kinds: pa.DictionaryArray, wanted: tuple[str, ...]) -> pa.Array:
    return pc.is_in(kinds.dictionary, _names(wanted)).take(kinds.indices)


@cache
def _names(of: tuple[str, ...]) -> pa.Array:
    return pa.array(of, pa.string())
