"""Requests that have to be refused, and those that ask for nothing to be written, bear a mark: nobody may write it."""

from __future__ import annotations

from collections.abc import Callable

from tests.provers.sim.zookeeper.tree import DataSet, NodeCreated, Transaction

#: Part of each name and value, and the broker id, that such a request has.
REFUSED, NOBODY = "refused", 777_555_333
_MARKS = (REFUSED.encode(), str(NOBODY).encode())


class Refusals:
    """``report`` takes each violation, in words."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report

    def agreed(self, transaction: Transaction, writer: str) -> None:
        for change in transaction.changes:
            if isinstance(change, NodeCreated | DataSet):
                written = b"%s %s" % (change.path.encode(), change.data or b"")
                if any(mark in written for mark in _MARKS):
                    self._report(f"{writer} wrote what was refused, or only to be tried: {change}"[:300])
