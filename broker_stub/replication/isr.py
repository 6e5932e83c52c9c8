"""Carrying ISR proposals to whoever makes them durable: one request in flight, the rest waits and goes together.

Reference, section 8.4, "Broker side"; KIP-497.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from broker_stub.control.requests import Key
from broker_stub.replication.ports import IsrProposal, IsrResult, IsrUnanswered, IsrWriter

_log = structlog.get_logger("broker_stub.replication.isr")

#: Pause after a request that nobody answered or that was refused as a whole, seconds.
RETRY_PAUSE_S = 0.05
#: Proposals in one request.
BATCH_PROPOSALS = 5000
#: A trouble that lasts is told again after so many attempts.
_REPORT_EVERY = 100

Settled = Callable[[IsrProposal, IsrResult], None]
Current = Callable[[IsrProposal], bool]


class IsrProposer:
    """Queues proposals, at most one for each partition, and tells what became of each.

    ``is_current``: whether a proposal still stands; one that was overtaken by a LeaderAndIsr is dropped.
    """

    def __init__(self, writer: IsrWriter, is_current: Current, settled: Settled) -> None:
        self._writer, self._is_current, self._settled = writer, is_current, settled
        self._waiting: dict[Key, IsrProposal] = {}
        self._wake = asyncio.Event()

    def submit(self, proposal: IsrProposal) -> None:
        self._waiting[proposal.key] = proposal
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        failures = 0
        while True:
            await self._wake.wait()
            batch = self._take()
            if not batch:
                continue
            try:
                results = await self._writer.propose(batch)
            except IsrUnanswered as error:
                if failures % _REPORT_EVERY == 0:
                    _log.warning("ISR changes not made yet: asking again", count=len(batch), why=str(error))
                failures += 1
                for proposal in batch:
                    self._waiting.setdefault(proposal.key, proposal)
                self._wake.set()
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            failures = 0
            for proposal, result in zip(batch, results, strict=True):
                self._settled(proposal, result)

    def _take(self) -> list[IsrProposal]:
        batch: list[IsrProposal] = []
        while self._waiting and len(batch) < BATCH_PROPOSALS:
            proposal = self._waiting.pop(next(iter(self._waiting)))
            if self._is_current(proposal):
                batch.append(proposal)
        if not self._waiting:
            self._wake.clear()
        return batch
