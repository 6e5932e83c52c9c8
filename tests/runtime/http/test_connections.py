"""Which HTTP connection is ended, and when: without a network."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from controller.runtime.http.connections import ASKING, FIRST_REQUEST_S, IDLE_S, REQUEST_S, Connections


class Transport(asyncio.Transport):
    ended = False

    def abort(self) -> None:
        self.ended = True


def test_who_is_idle_for_longest_makes_room() -> None:
    now_s = 0.0
    connections = Connections(2, lambda: now_s)
    first, second, third = Transport(), Transport(), Transport()
    for now_s, transport in enumerate((first, second, third)):  # noqa: B007  (the clock reads it)
        connections.opened(transport)
    assert (first.ended, second.ended, third.ended) == (True, False, False)
    assert len(connections) == 2


def test_what_sends_no_request_is_ended() -> None:
    now_s = 0.0
    connections = Connections(2, lambda: now_s)
    silent = Transport()
    connections.opened(silent)
    ended = []
    for now_s in (FIRST_REQUEST_S, FIRST_REQUEST_S + 1):  # noqa: B007  (the clock reads it)
        connections.end_overdue()
        ended.append((silent.ended, len(connections)))
    assert ended == [(False, 1), (True, 0)]


async def test_who_has_its_answer_is_idle_again() -> None:
    now_s = 0.0
    connections = Connections(2, lambda: now_s)
    answered, asking, third, fourth = (Transport() for _ in range(4))
    connections.opened(answered)

    class Answer(web.Response):
        async def prepare(self, request: web.BaseRequest) -> None: ...

        async def write_eof(self, data: bytes = b"") -> None: ...

    async def at_once(_: web.Request) -> web.StreamResponse:
        return Answer()

    async def meanwhile(_: web.Request) -> web.StreamResponse:
        connections.opened(third)
        assert (answered.ended, asking.ended) == (True, False)
        connections.end_overdue()
        connections.opened(fourth)
        assert (asking.ended, third.ended, fourth.ended) == (False, True, False)
        return Answer()

    await connections.measured(make_mocked_request("GET", "/", transport=answered), at_once)
    now_s = IDLE_S
    connections.end_overdue()
    assert not answered.ended
    connections.opened(asking)
    await connections.measured(make_mocked_request("GET", "/", transport=asking), meanwhile)


async def test_each_part_of_a_stream_has_its_time() -> None:
    """A reader that stands still is ended; one that reads on is not, however long it takes."""
    now_s = 0.0
    connections = Connections(2, lambda: now_s)
    transport = Transport()
    connections.opened(transport)
    request = make_mocked_request("GET", "/", transport=transport)

    async def stream(asked: web.Request) -> web.StreamResponse:
        nonlocal now_s
        for _ in range(3):
            now_s += REQUEST_S
            connections.end_overdue()
            assert not transport.ended
            asked[ASKING].goes_on()
        now_s += REQUEST_S + 1
        connections.end_overdue()
        assert transport.ended
        asked[ASKING].goes_on()
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await connections.measured(request, stream)
    assert len(connections) == 0


async def test_who_has_left_gets_no_answer_and_no_error() -> None:
    """A prober gives up while the process stands still."""
    connections = Connections(2)
    transport = Transport()
    connections.opened(transport)
    request = make_mocked_request("GET", "/live", transport=transport)

    class Answer(web.Response):
        async def prepare(self, request: web.BaseRequest) -> None:
            raise ConnectionResetError("Cannot write to closing transport")

    answer = Answer(text="live\n")

    async def live(_: web.Request) -> web.StreamResponse:
        return answer

    assert await connections.measured(request, live) is answer
