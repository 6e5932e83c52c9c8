"""What would happen: plans and stop verdicts of the RPCs ``Plan`` and ``CheckStoppable``, with lists cut for a page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
from aiohttp import web

from controller.core.model import BROKER_ID_MAX
from controller.core.requests.errors import ErrorCode
from controller.runtime.http.console.asking import ROWS_MAX, Asking, RefusedError, number_of, text_in
from proto.gen import inspection_pb2

Answer = Callable[[web.Request], Awaitable[Any]]

#: Entries of one list, steps of a plan, and brokers of a question.
NAMED_MAX, STEPS_MAX, BROKERS_MAX = 50, 100, 100
#: Lists of partitions in each step of a plan.
_LISTS = (
    "offline", "under_min_isr", "under_replicated", "offline_before", "under_min_isr_before", "under_replicated_before",
    "offline_after", "under_min_isr_after", "unclean_elections", "unreadable", "moved", "notes",
)  # fmt: skip


class WhatIf:
    """Answers to what-if questions. The plan queue of the RPCs bounds how many are made at a time."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def answers(self) -> Iterator[tuple[str, Answer]]:
        yield "plan", self._plan
        yield "stoppable", self._stoppable

    async def _plan(self, request: web.Request) -> dict[str, Any]:
        """``scenario``: broker-loss, rack-loss, rolling-restart, drain or preferred-election; ``brokers``; ``rack``."""
        scenario, ids = text_in(request, "scenario"), _brokers(request)
        match scenario:
            case "broker-loss":
                asked = inspection_pb2.PlanRequest(broker_loss={"broker_ids": ids})
            case "rack-loss":
                asked = inspection_pb2.PlanRequest(rack_loss=text_in(request, "rack"))
            case "rolling-restart":
                asked = inspection_pb2.PlanRequest(rolling_restart={"broker_ids": ids})
            case "drain":
                if len(ids) != 1:
                    raise RefusedError(ErrorCode.INVALID_REQUEST, "brokers: must name one broker")
                asked = inspection_pb2.PlanRequest(drain=ids[0])
            case "preferred-election":
                asked = inspection_pb2.PlanRequest(preferred_election=True)
            case _:
                known = "broker-loss, rack-loss, rolling-restart, drain, preferred-election"
                why = f"scenario = {scenario!r}: must be one of {known}"
                raise RefusedError(ErrorCode.INVALID_REQUEST, why)
        answer = await self._asking.rpc(request, "Plan", asked)
        plan = msgspec.json.decode(answer.plan)
        steps = plan["steps"]
        return {**plan, "steps": [_cut(step) for step in steps[:STEPS_MAX]], "steps_count": len(steps)}

    async def _stoppable(self, request: web.Request) -> dict[str, Any]:
        """May these brokers stop now, as by ``pctl stoppable``."""
        asked = inspection_pb2.CheckStoppableRequest(broker_ids=_brokers(request))
        answer = msgspec.json.decode((await self._asking.rpc(request, "CheckStoppable", asked)).answer)
        reasons = answer["reasons"]
        return {**answer, "reasons": reasons[:ROWS_MAX], "reasons_count": len(reasons)}


def _cut(step: dict[str, Any]) -> dict[str, Any]:
    """``counts``: how long the lists were."""
    short = {name: step[name][:NAMED_MAX] for name in _LISTS}
    return {**step, **short, "counts": {name: len(step[name]) for name in _LISTS}}


def _brokers(request: web.Request) -> list[int]:
    """Raises RefusedError."""
    texts = [text.strip() for text in text_in(request, "brokers").split(",") if text.strip()]
    if len(texts) > BROKERS_MAX:
        why = f"brokers: has {len(texts)} entries, must have at most {BROKERS_MAX}"
        raise RefusedError(ErrorCode.INVALID_REQUEST, why)
    return [number_of(text, "brokers", 0, BROKER_ID_MAX) for text in texts]
