"""A process that is killed at its n-th fenced write: before ZooKeeper hears of it, or after it landed."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from controller.runtime.zookeeper import jute

_INT = struct.Struct(">i")
#: After xid and opcode, each operation of a multi: its kind, whether it is the end, an error code.
_OP_HEADER = struct.Struct(">i?i")
_FIRST_OP = 8
_VERBS = {jute.OP_CREATE: "create", jute.OP_SET_DATA: "set", jute.OP_DELETE: "delete"}
_FENCE = b"/controller_epoch"


class StepTrap:
    """Counts the controller's commits, and kills at one of them.

    ``step``: at which, from 0; None only counts. ``landed``: the write is passed on, and its answer is not; else it
    is not passed on. Whatever comes after it is not passed on either. ``steps``: what each was, in words.
    """

    def __init__(self, step: int | None, landed: bool, kill: Callable[[], None]) -> None:
        self._step, self._landed, self._kill = step, landed, kill
        self._awaited: int | None = None
        self.steps: list[str] = []
        self.killed = False

    async def request(self, xid: int, opcode: int, body: bytes) -> bool:
        if self._awaited is not None:
            await asyncio.Event().wait()  # until the kill ends the connection
        what = fenced_write(opcode, body)
        if what is None:
            return True
        self.steps.append(what)
        if len(self.steps) - 1 != self._step:
            return True
        if self._landed:
            self._awaited = xid
            return True
        self._end()
        return False

    async def answer(self, xid: int) -> bool:
        if xid != self._awaited:
            return True
        self._end()
        return False

    def _end(self) -> None:
        self._kill()
        self.killed = True


def fenced_write(opcode: int, body: bytes) -> str | None:
    """What a request writes first, if it is a multi that checks the controller epoch; else None."""
    if opcode != jute.OP_MULTI or _OP_HEADER.unpack_from(body, _FIRST_OP)[0] != jute.OP_CHECK:
        return None
    path, end = _path(body, _FIRST_OP + _OP_HEADER.size)
    if not path.endswith(_FENCE):
        return None
    kind, _, _ = _OP_HEADER.unpack_from(body, end + 4)
    return f"{_VERBS[kind]} {_path(body, end + 4 + _OP_HEADER.size)[0].decode()}"


def _path(body: bytes, offset: int) -> tuple[bytes, int]:
    """A string, and where it ends."""
    (length,) = _INT.unpack_from(body, offset)
    start = offset + _INT.size
    return body[start : start + length], start + length
