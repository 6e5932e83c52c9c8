"""The cluster as it was a while ago: from what it is now, undoing the changes that are still in memory.

Only within this controller's present term: what others did before is not in its memory. Replicas, settings and topics
are those of now; leaders, ISRs and brokers those of then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, NamedTuple

from aiohttp import web

from controller.core.model import LeaderAndIsr, Partition, PartitionState
from controller.core.records import (
    AuditFinding,
    BrokerChange,
    FailoverPhase,
    LeadershipChange,
    LogBatch,
    PartitionTransition,
    ReassignmentStep,
    Rejection,
    RequestRecord,
    TopicChange,
)
from controller.core.requests.errors import ErrorCode
from controller.runtime.http.console import views
from controller.runtime.http.console.asking import Asking, RefusedError, number_in
from controller.runtime.http.console.survey import AT_ONCE, SHARE, Counts, Survey, tiles, total
from controller.runtime.http.console.whatif import Answer
from controller.runtime.http.min_isr import MinIsr
from controller.runtime.term import Term

#: Parts of the scale, tiles of the map of a moment, and callers that may wait for one.
PARTS, TILES_MAX, WAITING_MAX = 120, 480, 4
#: The scale is made again at most this often.
SCALE_EVERY_S = 2.0
#: What the scale counts: kinds of records, by the name of their column.
_COUNTED = {
    LeadershipChange: "leaders",
    BrokerChange: "brokers",
    TopicChange: "topics",
    ReassignmentStep: "moves",
    RequestRecord: "requests",
    Rejection: "refusals",
    AuditFinding: "audit",
}
#: The state of a broker in a record, if it tells whether the broker was registered before.
_BEFORE = {"online": True, "offline": False}


class Then(NamedTuple):
    """What was otherwise. ``states``: leaderships by partition; absent: as now. ``absent``: not there yet."""

    states: dict[tuple[str, int], LeaderAndIsr | None]
    absent: set[tuple[str, int]]
    registered: frozenset[int]


class Replay:
    """Answers about moments of the past; one at a time, by a tenth of the time of one processor."""

    def __init__(self, asking: Asking, min_isr: MinIsr) -> None:
        self._asking, self._min_isr = asking, min_isr
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._again_at_s = 0.0
        # A former term must not be kept in memory: here terms are their controller epochs.
        #: The term, and the end of its failover.
        self._began = (0, 0)
        #: The term, when it was made, the scale.
        self._scale: tuple[int, float, dict[str, Any]] = (0, 0.0, {})
        #: The last moment: the term, its time, its count.
        self._last: tuple[int, int, Survey] | None = None
        #: The place of the newest batch that is undone for the moment that is being made.
        self._undone = -1

    def answers(self) -> Iterator[tuple[str, Answer]]:
        yield "scale", self._timeline
        yield "moment", self._moment

    async def _timeline(self, request: web.Request) -> dict[str, Any]:
        """How much happened when, from the oldest moment that can be shown until now."""
        del request
        term, now_s = self._asking.leading(), time.monotonic()
        of, made_s, made = self._scale
        if of != term.won.epoch or now_s - made_s >= SCALE_EVERY_S:
            made = await self._made_scale(term)
            self._scale = term.won.epoch, now_s, made
        return made

    async def _made_scale(self, term: Term) -> dict[str, Any]:
        oldest_us, until_us = self._oldest_us(term), _now_us()
        part_us = max((until_us - oldest_us) // PARTS + 1, 1)
        counts: dict[str, list[int]] = {}
        for number, entry in enumerate(self._asking.daemon.recent.entries(term.won.epoch), 1):
            name = _COUNTED.get(entry.batch.kind)
            if name is not None:
                column = counts.setdefault(name, [0] * PARTS)
                part = (entry.ts_us - oldest_us) // part_us
                column[min(max(part, 0), PARTS - 1)] += len(entry.batch.records)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        return {"from_us": str(oldest_us), "until_us": str(until_us), "parts": PARTS, "counts": counts}

    def _oldest_us(self, term: Term) -> int:
        """The end of the failover, or the oldest record in memory where that is younger."""
        recent = self._asking.daemon.recent
        if self._began[0] != term.won.epoch:
            phases = (e.ts_us for e in recent.entries(term.won.epoch) if e.batch.kind is FailoverPhase)
            self._began = term.won.epoch, next(phases, 0)
        return max(recent.oldest_us if recent.forgotten else 0, self._began[1])

    async def _moment(self, request: web.Request) -> dict[str, Any]:
        """The cluster at ``at_us``, microseconds since 1970."""
        term, now_us = self._asking.leading(), _now_us()
        at_us = number_in(request, "at_us", 0, 2**62)
        oldest_us = self._oldest_us(term)
        if not oldest_us <= at_us <= now_us:
            why = f"at_us = {at_us}: must be from {oldest_us} to {now_us}, what is before is not in memory"
            raise RefusedError(ErrorCode.INVALID_REQUEST, why)
        survey = await self._survey(term, at_us)
        cells = [cell for cell in survey.within("", "") if self._asking.may_see(request, cell[0])]
        return {
            "at_us": str(at_us),
            "findings": [{"what": f.what.value, "text": f.text} for f in survey.tally.findings()],
            "brokers": sorted(survey.tally.registered),
            "gone": sorted(survey.tally.lacking),
            "counts": {"topics": len(survey.names), **survey.total._asdict()},
            "tiles": [views.tile(one) for one in tiles(cells, TILES_MAX)],
        }

    async def _survey(self, term: Term, at_us: int) -> Survey:
        if self._waiting >= WAITING_MAX:
            raise RefusedError(ErrorCode.OPERATION_NOT_ATTEMPTED, "others wait already: ask again later")
        self._waiting += 1
        try:
            async with self._lock:
                if self._last is not None and self._last[:2] == (term.won.epoch, at_us):
                    return self._last[2]
                await asyncio.sleep(self._again_at_s - time.monotonic())
                began_s = time.thread_time()
                await self._min_isr.refresh(term)
                survey = await self._counted(term, await self._then(term, at_us))
                # Of other work between the portions a part is counted, too: then there is more time for it.
                self._again_at_s = time.monotonic() + SHARE * (time.thread_time() - began_s)
                self._last = term.won.epoch, at_us, survey
                return survey
        finally:
            self._waiting -= 1

    async def _then(self, term: Term, at_us: int) -> Then:
        states: dict[tuple[str, int], LeaderAndIsr | None] = {}
        absent: set[tuple[str, int]] = set()
        registered = set(term.machine.cluster.brokers)
        looked = 0
        self._undone = next((e.before for e in self._asking.daemon.recent.entries(term.won.epoch)), -1)
        for entry in self._asking.daemon.recent.entries(term.won.epoch):
            if entry.ts_us <= at_us:
                break
            _undo(entry.batch, states, absent, registered)
            looked += len(entry.batch.records)
            if looked >= AT_ONCE:
                looked = 0
                await asyncio.sleep(0)
        return Then(states, absent, frozenset(registered))

    def _undo_later(self, term: Term, then: Then) -> None:
        """Undo what came while others had their turn."""
        entries = self._asking.daemon.recent.entries(term.won.epoch)
        later = list(takewhile(lambda entry: entry.before > self._undone, entries))
        if not later:
            return
        states: dict[tuple[str, int], LeaderAndIsr | None] = {}
        absent: set[tuple[str, int]] = set()
        for entry in later:
            _undo(entry.batch, states, absent, set())
        then.absent.update(absent)
        then.states.update({key: state for key, state in states.items() if key not in then.states})
        self._undone = later[0].before

    async def _counted(self, term: Term, then: Then) -> Survey:
        cluster, survey, since = term.machine.cluster, Survey(then.registered), 0
        self._undo_later(term, then)
        for name in sorted(cluster.topics):
            # It may have been deleted meanwhile.
            if (topic := cluster.topics.get(name)) is None:
                continue
            min_isr, ones = self._min_isr.of(name), []
            for partition in list(topic.partitions.values()):
                if (name, partition.number) not in then.absent:
                    ones.append(_as_then(survey, partition, then, min_isr))
                since += 1
                if since >= AT_ONCE:
                    since = 0
                    await asyncio.sleep(0)
                    self._undo_later(term, then)
            if ones:
                survey.names.append(name)
                survey.topics.append(total(ones))
        survey.total = total(survey.topics)
        return survey


def _as_then(survey: Survey, partition: Partition, then: Then, min_isr: int) -> Counts:
    state = then.states.get((partition.topic.name, partition.number), partition.leadership)
    return survey.count_as(partition, state, min_isr)


def _undo(
    batch: LogBatch,
    states: dict[tuple[str, int], LeaderAndIsr | None],
    absent: set[tuple[str, int]],
    registered: set[int],
) -> None:
    """Batches are undone newest first, and so are the records of one."""
    for leadership in reversed(batch.of(LeadershipChange)):
        states[leadership.partition.topic.name, leadership.partition.number] = leadership.old
    for transition in reversed(batch.of(PartitionTransition)):
        key = transition.partition.topic.name, transition.partition.number
        if transition.before is PartitionState.NON_EXISTENT:
            absent.add(key)
        elif transition.after is PartitionState.NON_EXISTENT:
            # A topic of this name was deleted, and created again.
            absent.discard(key)
    for change in reversed(batch.of(BrokerChange)):
        was = _BEFORE.get(change.before)
        if was is True and change.to == "offline":
            registered.add(change.broker_id)
        elif change.to == "online" and was is False:
            registered.discard(change.broker_id)


def _now_us() -> int:
    return time.time_ns() // 1000
