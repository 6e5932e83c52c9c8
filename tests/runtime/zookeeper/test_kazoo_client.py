"""Waking kazoo's thread never blocks who asks; what it waits for is what kazoo's own handler would wait for."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from controller.runtime.zookeeper.kazoo_client import Client, PackedChildren, WakingHandler


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


def test_an_end_with_nothing_to_read_has_no_bytes() -> None:
    read, write = WakingHandler().create_socket_pair()
    os.set_blocking(read.fileno(), False)
    assert read.recv(1) == b""
    for end in (read, write):
        end.close()


def test_children_are_asked_for_below_the_chroot() -> None:
    client, asked = Client(hosts="127.0.0.1:1/kafka"), list[Any]()
    client.raw = asked.append  # type: ignore[method-assign, assignment]
    client.packed_children("/brokers/topics", None)
    (request,) = asked
    assert (type(request), request.path) == (PackedChildren, "/kafka/brokers/topics")


def test_watches_of_znodes_that_are_gone_leave_nothing() -> None:
    client = Client(hosts="127.0.0.1:1")
    paths = [b"/a", b"/b"]
    client.know_data_watcher(paths, ours := object())
    client.know_data_watcher(paths[:1], others := object())
    client.forget_data_watcher([*paths, b"/c"], ours)
    assert dict(client._data_watchers) == {"/a": {others}}


def what_is_ready(handler: SequentialThreadingHandler, case: str) -> Any:
    """Of a socket's two ends in some case: which can be read, which written; or what is raised."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        match case:
            case "arrived":
                theirs.send(b"x")
            case "hung up":
                theirs.close()
            case "half closed":
                theirs.shutdown(socket.SHUT_WR)
            case "full":
                with suppress(BlockingIOError):
                    while ours.send(bytes(65536)):
                        pass
            case "closed":
                ours.close()
        found: list[Any] = []
        for reads, writes, timeout in (
            ([ours], [], 0.001),
            ([], [ours], 0.001),
            ([ours], [theirs], 0),
            ([], [], 0.001),
            ([ours], [], -1),
        ):
            try:
                readable, writable, failed = handler.select(reads, writes, [], timeout)
                found.append((len(readable), len(writable), failed))
            except (TypeError, ValueError) as error:
                found.append((type(error), str(error).partition(":")[0]))
        return found


@pytest.mark.parametrize("case", ["nothing", "arrived", "hung up", "half closed", "full", "closed"])
def test_it_waits_for_what_kazoo_waits_for(case: str) -> None:
    assert what_is_ready(WakingHandler(), case) == what_is_ready(SequentialThreadingHandler(), case)
