"""The Spark job behind `pctl report --at` and `--diff`: tables of the state, and a summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.answers import Query, Row, fetch
from controller.analysis.errors import ReportError
from controller.analysis.local_files import check_local, output, spark_path
from controller.analysis.notebook.logs import Logs, open_logs, spark_errors
from controller.analysis.progress import Phase, Progress, entered, stage_progress
from controller.analysis.travel import differences, state
from controller.analysis.travel.moments import Corrections, Cut, Moment, corrected, cut_at, shown
from proto.statelog.schema import NEW

#: Differences, and partitions without a leader, that the summary names; all are in the tables.
NAMED_MAX = 1_000


def run_travel(
    log_dirs: Sequence[Path | str],
    out_dir: Path | str,
    moments: Sequence[Moment],
    *,
    lake: Path | str | None = None,
    master: str | None = None,
    progress: Progress,
) -> dict[str, Any]:
    """The state at one moment, or at two with the differences: tables in ``out_dir``/tables. From logs or a lake.

    Out: the summary, ready for JSON. Raises ReportError, EnvironmentFault without Java.
    """
    if lake is None:
        check_local(log_dirs)
    try:
        with output(out_dir) as (out, _):
            progress("starting Spark")
            entered(progress, Phase.SPARK)
            with (
                open_logs(
                    *log_dirs,
                    lake=lake,
                    master=master,
                    staging=f"{spark_path(out)}/_staging",
                    progress=progress,
                ) as logs,
                stage_progress(logs.spark.sparkContext, progress),
                spark_errors(),
            ):
                tables = _Tables(logs, f"{spark_path(out)}/tables")
                return _travel(logs, tables, moments, progress) | {"tables": f"{out_dir}/tables"}
    except OSError as error:
        raise ReportError(f"{error.filename or out_dir}: {error.strerror or error}") from error


class _Tables:
    """Writes tables, and reads them back: what is made of them is then not computed again."""

    def __init__(self, logs: Logs, directory: str) -> None:
        self._logs, self._directory = logs, directory

    def write(self, name: str, table: DataFrame) -> DataFrame:
        path = f"{self._directory}/{name}"
        table.write.mode("overwrite").parquet(path)
        return self._logs.spark.read.schema(table.schema).parquet(path)


def _travel(logs: Logs, tables: _Tables, moments: Sequence[Moment], progress: Progress) -> dict[str, Any]:
    cuts = [cut_at(moment, logs.terms, logs.corrections) for moment in moments]
    progress("rebuilding the state at " + " and ".join(cut.shown for cut in cuts))
    make: Mapping[str, Callable[..., DataFrame]] = {
        "state_partitions": state.state_partitions,
        "state_brokers": state.state_brokers,
    }
    tables.write("clock_skew", logs.clock_skew())
    states: dict[str, list[DataFrame]] = {}
    for name, of in make.items():
        made = [
            of(logs.records, cut, logs.corrections).withColumn("moment", F.lit(cut.shown)) for cut in cuts
        ]
        whole = tables.write(name, reduce(DataFrame.unionByName, made))
        states[name] = [whole.where(F.col("moment") == cut.shown) for cut in cuts]
    pairs = zip(states["state_partitions"], states["state_brokers"], strict=True)
    told = [_state(logs, cut, *pair) for cut, pair in zip(cuts, pairs, strict=True)]
    clocks = {f"{role} {node}": us for (role, node), us in logs.corrections.items() if us}
    if len(cuts) == 1:
        return {**told[0], "clock_corrections_us": clocks}
    changed = _differences(tables, told, states)
    return {"former": told[0], "later": told[1], **changed, "clock_corrections_us": clocks}


def _state(logs: Logs, cut: Cut, partitions: DataFrame, brokers: DataFrame) -> dict[str, Any]:
    """The state at a moment, in figures."""
    known, status = F.col("status") == state.KNOWN, F.col("status")
    without = known & _without_leader()
    short = F.size("isr") < F.size("replicas")
    counts: Sequence[Column] = [
        F.count_distinct("topic").alias("topics"),
        F.count_if(known).alias("known"),
        F.count_if(status == state.UNKNOWN).alias("unknown"),
        F.count_if(without).alias("leaderless"),
        F.count_if(short).alias("under_replicated"),
        F.count_if(known & F.col("replicas").isNull()).alias("replicas_unknown"),
    ]
    lost = partitions.where(without).select(F.concat_ws("-", "topic", "partition").alias("name"))
    rows = fetch(
        {
            "counts": Query(partitions.agg(*counts), [], 1),
            "leaderless": Query(lost, [F.col("name")], NAMED_MAX),
            "brokers": Query(brokers.select("broker", "live"), [F.col("broker")], 100_000),
        }
    )
    counted, term = rows["counts"][0], cut.term
    expected = state.partitions_expected(logs.records, cut, logs.corrections)
    listed = counted["known"] + counted["unknown"]
    return {
        "at": cut.shown,
        "controller": term.node,
        "controller_epoch": term.epoch,
        "controller_state": _controller_state(cut, logs.corrections),
        "ready": None if term.ready_us is None else shown(term.ready_us),
        "live_brokers": [row["broker"] for row in rows["brokers"] if row["live"]],
        "gone_brokers": [row["broker"] for row in rows["brokers"] if row["live"] is False],
        "unknown_brokers": [row["broker"] for row in rows["brokers"] if row["live"] is None],
        **counted,
        "partitions_expected": expected,
        "unaccounted": None if expected is None else expected - listed,
        "leaderless_named": [row["name"] for row in rows["leaderless"]],
        "gaps": _gaps(cut, counted, expected, listed),
    }


def _controller_state(cut: Cut, corrections: Corrections) -> str:
    term, until_us = cut.term, cut.until_us
    told_us = None if term.resigned_us is None else corrected(term.resigned_us, term, corrections)
    if told_us is not None and until_us is not None and told_us <= until_us:
        return "resigned"
    return "active" if cut.base is term else "failing over"


def _without_leader() -> Column:
    leader = F.col("leader")
    return (
        leader.isNull()
        | (leader == -1)
        | F.coalesce(F.col("state").isin("OfflinePartition", NEW), F.lit(False))
    )


def _gaps(cut: Cut, counted: Row, expected: int | None, listed: int) -> list[str]:
    """What the logs do not tell of the moment."""
    found = []
    if cut.base is None:
        found.append(
            "no failover was over before it in the logs: partitions and brokers that had not changed since are missing"
        )
    elif not cut.base.names_all_brokers:
        how_many = (
            f"counted {cut.base.brokers} brokers at its failover" if cut.base.brokers else "found brokers"
        )
        found.append(
            f"the controller of epoch {cut.base.epoch} {how_many}, and the logs name {cut.base.named} of them"
        )
    if counted["unknown"]:
        found.append(f"{counted['unknown']:,} partitions are named only later: their state was not known")
    if counted["replicas_unknown"]:
        found.append(f"of {counted['replicas_unknown']:,} partitions the replicas are not in the logs")
    if expected is None and cut.base is not None:
        found.append("a topic was removed by hand: how many partitions there were is not known")
    if expected is not None and expected > listed:
        found.append(f"{expected - listed:,} more partitions existed, and no record names them")
    if expected is not None and expected < listed:
        why = "their deletion is not in the logs"
        found.append(f"{listed - expected:,} partitions were gone by then: {why}")
    return found


def _differences(
    tables: _Tables, told: Sequence[dict[str, Any]], states: Mapping[str, Sequence[DataFrame]]
) -> dict[str, Any]:
    partitions = tables.write(
        "state_differences", differences.partition_differences(*states["state_partitions"])
    )
    brokers = tables.write(
        "state_broker_differences", differences.broker_differences(*states["state_brokers"])
    )
    by_field = partitions.groupBy("field").agg(F.count("*").alias("count"))
    # Which partition has another leader says more than whose leader epoch went up.
    rank = F.when(F.col("field").isin("status", "leader"), 0).otherwise(1)
    rows = fetch(
        {
            "fields": Query(by_field, [F.col("field")], 100),
            "partitions": Query(
                partitions, [rank, F.col("topic"), F.col("partition"), F.col("field")], NAMED_MAX
            ),
            "brokers": Query(brokers, [F.col("broker")], NAMED_MAX),
        }
    )
    former, later = told
    controller = [
        {"field": name, "before": former[name], "after": later[name]}
        for name in ("controller", "controller_epoch", "controller_state")
        if former[name] != later[name]
    ]
    return {
        "differences": {row["field"]: row["count"] for row in rows["fields"]},
        "controller": controller,
        "brokers": _dated(rows["brokers"]),
        "partitions": _dated(rows["partitions"]),
    }


def _dated(rows: Sequence[Row]) -> list[Row]:
    """Times as text."""
    return [
        {**row, "changed_ts": None if row["changed_ts"] is None else row["changed_ts"].isoformat()}
        for row in rows
    ]
