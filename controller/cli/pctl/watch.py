"""``pctl watch``: what the active controller does, while it does it; when it fails over, its successor is followed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import replace

import click
import msgspec

from controller.analysis import lines
from controller.cli.common.options import Options, Seconds, Verb
from controller.cli.common.output import fail, note, print_item
from controller.cli.common.record_format import chosen, filtering, line, on_the_wire
from controller.client import admin
from controller.core import znode_paths
from controller.errors import ControllerError
from controller.runtime.observe.history_filter import Filter
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import ConnectionLossError, NoNodeError, Session
from proto.gen import history_pb2 as pb

#: How soon a controller that has gone is looked for again, and how often it is looked whether it still leads.
AGAIN_S, STILL_S = 0.2, 1.0


@click.command(cls=Verb)
@filtering
@click.option("--for", "for_s", type=Seconds(0.1), metavar="SECONDS", help="end after so long")
@click.pass_obj
def watch(
    options: Options,
    topic: str | None,
    partition: int | None,
    brokers: tuple[int, ...],
    epoch: int | None,
    kinds: tuple[str, ...],
    for_s: float | None,
) -> None:
    """Print what happens until Ctrl-C. With -o json a line of JSON for each record, as in the log."""
    follower = _Follower(options, chosen(topic, partition, brokers, epoch, kinds))
    with suppress(KeyboardInterrupt):
        asyncio.run(follower.run(for_s))


class _Follower:
    """Goes from controller to controller; ``_known`` is the last one that answered: its id and epoch."""

    def __init__(self, options: Options, wanted: Filter) -> None:
        self._options, self._wanted = options, wanted
        self._known: tuple[int, int] | None = None
        self._said = ""
        self._last_us = 0

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
            async with cluster_reader.connected(
                options.zookeeper, int(options.timeout_s * 1000), create_chroot=False
            ) as session:
                while not session.over:
                    await self._one_controller(session)
        except admin.RequestFailedError as error:
            fail(str(error))
        except (ControllerError, ConnectionLossError) as error:
            why = options.lost(error)
            if self._known is None:
                fail(why)
            self._say(f"{why}; trying again")
            await asyncio.sleep(1.0)

    def _say(self, text: str) -> None:
        """Once, however often it is still so."""
        if text != self._said:
            note(text)
            self._said = text

    async def _one_controller(self, session: Session) -> None:
        """Follow whoever leads now for as long as it does."""
        seen = await cluster_reader.look(session, topics=(), states=False)
        if not seen.controller_endpoint:
            self._say("no controller is active: waiting for one")
        else:
            following = asyncio.create_task(
                self._stream(seen.controller_endpoint, (seen.controller_id, seen.controller_epoch))
            )
            leaving = asyncio.create_task(_until_replaced(session))
            try:
                await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    # One that resigned says what it did until then; one that hangs says nothing any more.
                    await asyncio.wait({following}, timeout=STILL_S)
            finally:
                following.cancel()
                leaving.cancel()
                outcomes = await asyncio.gather(following, leaving, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome
            if self._known:
                self._say(f"controller {self._known[0]} tells no more: waiting for who leads next")
        await asyncio.sleep(AGAIN_S)

    async def _stream(self, endpoint: str, who: tuple[int, int]) -> None:
        """Print what the controller at this address tells, until it has no more to tell."""
        wanted, again = self._wanted, self._known == who
        if again:
            wanted = replace(wanted, since_us=self._last_us + 1)
        request = pb.WatchRequest(filter=on_the_wire(wanted), whole_epoch=self._known is not None)
        answers = admin.watch(endpoint, request, self._options.timeout_s)
        async with aclosing(answers):
            async for answer in answers:
                if answer.controller_epoch:
                    self._greet((answer.controller_id, answer.controller_epoch))
                if answer.missed:
                    note(f"pctl: this end was too slow: {answer.missed} records were not looked at")
                for text in answer.records:
                    self._print(text)

    def _greet(self, who: tuple[int, int]) -> None:
        before, self._known = self._known, who
        if before is None or before == who:
            self._say(f"watching controller {who[0]}, epoch {who[1]}")
        else:
            self._say(f"controller {before[0]} is gone; controller {who[0]}, epoch {who[1]}")

    def _print(self, text: str) -> None:
        record = msgspec.json.decode(text)
        self._last_us = lines.time_of(record["ts"])
        if self._options.output == "table":
            click.echo(line(record))
        else:
            print_item(record, self._options.output)


async def _until_replaced(session: Session) -> None:
    """Until ``/controller`` is another znode than now. Raises nothing while ZooKeeper is away: streams go on."""
    first: int | None = None
    while not session.over:
        with suppress(ConnectionLossError, TimeoutError):
            async with asyncio.timeout(STILL_S * 5):
                try:
                    _, stat = await session.get(znode_paths.CONTROLLER)
                except NoNodeError:
                    return
            if first is not None and stat.czxid != first:
                return
            first = stat.czxid
        await asyncio.sleep(STILL_S)
