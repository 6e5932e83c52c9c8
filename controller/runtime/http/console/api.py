"""What the pages ask, below ``/ui/api``: bounded, and allowed by the rules of the RPCs that tell the same.

DESCRIBE on the cluster for every path (``access.guard``); on a topic, too, for what names it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from controller import __version__
from controller.core.model import BROKER_ID_MAX
from controller.core.requests.errors import ErrorCode
from controller.runtime.daemon import Daemon
from controller.runtime.http.console import views
from controller.runtime.http.console.asking import (
    ROWS_MAX,
    Asking,
    RefusedError,
    answering,
    as_dict,
    number_in,
    of_this_site,
    text_in,
)
from controller.runtime.http.console.changes import Changes
from controller.runtime.http.console.controllers import Controllers
from controller.runtime.http.console.events import Events
from controller.runtime.http.console.replay import Replay
from controller.runtime.http.console.survey import TILES_MAX, Counts, Survey, Surveyor, tiles
from controller.runtime.http.console.whatif import WhatIf
from controller.runtime.http.console.work import Work
from controller.runtime.http.min_isr import MinIsr
from proto.gen import history_pb2, inspection_pb2
from proto.statelog.schema import KINDS, QUIET

#: Records of one answer.
RECORDS_MAX = 500
#: Topics looked at between two pauses for other work.
AT_ONCE = 2000


class Api:
    """Handlers run on the daemon's event loop, between its steps."""

    def __init__(self, daemon: Daemon, min_isr: MinIsr, streams_max: int) -> None:
        self._daemon, self._min_isr = daemon, min_isr
        self._surveyor = Surveyor(min_isr)
        self._asking = asking = Asking(daemon)
        self._what_if, self._work, self._replay = WhatIf(asking), Work(asking), Replay(asking, min_isr)
        self.events = Events(daemon, streams_max)
        self._controllers = Controllers(daemon)
        self._changes = Changes(asking, self._controllers)

    def routes(self) -> Iterator[tuple[str, str, Handler]]:
        """Method, path and handler."""
        yield "GET", "/ui/api/events", of_this_site(self.events.serve)
        yield from self._changes.routes()
        for path, answer in (
            *self._what_if.answers(),
            *self._work.answers(),
            *self._replay.answers(),
            *self._controllers.answers(),
            ("overview", self._overview),
            ("heat", self._heat),
            ("topics", self._topics),
            ("topic", self._topic),
            ("partition", self._partition),
            ("broker", self._broker),
            ("audit", self._audit),
            ("history", self._history),
        ):
            yield "GET", f"/ui/api/{path}", of_this_site(answering(answer))

    # the cluster

    async def _overview(self, request: web.Request) -> dict[str, Any]:
        """The first page. Every controller answers it; a standby says who leads."""
        del request
        known = {
            "version": __version__,
            "now_ms": round(time.time() * 1000),
            "state": views.state(self._daemon),
            "controllers": views.controllers(
                await self._controllers.registered(), self._daemon.settings.controller_id
            ),
            "cluster": None,
        }
        if (term := self._daemon.leading) is not None:
            survey = await self._surveyor.survey(term)
            known["cluster"] = views.overview(self._daemon, term, survey)
        return known

    # topics

    async def _heat(self, request: web.Request) -> dict[str, Any]:
        """All partitions as tiles: neighbours by topic name; with ``topic``, by number in that topic."""
        term = self._asking.leading()
        name = request.query.get("topic")
        wanted = number_in(request, "tiles", 1, TILES_MAX, TILES_MAX)
        cells: list[tuple[str | int, Counts]]
        if name is not None:
            found, cluster = self._asking.named(request, term, name), term.machine.cluster
            survey, deleting = Survey(cluster.brokers), cluster.deletion_requested(name)
            first = number_in(request, "from", 0, BROKER_ID_MAX, 0)
            last = number_in(request, "to", 0, BROKER_ID_MAX, BROKER_ID_MAX)
            await self._min_isr.refresh(term)
            min_isr = self._min_isr.of(name)
            cells = [
                (number, survey.count(partition, min_isr, deleting=deleting))
                for number, partition in sorted(found.partitions.items())
                if first <= number <= last
            ]
        else:
            survey = await self._surveyor.survey(term)
            first_name, last_name = text_in(request, "from"), text_in(request, "to")
            cells = [
                cell
                async for cell in _in_portions(survey.within(first_name, last_name))
                if self._asking.may_see(request, str(cell[0]))
            ]
        return {"tiles": [views.tile(one) for one in tiles(cells, wanted)], "of": len(cells)}

    async def _topics(self, request: web.Request) -> dict[str, Any]:
        """Topics by name, after ``after``, whose name has ``match``; ``trouble=1``: with something wrong."""
        term = self._asking.leading()
        limit = number_in(request, "limit", 1, ROWS_MAX, 100)
        match, after = text_in(request, "match").lower(), text_in(request, "after")
        trouble = text_in(request, "trouble") == "1"
        survey = await self._surveyor.survey(term)
        rows: list[dict[str, Any]] = []
        async for name, counts in _in_portions(survey.within(after, "")):
            if name == after or match not in name.lower() or (trouble and counts.well):
                continue
            if not self._asking.may_see(request, name):
                continue
            if len(rows) == limit:
                return {"topics": rows, "more": True}
            rows.append(views.topic_row(name, counts))
        return {"topics": rows, "more": False}

    async def _topic(self, request: web.Request) -> dict[str, Any]:
        """A topic, and its partitions after number ``after``; ``trouble=1``: those with something wrong."""
        term = self._asking.leading()
        name = text_in(request, "topic")
        found, cluster = self._asking.named(request, term, name), term.machine.cluster
        limit = number_in(request, "limit", 1, ROWS_MAX, 100)
        after = number_in(request, "after", -1, BROKER_ID_MAX, -1)
        trouble = text_in(request, "trouble") == "1"
        await self._min_isr.refresh(term)
        min_isr, rows = self._min_isr.of(name), []
        for number in sorted(found.partitions):
            if number <= after:
                continue
            row = views.partition_row(cluster, found.partitions[number], min_isr)
            if trouble and row["worst"] is None:
                continue
            rows.append(row)
            if len(rows) > limit:
                break
        return {
            "name": name,
            "id": found.id,
            "partitions": len(found.partitions),
            "min_isr": min_isr,
            "deleting": cluster.deletion_requested(name),
            "rows": rows[:limit],
            "more": len(rows) > limit,
        }

    async def _partition(self, request: web.Request) -> dict[str, Any]:
        """One partition, and why it is as it is (the RPC ``Explain``)."""
        name, number = text_in(request, "topic"), number_in(request, "partition", 0, BROKER_ID_MAX)
        asked = inspection_pb2.ExplainRequest(partition={"topic": name, "partition": number})
        why = await self._asking.rpc(request, "Explain", asked)
        term = self._asking.leading()
        await self._min_isr.refresh(term)
        partition = self._asking.named(request, term, name).partitions.get(number)
        if partition is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it was deleted")
        return {
            "topic": name,
            "min_isr": self._min_isr.of(name),
            "row": views.partition_row(term.machine.cluster, partition, self._min_isr.of(name)),
            "why": msgspec.Raw(why.explanation.encode()),
            "command": views.explain_command(name, number),
        }

    async def _broker(self, request: web.Request) -> dict[str, Any]:
        """Why a broker is as it is (the RPC ``Explain``)."""
        broker_id = number_in(request, "id", 0, BROKER_ID_MAX)
        why = await self._asking.rpc(request, "Explain", inspection_pb2.ExplainRequest(broker=broker_id))
        words = msgspec.json.decode(why.explanation)["words"][: 1 + ROWS_MAX]
        return {"id": broker_id, "words": words, "command": f"pctl explain broker {broker_id}"}

    # records

    async def _audit(self, request: web.Request) -> dict[str, Any]:
        """What the audit has found so far (the RPC ``Audit``); nobody is asked anew."""
        found = await self._asking.rpc(request, "Audit", inspection_pb2.AuditRequest(recorded=True))
        del found.problems[ROWS_MAX:]
        return as_dict(found)

    async def _history(self, request: web.Request) -> dict[str, Any]:
        """Records, newest first (the RPC ``ListHistory``)."""
        kinds = [kind for kind in text_in(request, "kinds").split(",") if kind]
        brokers = [number_in(request, "broker", 0, BROKER_ID_MAX)] if "broker" in request.query else []
        wanted = history_pb2.HistoryFilter(
            topic=text_in(request, "topic"),
            has_partition="partition" in request.query,
            partition=number_in(request, "partition", 0, BROKER_ID_MAX, 0),
            brokers=brokers,
            kinds=kinds or sorted(KINDS.keys() - QUIET),
            since_us=number_in(request, "since_us", 0, 2**62, 0),
            until_us=number_in(request, "until_us", 0, 2**62, 0),
        )
        limit = number_in(request, "limit", 1, RECORDS_MAX, 100)
        asked = history_pb2.ListHistoryRequest(filter=wanted, limit=limit)
        found = await self._asking.rpc(request, "ListHistory", asked)
        return {
            "records": [msgspec.Raw(line.encode()) for line in reversed(found.records)],
            "more": found.more,
            "oldest_us": found.oldest_us,
            "forgotten": found.forgotten,
        }


async def _in_portions(cells: Iterator[tuple[str, Counts]]) -> AsyncIterator[tuple[str, Counts]]:
    for number, cell in enumerate(cells, 1):
        yield cell
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
