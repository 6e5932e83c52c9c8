"""The wall clock of a running process jumps, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.provers.chaos.wall_clocks import WallClocks, possible

#: Reads a word, does what it says, answers with a line.
CHILD = """
import ctypes, errno, select, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)
class Moment(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]

def semaphore(moment):
    sem = ctypes.create_string_buffer(64)
    libc.sem_init(sem, 0, 0)
    libc.sem_timedwait(sem, moment)

def futex(moment):
    word = ctypes.c_uint32(0)
    wait_bitset, clock_realtime, all_bits = 9, 256, ctypes.c_uint32(0xFFFFFFFF)
    libc.syscall(202, ctypes.byref(word), wait_bitset | clock_realtime, 0, moment, None, all_bits)

def nanosleep(moment):
    assert libc.clock_nanosleep(time.CLOCK_REALTIME, 1, moment, None) == 0

for line in sys.stdin:
    word = line.strip()
    if word == "times":
        print(time.time_ns(), time.clock_gettime_ns(time.CLOCK_REALTIME), time.monotonic_ns(), flush=True)
    elif word == "short waits":
        time.sleep(0.01); threading.Event().wait(0.01); select.epoll().poll(0.01)
        print("done", flush=True)
    else:
        in_an_hour = Moment(int(time.time()) + 3600, 0)
        print("waits", flush=True)
        {"semaphore": semaphore, "futex": futex, "nanosleep": nanosleep}[word](ctypes.byref(in_an_hour))
        print("over" if ctypes.get_errno() in (0, errno.ETIMEDOUT) else ctypes.get_errno(), flush=True)
"""

pytestmark = [
    pytest.mark.skipif(not possible(), reason="no C compiler: no wall clock can jump here"),
    pytest.mark.skipif(sys.platform != "linux", reason="for Linux"),
]


@pytest.fixture
def clocks(tmp_path: Path) -> WallClocks:
    return WallClocks(tmp_path / "clocks")


@pytest.fixture
def ask(clocks: WallClocks) -> Iterator[Callable[[str], list[str]]]:
    command = [*clocks.launcher("one"), sys.executable, "-c", CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        writes, answers = child.stdin, child.stdout

        def ask_(word: str) -> list[str]:
            if word:
                writes.write(f"{word}\n")
                writes.flush()
            return answers.readline().split()

        yield ask_
        child.kill()


@pytest.mark.parametrize("offset_s", [3600, -3600])
def test_it_jumps_there_and_back_and_monotonic_time_goes_on(
    offset_s: int, clocks: WallClocks, ask: Callable[[str], list[str]]
) -> None:
    assert _off_s(ask) == (0, 0)
    before = time.monotonic_ns()
    clocks.set("one", offset_s)
    clocks.set("another", -offset_s)
    assert _off_s(ask) == (offset_s, offset_s)
    assert ask("short waits") == ["done"]
    assert before < int(ask("times")[2]) < time.monotonic_ns()
    clocks.set("one", 0)
    assert _off_s(ask) == (0, 0)


@pytest.mark.parametrize("wait", ["semaphore", "futex", "nanosleep"])
def test_a_wait_ends_when_the_clock_jumps_over_its_moment(
    wait: str, clocks: WallClocks, ask: Callable[[str], list[str]]
) -> None:
    clocks.set("one", -100)
    assert ask(wait) == ["waits"]
    clocks.set("one", 3600)
    assert ask("") == ["over"]


def _off_s(ask: Callable[[str], list[str]]) -> tuple[int, int]:
    """In minutes' precision, as answers take their time."""
    now = time.time_ns()
    one, other, _ = (int(word) for word in ask("times"))
    return tuple(60 * round((read - now) / 60e9) for read in (one, other))  # type: ignore[return-value]
