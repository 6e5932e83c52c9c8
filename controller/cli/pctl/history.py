"""``pctl history``: what happened lately, from the active controller's memory or the log files of any nodes."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from controller.analysis import lines
from controller.analysis.errors import ReportError
from controller.cli.common.confirmation import ask
from controller.cli.common.options import FILE, Options, Verb, on_cluster
from controller.cli.common.output import fail, note, print_data, print_rows
from controller.cli.common.record_format import COLUMNS, chosen, filtering, on_the_wire, row, when
from controller.runtime.observe.history_filter import Filter
from controller.runtime.zookeeper.session import Session
from proto.gen import history_pb2 as pb
from proto.statelog.writer import format_ts

#: Bad lines that are named; all are counted.
_NAMED_MAX = 10


@click.command(cls=Verb)
@filtering
@click.option(
    "--since", "since_us", type=when, metavar="TIME", help="from then on: 10m, 2h or 2026-01-14T10:15:00Z"
)
@click.option("--until", "until_us", type=when, metavar="TIME", help="before then")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="the newest so many"
)
@click.option(
    "--state-log-dir",
    "log_dirs",
    multiple=True,
    type=FILE,
    help="read the state-change logs in and below this directory instead of asking; may be repeated",
)
@click.argument("more_dirs", nargs=-1, type=FILE, metavar="[DIR]...")
@click.pass_obj
def history(
    options: Options,
    topic: str | None,
    partition: int | None,
    brokers: tuple[int, ...],
    epoch: int | None,
    kinds: tuple[str, ...],
    since_us: int | None,
    until_us: int | None,
    limit: int,
    log_dirs: tuple[Path, ...],
    more_dirs: tuple[Path, ...],
) -> None:
    """What happened lately, oldest first: time, controller epoch, event, cause, in words, reason.

    The active controller remembers its newest records. With --state-log-dir (further DIRs may follow) the log files
    of any nodes are read, also with no controller alive, and merged by time.
    """
    wanted = chosen(topic, partition, brokers, epoch, kinds, since_us or 0, until_us or 0)
    if log_dirs:
        _print(options, _from_files([*log_dirs, *more_dirs], wanted, limit))
    elif more_dirs:
        raise click.UsageError(f"{more_dirs[0]}: directories come after --state-log-dir")
    else:
        _from_controller(options, wanted, limit)


def _print(options: Options, records: Sequence[dict[str, Any]]) -> None:
    if options.output == "table":
        print_rows([row(record) for record in records], COLUMNS, options.output)
    else:
        print_data(records, options.output)


@on_cluster
async def _from_controller(options: Options, session: Session, wanted: Filter, limit: int) -> None:
    request = pb.ListHistoryRequest(filter=on_the_wire(wanted), limit=limit)
    answer = await ask(options, session, "ListHistory", request)
    _print(options, [msgspec.json.decode(line) for line in answer.records])
    if answer.more:
        note("older ones match too: see --limit, or the log files with --state-log-dir")
    elif answer.forgotten and wanted.since_us < answer.oldest_us:
        note(
            f"the controller remembers what happened since {format_ts(answer.oldest_us)}; "
            "what was before is in its log files: --state-log-dir"
        )


def _from_files(log_dirs: Sequence[Path], wanted: Filter, limit: int) -> list[dict[str, Any]]:
    """The newest records that pass, oldest first; what cannot be read is told."""
    bad: list[lines.BadLine] = []
    count = 0

    def on_bad(line: lines.BadLine) -> None:
        nonlocal count
        count += 1
        if len(bad) < _NAMED_MAX:
            bad.append(line)

    newest: list[tuple[int, int, dict[str, Any]]] = []
    left_out = False
    try:
        files = lines.find(log_dirs)
    except ReportError as error:
        fail(str(error))
    for number, (ts_us, record) in enumerate(lines.read(files, on_bad, wanted.since_us)):
        if not wanted.covers(ts_us, record["controller_epoch"]) or not wanted.passes(record):
            continue
        # Lines of one time stay in the order in which they were written.
        item = (ts_us, number, record)
        if len(newest) < limit:
            heapq.heappush(newest, item)
        else:
            heapq.heappushpop(newest, item)
            left_out = True
    for line in bad:
        note(f"pctl: {line}")
    if count > len(bad):
        note(f"pctl: {count} lines in all could not be read")
    if left_out:
        note("older ones match too: see --limit")
    return [record for _, _, record in sorted(newest, key=lambda item: item[:2])]
