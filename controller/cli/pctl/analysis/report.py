"""``pctl report``: the state-change logs of all nodes, analysed with Spark."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from controller.analysis.errors import ReportError, require_spark
from controller.analysis.travel.moments import Moment, parse_moment
from controller.cli.common.options import FILE, SPARK_DIRECTORY, SPARK_MASTER, Options, Verb
from controller.cli.common.output import fail, print_data, print_fields, print_rows
from controller.cli.pctl.analysis.ending import end_in_order
from controller.core.names import ids_shown
from controller.errors import ControllerError
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE
from proto.texts import printable

#: Partitions named, and differences printed; all are in the tables.
_NAMED_MAX, _ROWS_MAX = 10, 50


@click.command(cls=Verb)
@click.argument("log_dirs", nargs=-1, type=SPARK_DIRECTORY, metavar="LOGDIR...")
@click.option("--lake", type=SPARK_DIRECTORY, help="read this lake (pctl lake) instead of logs")
@click.option(
    "--out",
    "out_dir",
    type=SPARK_DIRECTORY,
    default="report",
    show_default=True,
    help="directory of tables and page",
)
@click.option(
    "--master",
    type=SPARK_MASTER,
    help="Spark master [default: spark-submit's, else all cores of this machine]",
)
@click.option("--slo", type=float, metavar="PERCENT", help="availability that topics should have, as 99.95")
@click.option("--brokers", type=FILE, help="output of pctl brokers -o json, which tells racks")
@click.option("--json", "as_json", is_flag=True, help="the summary as JSON, also if there is no report")
@click.option("--strict", is_flag=True, help="exit code 3 if something needs attention")
@click.option(
    "--at",
    metavar="MOMENT",
    help="only the state of the cluster at a moment: a time (2026-01-14T10:15:00Z, or 10m ago: 10m), a controller epoch"
    " (7: when its failover was over), or an event of one (7:12)",
)
@click.option("--diff", nargs=2, metavar="MOMENT MOMENT", help="only what changed from one moment to another")
@click.pass_obj
def report(
    options: Options,
    log_dirs: tuple[str, ...],
    lake: str | None,
    out_dir: str,
    master: str | None,
    slo: float | None,
    brokers: Path | None,
    as_json: bool,
    strict: bool,
    at: str | None,
    diff: tuple[str, str] | None,
) -> None:
    """Analyse the state-change logs of all nodes with Spark: Parquet tables and one HTML page.

    With --at or --diff, rebuild the state of the cluster instead: leaders, ISRs, replicas, brokers and controller, as
    far as the logs tell; tables, and a summary without a page.
    """
    end_in_order()
    style = "json" if as_json else options.output
    if bool(log_dirs) == bool(lake):
        raise click.UsageError("give either LOGDIR... or --lake DIR")
    if at is not None and diff is not None:
        raise click.UsageError("--at and --diff: give one of them")
    if at is not None or diff is not None:
        if slo is not None or brokers is not None or strict:
            raise click.UsageError("--slo, --brokers and --strict: not with --at or --diff")
        _travel(log_dirs, lake, out_dir, master, [at] if at is not None else list(diff or ()), style)
        return
    # Imported here: importing Spark takes a second, and no other verb needs it.
    from controller.analysis.machine_summary import failure_data, summary_data
    from controller.analysis.progress_bar import shown
    from controller.analysis.questions.asked import Asked, read_racks

    status = EXIT_USAGE
    try:
        asked = Asked(slo, {} if brokers is None else read_racks(brokers))
        status = EXIT_FAILED
        require_spark()
        from controller.analysis.job import run_report

        with shown() as progress:
            summary = run_report(log_dirs, out_dir, lake=lake, master=master, progress=progress, asked=asked)
    except ControllerError as error:
        if style in ("json", "yaml"):
            print_data(failure_data(str(error), status), style)
        fail(str(error), status)
    status = EXIT_REFUSED if strict and summary.problems() else 0
    if style in ("json", "yaml"):
        print_data(summary_data(summary, status), style)
    elif style == "tsv":
        fields = {name: getattr(summary, name) for name in summary.__dataclass_fields__}
        print_fields({k: str(v) if hasattr(v, "isoformat") else v for k, v in fields.items()}, style)
    else:
        for line in summary.text_lines():
            click.echo(printable(line))
    sys.exit(status)


def _travel(
    log_dirs: tuple[str, ...],
    lake: str | None,
    out_dir: str,
    master: str | None,
    moments: Sequence[str],
    style: str,
) -> None:
    wanted = [_moment(text) for text in moments]
    from controller.analysis.machine_summary import failure_data
    from controller.analysis.progress_bar import shown

    try:
        require_spark()
        from controller.analysis.travel.job import run_travel

        with shown() as progress:
            summary = run_travel(log_dirs, out_dir, wanted, lake=lake, master=master, progress=progress)
    except ControllerError as error:
        if style in ("json", "yaml"):
            print_data(failure_data(str(error), EXIT_FAILED), style)
        fail(str(error))
    if style != "table":
        print_data(summary, style)
        return
    if len(wanted) == 1:
        _print_state(summary, summary)
    else:
        _print_differences(summary)


def _moment(text: str) -> Moment:
    """Raises click.BadParameter."""
    try:
        return parse_moment(text)
    except ReportError as error:
        raise click.BadParameter(str(error)) from None


def _print_state(state: dict[str, Any], summary: dict[str, Any]) -> None:
    """A moment, and where all of it is."""
    expected = state["partitions_expected"]
    partitions = f"{state['known']:,} known, {state['unknown']:,} named but unknown"
    fields = {
        "at": state["at"],
        "controller": f"{state['controller']}, epoch {state['controller_epoch']}, {state['controller_state']}",
        "ready": state["ready"],
        "live brokers": ids_shown(state["live_brokers"]),
        "gone brokers": ids_shown(state["gone_brokers"]),
        **({"unknown brokers": ids_shown(state["unknown_brokers"])} if state["unknown_brokers"] else {}),
        "topics": state["topics"],
        "partitions": partitions + ("" if expected is None else f", {expected:,} expected"),
        "leaderless": _named(state["leaderless"], state["leaderless_named"]),
        "under-replicated": state["under_replicated"],
        "tables": summary["tables"],
    }
    if corrections := summary["clock_corrections_us"]:
        fields["clocks"] = ", ".join(f"{node}: {us / 1e6:+.6f} s" for node, us in corrections.items())
    print_fields(fields, "table")
    for gap in state["gaps"]:
        click.echo(f"not known: {gap}")


def _named(count: int, names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED_MAX])
    return f"{count:,}" + (f": {shown}{', ...' if count > _NAMED_MAX else ''}" if count else "")


def _print_differences(summary: dict[str, Any]) -> None:
    """The two moments, and what changed, first of what matters most."""
    for state in (summary["former"], summary["later"]):
        _print_state(state, summary)
        click.echo()
    rows = [
        *({"what": "controller", **row} for row in summary["controller"]),
        *({"what": f"broker {row['broker']}", **row} for row in summary["brokers"]),
        *({"what": f"{row['topic']}-{row['partition']}", **row} for row in summary["partitions"]),
    ]
    print_rows(
        rows[:_ROWS_MAX], ("what", "field", "before", "after", "changed_ts", "cause", "reason"), "table"
    )
    total = sum(summary["differences"].values()) + len(summary["controller"]) + len(summary["brokers"])
    if total > _ROWS_MAX:
        click.echo(f"... {total:,} differences in all: they are in the tables")
