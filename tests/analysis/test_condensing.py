"""Records that Arrow holds, condensed by hand: what is kept of which, and how parts are put together."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from controller.analysis.intake.arrow_condensing import condense, merge, ready_times
from proto.statelog.schema import DURATION_US_MAX, READY

SECOND = 1_000_000
FIELDS = ("from", "to", "replica", "error", "reason", "duration_us", "count")
NUMBERS = ("replica", "duration_us", "count")


def condensed(*records: dict[str, Any]) -> pa.Table:
    columns: dict[str, Any] = {
        "role": pa.array(["controller"] * len(records)),
        "node": pa.array([1] * len(records), pa.int64()),
        "controller_epoch": pa.array([r.get("controller_epoch", 7) for r in records], pa.int64()),
        "kind": pa.array([r["kind"] for r in records]),
        "ts": pa.array([r["at_us"] for r in records], pa.timestamp("us", "UTC")),
    }
    for name in FIELDS:
        kind = pa.int64() if name in NUMBERS else pa.string()
        columns[name] = pa.array([r.get(name) for r in records], kind)
    return condense(columns, columns["kind"].dictionary_encode())


def test_reasons_are_kept_of_what_was_refused_and_of_leaders() -> None:
    found = condensed(
        {"kind": "ack", "at_us": 1, "error": "E", "reason": "refused", "replica": 2},
        {"kind": "ack", "at_us": 1, "reason": "of an ack that is well", "replica": 2},
        {"kind": "reject", "at_us": 1, "error": "E", "reason": "rejected"},
        {"kind": "leader", "at_us": 1, "reason": "offline"},
        {"kind": "push", "at_us": 1, "reason": "of a push", "replica": 2},
    ).to_pylist()
    assert sorted((row["kind"], row["reason"] or "") for row in found) == [
        ("ack", ""), ("ack", "refused"), ("leader", "offline"), ("push", ""), ("reject", "rejected"),
    ]  # fmt: skip


def test_leaders_of_one_second_are_one_row_and_what_has_no_count_means_one() -> None:
    leader = {"kind": "leader", "to": "1", "reason": "offline"}
    found = condensed(
        {**leader, "at_us": 5 * SECOND}, {**leader, "at_us": 6 * SECOND - 1}, {**leader, "at_us": 6 * SECOND},
        {"kind": "ack", "at_us": 1, "replica": 2, "count": 3, "duration_us": 50},
        {"kind": "ack", "at_us": 9, "replica": 2, "duration_us": 50},
    ).to_pylist()  # fmt: skip
    assert [(row["second_us"], row["lines"]) for row in found if row["kind"] == "leader"] == [
        (5 * SECOND, 2),
        (6 * SECOND, 1),
    ]
    (ack,) = (row for row in found if row["kind"] == "ack")
    assert (ack["lines"], ack["counted"], ack["meant"]) == (2, 3, 4)
    assert (ack["longest_us"], ack["spent_us"]) == (50, 100)


def test_parts_are_put_together_unless_a_sum_would_overflow() -> None:
    ack = {"kind": "ack", "at_us": 1, "replica": 2, "duration_us": 40}
    whole = merge([condensed(ack), condensed({**ack, "at_us": 9})])
    assert whole is not None
    (row,) = whole.to_pylist()
    assert (row["lines"], row["spent_us"], row["longest_us"]) == (2, 80, 40)
    longest = condensed({**ack, "duration_us": DURATION_US_MAX})
    for lines, told in ((40_000, True), (50_000, False)):
        at = longest.schema.get_field_index("lines")
        many = longest.set_column(at, "lines", pa.array([lines]))
        for parts in ([many], [condensed(ack), many]):
            assert (merge(parts) is not None) is told


def test_a_failover_is_over_with_the_first_record_that_says_so() -> None:
    def ready(at_us: int, epoch: int = 7) -> pa.Table:
        return condensed({"kind": "failover", "to": READY, "at_us": at_us, "controller_epoch": epoch})

    parts = [
        ready(9),
        ready(5),
        ready(7),
        ready(3, 8),
        condensed({"kind": "failover", "to": "x", "at_us": 1}),
    ]
    assert ready_times(parts) == {7: 5, 8: 3}
