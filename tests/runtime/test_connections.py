"""Which HTTP connection is ended, and when: without a network."""

from __future__ import annotations

import asyncio

from controller.runtime.http.connections import FIRST_REQUEST_S, Connections


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
