"""Faults that strike at a moment: not at some time, but when something happens, to whom it happens or whoever does it.

What goes wrong for a millisecond only would be hit by chance once in thousands of runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.provers.sim.environment.loop import OUTSIDE, VirtualTimeLoop
from tests.provers.sim.plans.plan import BY_BROKER, BY_CONTROLLER, BY_NODE
from tests.provers.sim.zookeeper.tree import Change, DataSet, NodeCreated, NodeDeleted, SessionEnded

_STATE = re.compile(r"/brokers/topics/[^/]+/partitions/\d+/state\Z")
_TOPIC = re.compile(r"/brokers/topics/[^/]+\Z")
_REGISTRATION = re.compile(r"/brokers/ids/\d+\Z")


@dataclass
class _Aim:
    moment: str
    #: Occurrences still to come, this one counted.
    count: int
    strike: Callable[[str, str], None]


class Aims:
    """``begin(fault, arguments)`` begins a fault. Names of moments: ``plan.MOMENTS``."""

    def __init__(self, loop: VirtualTimeLoop, begin: Callable[[str, tuple[Any, ...]], None]) -> None:
        self._loop, self._begin = loop, begin
        self._aims: list[_Aim] = []

    def take(
        self, moment: str, count: int, delay_s: float, at: str, fault: str, arguments: tuple[Any, ...]
    ) -> None:
        """Strike ``delay_s`` after the count-th such moment from now on; ``at``: ``doer``, ``other`` (the one it is
        done to), or nobody in particular."""

        def strike(doer: str, other: str) -> None:
            whom = {"doer": doer, "other": other}.get(at, "")
            self._loop.call_later(
                delay_s, partial(self._begin, fault, _turned(fault, arguments, whom)), context=OUTSIDE.copy()
            )

        self._aims.append(_Aim(moment, count, strike))

    def forget(self) -> None:
        """Nothing goes wrong any more."""
        self._aims.clear()

    def agreed(self, changes: tuple[Change, ...], writer: str, owners: Mapping[int, str]) -> None:
        """A transaction of ZooKeeper's; ``owners`` of sessions, by id."""
        if not self._aims:
            return
        for change in changes:
            if isinstance(change, SessionEnded):
                owner = owners.get(change.session_id, "")
                self._happened("session ends", owner, owner)
        for moment in dict.fromkeys(_moment_of(change, writer) for change in changes):
            self._happened(moment, writer, writer)

    def sent(self, caller: str, server: str, method: str) -> None:
        self._happened(f"sends {method}", caller, server)

    def taken(self, caller: str, server: str, method: str) -> None:
        self._happened(f"takes {method}", server, caller)

    def _happened(self, moment: str, doer: str, other: str) -> None:
        for aim in [aim for aim in self._aims if aim.moment == moment]:
            aim.count -= 1
            if aim.count == 0:
                self._aims.remove(aim)
                aim.strike(doer, other)


def _moment_of(change: Change, writer: str) -> str:
    match change:
        case NodeCreated("/controller"):
            return "is elected"
        case NodeCreated(path) if _REGISTRATION.match(path):
            return "registers"
        case NodeCreated(path) if _STATE.match(path):
            return "creates state"
        case DataSet(path) if _STATE.match(path):
            return "changes state" if writer.startswith("controller-") else "changes ISR"
        case NodeCreated(path) | DataSet(path) if _TOPIC.match(path):
            return "changes topic"
        case NodeDeleted(path) if path.startswith(("/brokers/topics/", "/admin/")):
            return "deletes"
    return ""


def _turned(fault: str, arguments: tuple[Any, ...], whom: str) -> tuple[Any, ...]:
    """The arguments, with whom it is about, where the fault can be about them."""
    kind, _, number = whom.rpartition("-")
    if fault in BY_NODE and kind in ("broker", "controller"):
        return whom, *arguments[1:]
    if (kind == "broker" and fault in BY_BROKER) or (kind == "controller" and fault in BY_CONTROLLER):
        return int(number), *arguments[1:]
    return arguments
