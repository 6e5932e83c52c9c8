"""ListHistory and Watch of AdminService: the controller's past and new state-change records.

Both are served from memory in small portions, one at a time for all callers. While the controller handles an event,
portions are slowed down, like the writing of the state-change log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

from controller.core.names import topic_name_problem
from controller.core.requests.errors import ErrorCode
from controller.runtime.daemon import Daemon
from controller.runtime.observe.history_filter import Filter
from controller.runtime.rpc.translate.topics import BadRequestError
from proto.gen import history_pb2 as pb
from proto.statelog.schema import KINDS

LIMIT_DEFAULT, LIMIT_MAX = 1000, 100_000
#: Size of the lines in one response, bytes; older lines beyond it are left out.
ANSWER_BYTES_MAX = 32 * 1024 * 1024
#: Values of one field of a filter: four million took the event loop 1.5 s.
FILTERED_MAX = 10_000
#: Watchers at the same time; each takes one of the server's concurrent calls.
WATCHERS_MAX = 100
#: Pause between two portions while an event is being handled.
BUSY_PAUSE_S = 0.025

T = TypeVar("T")


class HistoryService:
    """Handlers run on the daemon's event loop, between its steps."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon, self._recent = daemon, daemon.recent
        self._one_at_a_time = asyncio.Lock()
        self.watchers = 0

    async def list_history(self, request: pb.ListHistoryRequest) -> pb.ListHistoryResponse:
        """The newest records that pass the filter, from the active controller's memory, or on request a standby's."""
        try:
            wanted, limit = _read_listing(request)
        except BadRequestError as error:
            return pb.ListHistoryResponse(**_refusal(ErrorCode.INVALID_REQUEST, str(error)))
        if not self._daemon.active and not request.standby_too:
            return pb.ListHistoryResponse(**_refusal(ErrorCode.NOT_CONTROLLER, ""))
        lines: list[str] = []
        size, more = 0, False
        portions = self._recent.backwards(wanted)
        while not more and (portion := await self._in_turn(lambda: next(portions, None))) is not None:
            for line in portion:
                size += len(line)
                if len(lines) == limit or size > ANSWER_BYTES_MAX:
                    more = True
                    break
                lines.append(line)
        lines.reverse()
        return pb.ListHistoryResponse(
            records=lines,
            more=more,
            oldest_us=self._recent.oldest_us,
            forgotten=self._recent.forgotten,
            controller_id=self._daemon.settings.controller_id,
        )

    async def watch(self, request: pb.WatchRequest) -> AsyncGenerator[pb.WatchResponse, None]:
        """New records, until the caller cancels or this term of leadership is over."""
        try:
            wanted = _read_filter(request.filter)
        except BadRequestError as error:
            yield pb.WatchResponse(**_refusal(ErrorCode.INVALID_REQUEST, str(error)))
            return
        term = self._daemon.leading
        if term is None:
            yield pb.WatchResponse(**_refusal(ErrorCode.NOT_CONTROLLER, ""))
            return
        if self.watchers >= WATCHERS_MAX:
            problem = f"there are {WATCHERS_MAX} watchers already: no more are allowed"
            yield pb.WatchResponse(**_refusal(ErrorCode.POLICY_VIOLATION, problem))
            return
        epoch = term.won.epoch
        follower = self._recent.follow(wanted, since_epoch=epoch if request.whole_epoch else None)
        self.watchers += 1
        try:
            yield pb.WatchResponse(controller_id=self._daemon.settings.controller_id, controller_epoch=epoch)
            while True:
                lines, missed = await self._in_turn(follower.take)
                if lines or missed:
                    yield pb.WatchResponse(records=lines, missed=missed)
                elif not follower.behind:
                    if self._daemon.term is not term:
                        break
                    await self._recent.growth()
        finally:
            self.watchers -= 1
        yield pb.WatchResponse(**_refusal(ErrorCode.NOT_CONTROLLER, "its term is over"))

    async def _in_turn(self, work: Callable[[], T]) -> T:
        """Do one portion of work, one caller at a time, then yield to the event loop."""
        async with self._one_at_a_time:
            done = work()
            term = self._daemon.term
            deciding = term is not None and term.machine.current_event is not None
            await asyncio.sleep(BUSY_PAUSE_S if deciding else 0)
        return done


def _refusal(error: ErrorCode, message: str) -> dict[str, Any]:
    return {"error_code": error.value, "error_message": message}


def _read_listing(request: pb.ListHistoryRequest) -> tuple[Filter, int]:
    wanted, limit = _read_filter(request.filter), request.limit
    if not 0 <= limit <= LIMIT_MAX:
        raise BadRequestError(f"limit = {limit}: must be from 0 ({LIMIT_DEFAULT}) to {LIMIT_MAX}")
    return wanted, limit or LIMIT_DEFAULT


def _read_filter(given: pb.HistoryFilter) -> Filter:
    """Raises BadRequestError naming the field."""
    if given.topic and (problem := topic_name_problem(given.topic)):
        raise BadRequestError(f"filter.topic: {problem}")
    if given.has_partition and not given.topic:
        raise BadRequestError("filter.partition: needs filter.topic, which is empty")
    for name, count in (("brokers", len(given.brokers)), ("kinds", len(given.kinds))):
        if count > FILTERED_MAX:
            raise BadRequestError(f"filter.{name} has {count} values: must be at most {FILTERED_MAX}")
    for name, number in (
        ("partition", given.partition),
        ("controller_epoch", given.controller_epoch),
        ("since_us", given.since_us),
        ("until_us", given.until_us),
        *(("brokers", broker) for broker in given.brokers),
    ):
        if number < 0:
            raise BadRequestError(f"filter.{name} = {number}: must not be negative")
    if unknown := sorted(set(given.kinds) - KINDS.keys()):
        raise BadRequestError(f"filter.kinds = {unknown[0]!r}: must be among {', '.join(sorted(KINDS))}")
    return Filter(
        given.topic,
        given.partition if given.has_partition else None,
        frozenset(given.brokers),
        given.controller_epoch or None,
        frozenset(given.kinds),
        given.since_us,
        given.until_us,
    )
