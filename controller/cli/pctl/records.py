"""``pctl produce`` and ``pctl consume``: write and read records through the client library."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import click

from broker_stub.client.connection import Connections
from broker_stub.client.consumer import EARLIEST, LATEST, ConsumedRecord, Consumer
from broker_stub.client.errors import ClientError, DeliveryError, GaveUpError, MemberError
from broker_stub.client.group import GroupMember, Membership
from broker_stub.client.producer import Producer
from controller.cli.common.broker_addresses import broker_addresses
from controller.cli.common.cluster_state import fail_without_readable_topic
from controller.cli.common.options import OFFSET, PARTITION, Options, Verb, on_cluster
from controller.cli.common.output import fail, note, print_item
from controller.cli.common.standard_input import LINE_BYTES_MAX, StandardInput
from controller.core.effects import TopicInfo
from controller.exit_codes import EXIT_REFUSED
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session
from proto.gen import common_pb2 as codes
from proto.security.grpc_channels import GrpcTls
from proto.texts import printable

ACKS = {"all": -1, "1": 1, "0": 0}
POLL_MS = 200
#: Broker errors that protect acknowledged records: exit code 3.
SAFETY = (codes.NOT_ENOUGH_REPLICAS, codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

T = TypeVar("T")
Item = tuple[bytes | None, bytes]
Sent = asyncio.Task[tuple[int, int]]


async def _find_topic(
    session: Session, topic: str, number: int | None, *, deleting: bool = True
) -> tuple[TopicInfo, list[str]]:
    """The topic and the brokers' addresses; ends the program if the topic or partition does not exist. ``deleting``:
    the topic may be one that is being deleted."""
    cluster_state = await cluster_reader.look(session, topics=[topic], states=False)
    fail_without_readable_topic(cluster_state, topic)
    if not deleting and topic in cluster_state.deleting:
        fail(f"topic {topic} is being deleted: nothing was written", EXIT_REFUSED)
    info = cluster_state.topics[topic]
    if number is not None and number not in info.partitions:
        numbers = ", ".join(map(str, sorted(info.partitions)))
        fail(f"topic {topic} has no partition {number}: it has {numbers}")
    return info, broker_addresses(cluster_state)


@asynccontextmanager
async def _client_errors_fail() -> AsyncIterator[None]:
    try:
        yield
    except DeliveryError as error:
        copies = " (it may be in the log nevertheless)" if error.attempts else ""
        fail(f"not acknowledged: {error}{copies}", EXIT_REFUSED if error.code in SAFETY else 1)
    except ClientError as error:
        fail(str(error))


# --- produce -------------------------------------------------------------------------------------------------


@click.command(cls=Verb, raw=("values", "key", "key_separator"))
@click.argument("topic")
@click.argument("values", nargs=-1, metavar="[VALUE...]")
@click.option("--partition", type=PARTITION, help="write to this partition [default: by key, else any]")
@click.option("--key", help="key of every record")
@click.option("--key-separator", help="each record is KEY<separator>VALUE")
@click.option(
    "--acks",
    type=click.Choice(list(ACKS)),
    default="all",
    show_default=True,
    help="replicas that must have a record before it is acknowledged: all in sync (all), the leader (1), none (0)",
)
@click.pass_obj
@on_cluster
async def produce(
    options: Options,
    session: Session,
    topic: str,
    values: tuple[str, ...],
    partition: int | None,
    key: str | None,
    key_separator: str | None,
    acks: str,
) -> None:
    """Write each VALUE, or each line of standard input, as a record. Prints PARTITION@OFFSET for each record.

    As JSON: one object per line.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator: only one of them says where keys come from")
    if key_separator == "":
        raise click.UsageError("--key-separator: must be at least one character")
    parse = partial(_parse, key=key, separator=key_separator)
    given = [parse(value.encode(errors="surrogateescape")) for value in values]
    _, addresses = await _find_topic(session, topic, partition, deleting=False)
    producer = Producer(
        addresses,
        ACKS[acks],
        delivery_timeout_ms=int(options.timeout_s * 1000),
        request_timeout_ms=min(5000, int(options.timeout_s * 1000)),
        connections=Connections(options.tls),
    )
    async with producer, _client_errors_fail():
        sent: asyncio.Queue[Sent | None] = asyncio.Queue(1000)
        printing = asyncio.create_task(_print_sent(sent, topic, options.output))
        try:
            for item in given:
                await _enqueue(sent, printing, producer, topic, partition, item)
            lines = None if values else StandardInput()
            bad: click.UsageError | None = None
            while lines is not None and (line := await _unless_over(lines.line(), printing)):
                try:
                    item = parse(_content(line))
                except click.UsageError as error:
                    # What was read before it is on its way: say what becomes of it.
                    bad = error
                    break
                await _enqueue(sent, printing, producer, topic, partition, item)
            await _unless_over(sent.put(None), printing)
            await printing
            if bad is not None:
                raise bad
        finally:
            printing.cancel()


