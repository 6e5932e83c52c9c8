"""``pctl report``: the state-change logs of all nodes, analysed with Spark."""

from __future__ import annotations

from pathlib import Path

import click

from controller.cli.common.options import FILE, Options, Verb
from controller.cli.common.output import fail, note, print_fields
from controller.errors import ControllerError


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
@click.pass_obj
def report(
    options: Options, log_dirs: tuple[str, ...], lake: Path | None, out_dir: Path, master: str | None
) -> None:
    """Analyse the state-change logs of all nodes with Spark: Parquet tables and one HTML page."""
    if bool(log_dirs) == bool(lake):
        raise click.UsageError("give either LOGDIR... or --lake DIR")
    # Imported here: importing Spark takes a second, and no other verb needs it.
    from controller.analysis.job import run_report

    try:
        summary = run_report(log_dirs, out_dir, lake=lake, master=master, progress=note)
    except ControllerError as error:
        fail(str(error))
    fields = {name: getattr(summary, name) for name in summary.__dataclass_fields__}
    print_fields({k: str(v) if hasattr(v, "isoformat") else v for k, v in fields.items()}, options.output)
