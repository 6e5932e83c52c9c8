"""Records of the state-change log in pctl: options that filter them, and their formatting as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from controller.analysis import lines
from controller.cli.common.lists import broker_ids
from controller.core.names import counted, topic_name_problem
from controller.runtime.observe.history_filter import Filter
from controller.runtime.zookeeper.codecs import INT_MAX
from proto.gen import history_pb2 as pb
from proto.statelog.schema import KINDS, QUIET
from proto.texts import printable

Record = Mapping[str, Any]

COLUMNS = ("time", "node", "epoch", "event", "cause", "what", "reason")


def parse_time(text: str) -> int:
    """Microseconds since 1970, from an age (``30s``, ``10m``, ``2h``, ``1d``) or an RFC 3339 time.

    Raises click.BadParameter.
    """
    try:
        at_us = lines.time_or_age(text)
    except ValueError:
        at_us = 0
    if at_us <= 0:
        raise click.BadParameter(f"{text!r} must be like 30s, 10m, 2h, 1d or 2026-01-14T10:15:00Z")
    return at_us


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options from which ``filter_of`` makes a Filter."""
    for option in (
        click.option(
            "--kind",
            "kinds",
            multiple=True,
            type=click.Choice(sorted(KINDS)),
            help="only records of this kind; may be repeated",
        ),
        click.option(
            "--all-kinds",
            is_flag=True,
            help=f"also records of the kinds {', '.join(sorted(QUIET))}, which are left out without --kind",
        ),
        click.option(
            "--epoch", type=click.IntRange(1, INT_MAX), help="only records of this controller epoch"
        ),
        click.option(
            "--broker",
            "brokers",
            multiple=True,
            callback=broker_ids,
            help="only records that name this broker as replica, old or new leader or ISR member; may be repeated",
        ),
        click.option("--partition", type=click.IntRange(0, INT_MAX), help="only this partition of --topic"),
        click.option("--topic", help="only this topic"),
    ):
        command = option(command)
    return command


def filter_of(
    topic: str | None,
    partition: int | None,
    brokers: Sequence[int],
    epoch: int | None,
    kinds: Sequence[str],
    all_kinds: bool,
    since_us: int = 0,
    until_us: int = 0,
) -> Filter:
    """Raises click.UsageError for options that contradict each other."""
    if topic is not None and (problem := topic_name_problem(topic)):
        raise click.UsageError(f"--topic {topic!r}: {problem}")
    if partition is not None and topic is None:
        raise click.UsageError("--partition: needs --topic")
    if since_us and until_us and since_us >= until_us:
        raise click.UsageError("--since must be before --until")
    if kinds and all_kinds:
        raise click.UsageError("--all-kinds: leave out --kind")
    chosen = frozenset(kinds) or (frozenset() if all_kinds else KINDS.keys() - QUIET)
    return Filter(topic or "", partition, frozenset(brokers), epoch, frozenset(chosen), since_us, until_us)


def filter_message(wanted: Filter) -> pb.HistoryFilter:
    return pb.HistoryFilter(
        topic=wanted.topic,
        partition=wanted.partition or 0,
        has_partition=wanted.partition is not None,
        brokers=sorted(wanted.brokers),
        controller_epoch=wanted.controller_epoch or 0,
        kinds=sorted(wanted.kinds),
        since_us=wanted.since_us,
        until_us=wanted.until_us,
    )


# --- format ---------------------------------------------------------------------------------------------------


def record_row(record: Record) -> dict[str, Any]:
    """A record as a row of COLUMNS."""
    return {
        "time": record["ts"],
        "node": f"{record['role']} {record['node']}",
        "epoch": record["controller_epoch"] if record["controller_epoch"] >= 0 else None,
        "event": record["event_id"] or None,
        "cause": record["cause"],
        "what": what_happened(record),
        "reason": record.get("reason"),
    }


def record_line(record: Record) -> str:
    """A record as one line."""
    cells = record_row(record)
    epoch = f"epoch {cells['epoch']}" if cells["epoch"] is not None else ""
    event = f"event {cells['event']}" if cells["event"] else ""
    origin = " ".join(word for word in (epoch, event, cells["cause"]) if word)
    reason = f" ({cells['reason']})" if cells["reason"] else ""
    return printable(f"{cells['time']}  {origin}: {cells['what']}{reason}")


def what_happened(record: Record) -> str:
    """The change that the record describes, without its reason."""
    kind, name = record["kind"], _subject(record)
    before, after = record.get("from"), record.get("to")
    replica, count = record.get("replica"), record.get("count")
    match kind:
        case "controller":
            return f"controller {_step(record)}"
        case "failover":
            many = f", {count}" if count is not None else ""
            return f"failover: {after}{many}{_took(record)}"
        case "leader":
            epoch = f", leader epoch {record['leader_epoch']}" if "leader_epoch" in record else ""
            return f"{name}: leader {_broker(before)} -> {_broker(after)}{epoch}"
        case "isr":
            return f"{name}: ISR {before} -> {after}" if after else f"{name}: ISR {record.get('isr')}"
        case "replica":
            return f"{name}: replica {replica} {_step(record)}"
        case "push" | "ack":
            return _push(record)
        case "broker" | "partition":
            who = name or f"broker {replica if replica is not None else record['node']}"
            return f"{who}: {_step(record)}{_silent(record)}"
        case "reject":
            about = f"{name}: " if name else ""
            step = f", {_step(record)}" if after else ""
            return f"{about}refused: {record['error']}{step}"
        case "request":
            return _request(record)
        case "log" if after == "dropped":
            return f"{count} {'line of the log was' if count == 1 else 'lines of the log were'} lost"
        case "unchanged":
            return f"{after}: {_partitions(count)} unchanged"
    # Other kinds, including those of a newer schema.
    many = f" ({count})" if count is not None else ""
    where = f"broker {replica} " if replica is not None else ""
    return f"{name or kind}: {where}{_step(record)}{many}"


def _push(record: Record) -> str:
    to, count = f"{record.get('to')} to broker {record.get('replica')}", _partitions(record.get("count"))
    if record["kind"] == "push":
        return f"{to}: {count}"
    answer = f"refused: {record['error']}" if "error" in record else "acknowledged"
    return f"{to} {answer}: {count}{_took(record)}"


def _request(record: Record) -> str:
    about = f" of {record['subject']}" if "subject" in record else ""
    outcome = f"refused: {record['error']}" if "error" in record else "done"
    many = f", {counted(record['count'], 'time')}" if "count" in record else ""
    by = f"{record['principal']} at {record.get('address') or 'an unknown address'}"
    return f"{record.get('to')}{about} by {by}: {outcome}{many}"


def _subject(record: Record) -> str:
    if "topic" not in record:
        return ""
    return f"{record['topic']}-{record['partition']}" if "partition" in record else f"topic {record['topic']}"


def _step(record: Record) -> str:
    before, after = record.get("from"), record.get("to", "")
    return f"{before} -> {after}" if before and before != after else str(after)


def _broker(text: object) -> str:
    return "none" if text in ("-1", None) else str(text)


def _partitions(count: int | None) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


def _silent(record: Record) -> str:
    return f", last sign {record['silent_us'] / 1e6:.1f} s before" if "silent_us" in record else ""


def _took(record: Record) -> str:
    return f", {record['duration_us'] / 1000:.1f} ms" if "duration_us" in record else ""
