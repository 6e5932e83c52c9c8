"""Calls of gRPC whose one request has not come yet. Who never sends it must not take the place of others: it has its
time, and of too many such calls the first to come is ended.

A call with one request is served as one with many, of which the first is taken: only so it can be ended before that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc

Answered = Callable[[Any, Any], Awaitable[Any]]
Streamed = Callable[[Any, Any], AsyncGenerator[Any, None]]

#: For the request to come whole, seconds: a large one takes long on a slow network.
REQUEST_S = 120.0


class Arrivals:
    """Those of one server. ``calls_max``: at one time, of all callers."""

    def __init__(self, calls_max: int) -> None:
        self._calls_max = calls_max
        #: Their time limits, in the order in which they came.
        self._waiting: dict[asyncio.Timeout, None] = {}

    def answered(self, handler: Answered) -> Any:
        """The handler of a call, given its request when that is there."""

        async def handle(requests: AsyncIterable[Any], context: Any) -> Any:
            return await handler(await self._request(requests, context), context)

        return handle

    def streamed(self, handler: Streamed) -> Any:
        """``answered``, of a call with many answers."""

        async def handle(requests: AsyncIterable[Any], context: Any) -> AsyncGenerator[Any, None]:
            async with aclosing(handler(await self._request(requests, context), context)) as answers:
                async for answer in answers:
                    yield answer

        return handle

    async def _request(self, requests: AsyncIterable[Any], context: Any) -> Any:
        if len(self._waiting) >= self._calls_max:
            self._end(next(iter(self._waiting)))
        try:
            async with asyncio.timeout(REQUEST_S) as limit:
                self._waiting[limit] = None
                try:
                    async for request in requests:
                        return request
                finally:
                    self._waiting.pop(limit, None)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the request did not come in time")
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "there is no request")
        raise AssertionError("abort raises")

    def _end(self, limit: asyncio.Timeout) -> None:
        del self._waiting[limit]
        if not limit.expired():
            limit.reschedule(asyncio.get_running_loop().time())
