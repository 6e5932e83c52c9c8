"""Waking kazoo's thread never blocks who asks."""

from __future__ import annotations

import os

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from controller.runtime.zookeeper.kazoo_client import WakingHandler


def wakes_taken(handler: SequentialThreadingHandler, wanted: int) -> int:
    """How many bytes go in while nobody reads, of so many."""
    read, write = handler.create_socket_pair()
    os.set_blocking(write.fileno(), False)
    taken = 0
    try:
        # A full pipe writes nothing, a full socket says that it would block.
        while taken < wanted and write.send(b"\0"):
            taken += 1
    except BlockingIOError:
        pass
    finally:
        read.close()
        write.close()
    return taken


def test_outages_fill_a_socket_pair_and_not_our_pipe() -> None:
    assert wakes_taken(SequentialThreadingHandler(), 50_000) < 1_000
    assert wakes_taken(WakingHandler(), 50_000) == 50_000


def test_each_byte_wakes_once_and_a_closed_end_says_so() -> None:
    read, write = WakingHandler().create_socket_pair()
    write.send(b"\0")
    write.send(b"\0")
    assert [read.recv(1), read.recv(1)] == [b"\0", b"\0"]
    for end in (read, write):
        end.close()
    # Never the descriptor's number, which by then belongs to another file.
    with pytest.raises(ValueError, match="closed"):
        write.send(b"\0")
