"""``pctl history`` and ``pctl watch``: past and new records of the state-change log."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from controller.analysis import lines
from controller.analysis.errors import ReportError
from controller.cli.common.cluster_state import fail_without_cluster
from controller.cli.common.options import FILE, Options, Seconds, Verb, on_cluster
from controller.cli.common.output import fail, note, print_data, print_item, print_rows
from controller.cli.common.record_format import (
    COLUMNS,
    filter_message,
    filter_of,
    filter_options,
    parse_time,
    record_line,
    record_row,
)
from controller.client import admin
from controller.core import znode_paths
from controller.core.names import counted
from controller.errors import ControllerError
from controller.runtime.observe.history_filter import Filter
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import ConnectionLossError, NoNodeError, Session
from proto.gen import history_pb2 as pb
from proto.statelog.writer import format_ts
from proto.tasks import end_all

#: Bad lines that are printed; all are counted.
_NAMED_MAX = 10


@click.command(cls=Verb)
@filter_options
@click.option(
    "--since",
    "since_us",
    type=parse_time,
    metavar="TIME",
    help="only records since TIME: 10m (ago), 2h or 2026-01-14T10:15:00Z",
)
@click.option("--until", "until_us", type=parse_time, metavar="TIME", help="only records before TIME")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="only the newest records, this many",
)
@click.option(
    "--state-log-dir",
    "log_dirs",
    multiple=True,
    type=FILE,
    help="read the log files in and below this directory, not the controller's memory; may be repeated",
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
    all_kinds: bool,
    since_us: int | None,
    until_us: int | None,
    limit: int,
    log_dirs: tuple[Path, ...],
    more_dirs: tuple[Path, ...],
) -> None:
    """Print state-change records, oldest first: time, controller epoch, event, cause, what happened, reason.

    Every candidate keeps its newest records in memory, of all its terms, and is asked. With --state-log-dir (more DIRs
    may follow) the log files of any nodes are read instead and merged by time; no controller is needed.
    """
    wanted = filter_of(topic, partition, brokers, epoch, kinds, all_kinds, since_us or 0, until_us or 0)
    if log_dirs:
        _print_records(options, _from_files([*log_dirs, *more_dirs], wanted, limit))
    elif more_dirs:
        raise click.UsageError(f"{more_dirs[0]}: directories come after --state-log-dir")
    else:
        _from_controller(options, wanted, limit)


def _print_records(options: Options, records: Sequence[dict[str, Any]]) -> None:
    if options.output == "table":
        print_rows([record_row(record) for record in records], COLUMNS, options.output)
    else:
        print_data(records, options.output)


@on_cluster
async def _from_controller(options: Options, session: Session, wanted: Filter, limit: int) -> None:
    cluster_state = await cluster_reader.look(session, topics=())
    await fail_without_cluster(options.zookeeper, session, cluster_state)
    if not cluster_state.controllers:
        fail("no controller of ours is registered: see the log files with --state-log-dir")
    request = pb.ListHistoryRequest(filter=filter_message(wanted), limit=limit, standby_too=True)
    outcomes = await asyncio.gather(
        *(_asked(options, candidate.endpoint, request) for candidate in cluster_state.controllers)
    )
    answers = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    problems = [outcome for outcome in outcomes if isinstance(outcome, str)]
    if not answers:
        fail(f"{'; '.join(problems)}; see the log files with --state-log-dir")
    for problem in problems:
        note(f"pctl: {problem}")
    # The records of one controller are in order; equal times keep that.
    merged = heapq.merge(*(map(_timed, answer.records) for answer in answers), key=lambda item: item[0])
    newest = deque((record for _, record in merged), maxlen=limit)
    _print_records(options, list(newest))
    if any(answer.more for answer in answers) or sum(len(answer.records) for answer in answers) > limit:
        note("older records match too: see --limit, or the log files with --state-log-dir")
    for answer in answers:
        if answer.forgotten and wanted.since_us < answer.oldest_us:
            note(
                f"controller {answer.controller_id} has records since {format_ts(answer.oldest_us)} in memory; "
                "older records are in its log files: --state-log-dir"
            )


def _timed(text: str) -> tuple[int, dict[str, Any]]:
    record: dict[str, Any] = msgspec.json.decode(text)
    return lines.time_of(record["ts"]), record


async def _asked(
    options: Options, endpoint: str, request: pb.ListHistoryRequest
) -> pb.ListHistoryResponse | str:
    """What a candidate has in memory; as text why it did not answer, if it did not."""
    try:
        answer: pb.ListHistoryResponse = await admin.ask(
            endpoint, "ListHistory", request, options.timeout_s, options.tls
        )
    except admin.RequestFailedError as error:
        return str(error)
    return answer


def _from_files(log_dirs: Sequence[Path], wanted: Filter, limit: int) -> list[dict[str, Any]]:
    """The newest records that pass the filter, oldest first, each once; unreadable lines are noted."""
    bad: list[lines.BadLine] = []
    count = 0

    def on_bad(line: lines.BadLine) -> None:
        nonlocal count
        count += 1
        if len(bad) < _NAMED_MAX:
            bad.append(line)

    newest: list[tuple[int, int, bytes]] = []
    # Those in ``newest``: a copied directory, or a rotated file beside its incomplete gzip, has them again.
    held: set[bytes] = set()
    left_out = False
    try:
        files = lines.find(log_dirs)
    except ReportError as error:
        fail(str(error))
    for number, (ts_us, record) in enumerate(lines.read(files, on_bad, wanted.since_us)):
        if not wanted.covers(ts_us, record["controller_epoch"]) or not wanted.passes(record):
            continue
        text = msgspec.json.encode(record)
        if text in held:
            continue
        # Records with equal times keep their order.
        heapq.heappush(newest, (ts_us, number, text))
        held.add(text)
        if len(newest) > limit:
            held.remove(heapq.heappop(newest)[2])
            left_out = True
    for bad_line in bad:
        note(f"pctl: {bad_line}")
    if count > len(bad):
        note(f"pctl: {counted(count, 'line')} in all could not be read")
    if left_out:
        note("older records match too: see --limit")
    return [msgspec.json.decode(text) for _, _, text in sorted(newest)]


# --- watch -----------------------------------------------------------------------------------------------


#: Pause before looking for the next controller, and time between two checks that this one is still active.
RETRY_S, CHECK_S = 0.2, 1.0


@click.command(cls=Verb)
@filter_options
@click.option("--for", "for_s", type=Seconds(0.1), metavar="SECONDS", help="end after SECONDS")
@click.pass_obj
def watch(
    options: Options,
    topic: str | None,
    partition: int | None,
    brokers: tuple[int, ...],
    epoch: int | None,
    kinds: tuple[str, ...],
    all_kinds: bool,
    for_s: float | None,
) -> None:
    """Print new state-change records until Ctrl-C. With -o json, a line of JSON for each record, as in the log."""
    watcher = _Watcher(options, filter_of(topic, partition, brokers, epoch, kinds, all_kinds))
    with suppress(KeyboardInterrupt):
        asyncio.run(watcher.run(for_s))


class _Watcher:
    """Follows the active controller, whichever it is. ``_controller``: id and epoch of the last that responded;
    ``_at_last``: how many of its records of the time ``_last_us`` are printed. All of one batch have one time."""

    def __init__(self, options: Options, wanted: Filter) -> None:
        self._options, self._wanted = options, wanted
        self._controller: tuple[int, int] | None = None
        self._last_note = ""
        self._last_us = self._at_last = 0

    async def run(self, for_s: float | None) -> None:
        try:
            async with asyncio.timeout(for_s) as limit:
                while True:
                    await self._one_session()
        except TimeoutError:
            if not limit.expired():
                raise

    async def _one_session(self) -> None:
        options = self._options
        try:
            async with options.connected() as session:
                while not session.over:
                    await self._one_controller(session)
        except admin.RequestFailedError as error:
            fail(str(error))
        except (ControllerError, ConnectionLossError) as error:
            why = options.message_of(error)
            if self._controller is None:
                fail(why)
            self._note_once(f"{why}; trying again")
            await asyncio.sleep(1.0)

    def _note_once(self, text: str) -> None:
        """Print a note unless it equals the previous one."""
        if text != self._last_note:
            note(text)
            self._last_note = text

    async def _one_controller(self, session: Session) -> None:
        """Follow the active controller until it is replaced or its stream ends."""
        cluster_state = await cluster_reader.look(session, topics=())
        if not cluster_state.controller_endpoint:
            self._note_once("no controller is active: waiting for one")
        else:
            streaming = asyncio.create_task(
                self._stream(
                    cluster_state.controller_endpoint,
                    (cluster_state.controller_id, cluster_state.controller_epoch),
                )
            )
            replaced = asyncio.create_task(_until_replaced(session))
            try:
                await asyncio.wait({streaming, replaced}, return_when=asyncio.FIRST_COMPLETED)
                if replaced.done():
                    # A controller that resigned still sends its last records; one that hangs sends nothing.
                    await asyncio.wait({streaming}, timeout=CHECK_S)
            finally:
                outcomes = await end_all([streaming, replaced])
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome
            if self._controller:
                self._note_once(
                    f"controller {self._controller[0]} ended its stream: waiting for the next active controller"
                )
        await asyncio.sleep(RETRY_S)

    async def _stream(self, endpoint: str, who: tuple[int, int]) -> None:
        """Print the records that the controller at this address sends, until it ends the stream."""
        wanted, again = self._wanted, self._controller == who
        printed = self._at_last if again else 0
        if again:
            wanted = replace(wanted, since_us=self._last_us)
        request = pb.WatchRequest(filter=filter_message(wanted), whole_epoch=self._controller is not None)
        answers = admin.watch(endpoint, request, self._options.timeout_s, self._options.tls)
        async with aclosing(answers):
            async for answer in answers:
                if answer.controller_epoch:
                    self._note_controller((answer.controller_id, answer.controller_epoch))
                if answer.missed:
                    note(f"pctl: reading was too slow: {counted(answer.missed, 'record')} skipped")
                for text in answer.records:
                    if printed and lines.time_of(msgspec.json.decode(text)["ts"]) == self._last_us:
                        printed -= 1
                        continue
                    printed = 0
                    self._print(text)

    def _note_controller(self, who: tuple[int, int]) -> None:
        before, self._controller = self._controller, who
        if before is None or before == who:
            self._note_once(f"watching controller {who[0]}, epoch {who[1]}")
        else:
            self._note_once(
                f"controller {before[0]} is replaced: watching controller {who[0]}, epoch {who[1]}"
            )

    def _print(self, text: str) -> None:
        record = msgspec.json.decode(text)
        at_us = lines.time_of(record["ts"])
        self._at_last = self._at_last + 1 if at_us == self._last_us else 1
        self._last_us = at_us
        if self._options.output == "table":
            click.echo(record_line(record))
        else:
            print_item(record, self._options.output)


async def _until_replaced(session: Session) -> None:
    """Return when ``/controller`` is deleted or replaced. Connection losses are ignored: streams continue."""
    first: int | None = None
    while not session.over:
        with suppress(ConnectionLossError, TimeoutError):
            async with asyncio.timeout(CHECK_S * 5):
                try:
                    _, stat = await session.get(znode_paths.CONTROLLER)
                except NoNodeError:
                    return
            if first is not None and stat.czxid != first:
                return
            first = stat.czxid
        await asyncio.sleep(CHECK_S)
