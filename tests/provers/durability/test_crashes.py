"""Controllers killed with -9 at commits of deletions and moves; every commit is ``make crashes``."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from random import Random

import pytest

from controller.runtime.zookeeper import jute
from tests.provers.durability.crashes import difference, run
from tests.provers.durability.traps import StepTrap, fenced_write


def _multi(*ops: bytes) -> bytes:
    return struct.pack(">ii", 7, jute.OP_MULTI) + b"".join(ops) + b"\xff\xff\xff\xff\x01\xff\xff\xff\xff"


FENCE = jute.op_check(b"/here/controller_epoch", 3)
FENCED = _multi(FENCE, jute.op_delete(b"/here/brokers/topics/t", -1))


@pytest.mark.parametrize(
    ("opcode", "body", "what"),
    [
        (jute.OP_MULTI, FENCED, "delete /here/brokers/topics/t"),
        (jute.OP_MULTI, _multi(FENCE, jute.op_set(b"/a", b"data", 1)), "set /a"),
        (jute.OP_MULTI, _multi(FENCE, jute.op_create(b"/b", b"")), "create /b"),
        (jute.OP_MULTI, _multi(jute.op_set(b"/controller_epoch", b"2", 1)), None),
        (jute.OP_MULTI, _multi(jute.op_check(b"/other", 1), jute.op_set(b"/a", b"", 1)), None),
        (jute.OP_MULTI_READ, FENCED, None),
    ],
)
def test_fenced_writes_are_told_from_others(opcode: int, body: bytes, what: str | None) -> None:
    assert fenced_write(opcode, body) == what


@pytest.mark.parametrize("landed", [False, True])
async def test_the_trap_kills_once_at_its_step(landed: bool) -> None:
    kills: list[int] = []
    trap = StepTrap(1, landed, lambda: kills.append(1))
    assert await trap.request(1, jute.OP_MULTI, FENCED)
    assert await trap.request(2, jute.OP_MULTI_READ, FENCED)
    assert await trap.answer(1)
    # Passed on if it is to land; then its answer is the one that is not.
    assert await trap.request(3, jute.OP_MULTI, FENCED) is landed
    assert bool(kills) is not landed
    if landed:
        assert await trap.answer(2)
        assert not await trap.answer(3)
    assert trap.killed
    assert len(kills) == 1
    assert len(trap.steps) == 2


def test_differences_are_named() -> None:
    wanted = {"znodes": {"/a": 1, "/b": 2}, "disks": {1: {"t-0": [(0, 5)]}}}
    found = {"znodes": {"/a": 1, "/c": 3}, "disks": {1: {"t-0": []}}}
    assert difference(wanted, wanted) == []
    assert difference(wanted, found) == [
        " znodes /b: missing",
        " znodes /c: should not be there: 3",
        " disks 1 t-0: [] instead of [(0, 5)]",
    ]


@pytest.mark.long
@pytest.mark.slow
async def test_the_successor_finishes(zookeeper: str, tmp_path: Path) -> None:
    """One commit of each story, drawn anew each time; CRASH_SEED repeats a draw."""
    seed = int(os.environ.get("CRASH_SEED", Random().randrange(10**6)))
    print(f"CRASH_SEED={seed}")
    outcomes = await run(zookeeper, tmp_path, print, lanes=2, seed=seed)
    assert len(outcomes) == 5
    assert all(len(outcome.killed) == 1 for outcome in outcomes)
