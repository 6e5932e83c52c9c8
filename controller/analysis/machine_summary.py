"""The summary of a report for machines (docs/report.md lists its keys). Imports no Spark."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controller.analysis.summary import ReportSummary

#: Raised when a key goes or changes its meaning, not when one is added.
SCHEMA = 1


def summary_data(summary: ReportSummary, exit_status: int) -> dict[str, Any]:
    """The figures of a report that was made, as values that JSON has; durations in seconds."""
    return {
        "schema": SCHEMA,
        "exit_status": exit_status,
        "error": None,
        "page": summary.page,
        "tables": summary.tables_dir,
        "first_ts": _time(summary.first_ts),
        "last_ts": _time(summary.last_ts),
        "input": {
            "files": summary.files,
            "damaged_files": summary.damaged_files,
            "lines": summary.lines,
            "unread": summary.unread,
            "torn": summary.torn,
            "malformed": summary.malformed,
            "newer_schema": summary.newer_schema,
            "copies": summary.copies,
            "dropped": summary.dropped,
        },
        "failovers": {"count": summary.failovers, "slowest_seconds": _seconds(summary.slowest_failover_us)},
        "outages": {
            "count": summary.outages,
            "open": summary.still_leaderless,
            "seconds": _seconds(summary.outage_us),
            "longest_seconds": _seconds(summary.longest_us if summary.outages else None),
            "longest_partition": summary.longest_partition,
            "longest_cause": summary.longest_cause,
            "repaired": summary.repaired,
            "mean_repair_seconds": _seconds(summary.mean_repair_us),
            "p50_repair_seconds": _seconds(summary.p50_repair_us),
            "p95_repair_seconds": _seconds(summary.p95_repair_us),
        },
        "availability": {
            "percent": summary.availability,
            "slo": summary.slo,
            "topics_below_slo": summary.topics_below_slo,
        },
        "flapping_brokers": summary.flapping_brokers,
        "rolling_restarts": {"count": summary.rolling_restarts, "with_findings": summary.rough_restarts},
        "open_operations": summary.open_operations,
        "rejects": summary.rejects,
        "two_masters": summary.two_masters,
        "superseded": summary.superseded,
        "problems": [
            {"problem": trouble.problem.value, "count": trouble.count, "text": trouble.text}
            for trouble in summary.problems()
        ],
    }


def failure_data(error: str, exit_status: int) -> dict[str, Any]:
    """Instead, if no report was made."""
    return {"schema": SCHEMA, "exit_status": exit_status, "error": error}


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