def _content(line: bytes) -> bytes:
    """The line without its end. Raises click.UsageError for one that is too long, after which no other comes."""
    if len(line) > LINE_BYTES_MAX:
        raise click.UsageError(f"line {line[:80]!r}...: must be at most {LINE_BYTES_MAX} bytes, with its end")
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _parse(data: bytes, key: str | None, separator: str | None) -> Item:
    """Raises click.UsageError for a record without the separator."""
    if separator is None:
        return key.encode(errors="surrogateescape") if key is not None else None, data
    before, found, after = data.partition(separator.encode())
    if not found:
        raise click.UsageError(f"record {data[:80]!r}: must be KEY{separator}VALUE (--key-separator)")
    return before, after


async def _unless_over(work: Coroutine[Any, Any, T], printing: asyncio.Task[None]) -> T:
    """Return the result of ``work``. If ``printing`` ends first, it has failed: raise its exception."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task, printing}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await printing
        return await task
    finally:
        task.cancel()


async def _enqueue(
    sent: asyncio.Queue[Sent | None],
    printing: asyncio.Task[None],
    producer: Producer,
    topic: str,
    partition: int | None,
    item: Item,
) -> None:
    """Start to send a record. Raises the exception of ``printing`` if that has failed."""
    if partition is None:
        partition = await producer.choose_partition(topic, item[0], len(item[1]))
    if printing.done():
        await printing
    sending = asyncio.create_task(_send(producer, topic, partition, item))
    sending.add_done_callback(_retrieve_exception)
    await _unless_over(sent.put(sending), printing)


def _retrieve_exception(sending: Sent) -> None:
    """Only the first failure is printed; this keeps asyncio from warning of the others."""
    if not sending.cancelled():
        sending.exception()


async def _send(producer: Producer, topic: str, partition: int, item: Item) -> tuple[int, int]:
    """Partition and offset."""
    return partition, await producer.send(topic, partition, [item])


async def _print_sent(sent: asyncio.Queue[Sent | None], topic: str, style: str) -> None:
    while (task := await sent.get()) is not None:
        partition, offset = await task
        if style != "table":
            row = {"topic": topic, "partition": partition, "offset": offset if offset >= 0 else None}
            print_item(row, style)
        else:
            click.echo(f"{partition}@{offset if offset >= 0 else '?'}")


# --- consume -------------------------------------------------------------------------------------------------


class Limits(NamedTuple):
    """When to stop reading: after ``records_max`` records, or ``idle_ms`` without a record. None: no such limit."""

    records_max: int | None
    idle_ms: int | None


@click.command(cls=Verb)
@click.argument("topic")
@click.option("--partition", type=PARTITION, help="only this partition")
@click.option(
    "--from-beginning",
    is_flag=True,
    help="begin at the first retained record; with --group, if none is committed",
)
@click.option("--offset", type=OFFSET, help="begin at this offset; needs --partition")
@click.option("--max-messages", type=click.IntRange(1), help="stop after this many records")
@click.option("--timeout-ms", type=click.IntRange(1), help="stop after this time without a record")
@click.option("--group", help="join this group: read the assigned partitions from their committed offsets")
@click.option("--follow", is_flag=True, help="wait for new records at the end")
@click.pass_obj
@on_cluster
async def consume(
    options: Options,
    session: Session,
    topic: str,
    partition: int | None,
    from_beginning: bool,
    offset: int | None,
    max_messages: int | None,
    timeout_ms: int | None,
    group: str | None,
    follow: bool,
) -> None:
    """Read records and print PARTITION@OFFSET, key and value of each; as JSON, one object per line.

    With --from-beginning or --offset, reading stops at the present end of the log. Without them, or with --follow or
    --group, new records are read until Ctrl-C or a limit. Exit code 1 if fewer than --max-messages were read.
    """
    if from_beginning and offset is not None:
        raise click.UsageError("--from-beginning and --offset: only one of them says where to begin")
    if offset is not None and partition is None:
        raise click.UsageError("--offset: needs --partition")
    if group is not None and partition is not None:
        raise click.UsageError("--group: the group assigns the partitions, leave out --partition")
    if group == "":
        raise click.UsageError("--group: must be at least one character")
    info, addresses = await _find_topic(session, topic, partition)
    limits = Limits(max_messages, timeout_ms)
    show = partial(_print_record, style=options.output)
    async with _client_errors_fail(), _interruptible() as stop:
        if group is not None:
            start = EARLIEST if from_beginning else LATEST
            count = await read_as_member(
                addresses, topic, group, start, partial(_read, stop, limits, show), options.tls
            )
        else:
            begin = EARLIEST if from_beginning else LATEST if offset is None else offset
            numbers = sorted(info.partitions) if partition is None else [partition]
            async with Consumer(addresses, reset="error", connections=Connections(options.tls)) as consumer:
                await consumer.assign({(topic, number): begin for number in numbers}, options.timeout_s)
                ends = None
                if begin != LATEST and not follow:
                    ends = {
                        key: await consumer.list_offset(key, LATEST, options.timeout_s)
                        for key in consumer.assignment()
                    }
                count = await _read(stop, limits, show, consumer, ends)
    if max_messages is not None and count < max_messages:
        fail(f"{count} of {max_messages} messages came")


@asynccontextmanager
async def _interruptible() -> AsyncIterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set, so that offsets are committed before the program ends."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stop.set)
    try:
        yield stop
    finally:
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(signum)


async def _read(
    stop: asyncio.Event,
    limits: Limits,
    show: Callable[[ConsumedRecord], None],
    consumer: Consumer,
    ends: dict[tuple[str, int], int] | None = None,
    after: Callable[[], Awaitable[None]] | None = None,
) -> int:
    """Print records until ``stop`` is set, a limit is reached, or all partitions are read to ``ends``.

    ``after`` is awaited after each poll. Returns the number of printed records.
    """
    loop = asyncio.get_running_loop()
    printed, last = 0, loop.time()
    while not stop.is_set():
        if ends is not None and all(consumer.position(key) >= end for key, end in ends.items()):
            break
        if limits.idle_ms is not None and (loop.time() - last) * 1000 >= limits.idle_ms:
            break
        records = await consumer.poll(min(POLL_MS, limits.idle_ms or POLL_MS))
        for position, record in enumerate(records):
            if printed == limits.records_max:
                _rewind(consumer, records[position:])
                break
            if ends is None or record.offset < ends[record.topic, record.partition]:
                show(record)
                printed += 1
        if records:
            last = loop.time()
            sys.stdout.flush()
        if after is not None:
            await after()
        if printed == limits.records_max:
            break
    return printed


def _rewind(consumer: Consumer, records: list[ConsumedRecord]) -> None:
    """Set the positions back to these records: they came with the last poll, beyond the limit."""
    first = {(record.topic, record.partition): record.offset for record in reversed(records)}
    for key, offset in first.items():
        consumer.seek(key, offset)


def _print_record(record: ConsumedRecord, style: str) -> None:
    if style != "table":
        row = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "leader_epoch": record.leader_epoch,
            "timestamp": record.timestamp,
            "key": _text(record.key),
            "value": _text(record.value),
        }
        print_item(row, style)
        return
    key, value = (
        "-" if (text := _text(data)) is None else printable(text) for data in (record.key, record.value)
    )
    click.echo(f"{record.partition}@{record.offset}\t{key}\t{value}")


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


# --- as a member of a group ------------------------------------------------------------------------------


JOIN_TIMEOUT_S = 60.0


class Reading(Protocol):
    """Prints records until a limit is reached and returns their number. ``after`` is awaited after each poll."""

    async def __call__(self, consumer: Consumer, *, after: Callable[[], Awaitable[None]]) -> int: ...


class _Member:
    """Assigns the group member's partitions to a consumer. ``start``: position without a committed offset."""

    def __init__(self, addresses: list[str], topic: str, group: str, start: int, tls: GrpcTls | None) -> None:
        self._start = start
        self._topic = topic
        self.consumer = Consumer(addresses, reset="earliest", connections=Connections(tls))
        self.member = GroupMember(
            addresses,
            group,
            [topic],
            client_id="pctl",
            on_assigned=self._assigned,
            on_lost=self._lost,
            connections=Connections(tls),
        )
        self._committed: dict[tuple[str, int], int] = {}

    async def _assigned(self, membership: Membership) -> None:
        committed = await self.member.committed(membership.partitions)
        await self.consumer.assign({key: committed.get(key, self._start) for key in membership.partitions})
        self._committed = committed
        numbers = ", ".join(str(number) for _, number in membership.partitions) or "none"
        note(f"pctl: generation {membership.generation}: partitions of {self._topic}: {numbers}")

    async def _lost(self, _: Membership) -> None:
        await self.consumer.assign({})

    async def commit(self) -> None:
        """Commit positions that have changed. A refused commit is ignored: other members read these records again.

        Raises the exception that ended the membership.
        """
        if self.member.failure is not None:
            raise self.member.failure
        now = {key: self.consumer.position(key) for key in self.consumer.assignment()}
        changed = {key: offset for key, offset in now.items() if self._committed.get(key) != offset}
        if not changed:
            return
        try:
            await self.member.commit(changed)
        except MemberError:
            return
        except GaveUpError as error:
            note(f"pctl: not committed: {error}")
            return
        self._committed.update(changed)


async def read_as_member(
    addresses: list[str], topic: str, group: str, start: int, read: Reading, tls: GrpcTls | None
) -> int:
    """Join, read, commit and leave. Returns the number of records read. Raises ClientError."""
    own = _Member(addresses, topic, group, start, tls)
    try:
        async with own.member:
            await own.member.joined(JOIN_TIMEOUT_S)
            return await read(own.consumer, after=own.commit)
    except TimeoutError:
        what = f"membership in group {group!r}"
        raise GaveUpError(codes.REQUEST_TIMED_OUT, what, f"not joined within {JOIN_TIMEOUT_S:g} s") from None
    finally:
        await own.consumer.close()
