"""``pctl report``: the state-change logs of all nodes, analysed with Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from controller.cli.common.options import FILE, Options, Verb
from controller.cli.common.output import fail, print_data, print_fields
from controller.errors import ControllerError
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE


@click.command(cls=Verb)
@click.argument("log_dirs", nargs=-1, metavar="LOGDIR...")
@click.option("--lake", type=FILE, help="read this lake (pctl lake) instead of logs")
@click.option(
    "--out",
    "out_dir",
    type=click.Path(path_type=Path),
    default=Path("report"),
    show_default=True,
    help="directory of tables and page",
)
@click.option("--master", help="Spark master [default: all cores of this machine]")
@click.option("--slo", type=float, metavar="PERCENT", help="availability that topics should have, as 99.95")
@click.option("--brokers", type=FILE, help="output of pctl brokers -o json, which tells racks")
@click.option("--json", "as_json", is_flag=True, help="the summary as JSON, also if there is no report")
@click.option("--strict", is_flag=True, help="exit code 3 if something needs attention")
@click.pass_obj
def report(
    options: Options,
    log_dirs: tuple[str, ...],
    lake: Path | None,
    out_dir: Path,
    master: str | None,
    slo: float | None,
    brokers: Path | None,
    as_json: bool,
    strict: bool,
) -> None:
    """Analyse the state-change logs of all nodes with Spark: Parquet tables and one HTML page."""
    if bool(log_dirs) == bool(lake):
        raise click.UsageError("give either LOGDIR... or --lake DIR")
    # Imported here: importing Spark takes a second, and no other verb needs it.
    from controller.analysis.machine_summary import failure_data, summary_data
    from controller.analysis.progress_bar import shown
    from controller.analysis.questions.asked import Asked, read_racks

    style = "json" if as_json else options.output
    status = EXIT_USAGE
    try:
        asked = Asked(slo, {} if brokers is None else read_racks(brokers))
        status = EXIT_FAILED
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
    else:
        fields = {name: getattr(summary, name) for name in summary.__dataclass_fields__}
        print_fields({k: str(v) if hasattr(v, "isoformat") else v for k, v in fields.items()}, style)
    sys.exit(status)
