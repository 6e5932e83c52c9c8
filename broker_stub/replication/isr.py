"""Carrying ISR proposals to whoever makes them durable: one request in flight, the rest waits and goes together.

Reference, section 8.4, "Broker side"; KIP-497.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from broker_stub.control.requests import Key
from broker_stub.replication.ports import IsrProposal, IsrResult, IsrUnanswered, IsrWriter
from proto.gen import common_pb2 as codes

_log = structlog.get_logger("broker_stub.replication.isr")

#: Pause after a request that nobody answered or that was refused as a whole, seconds.
RETRY_PAUSE_S = 0.05
#: Proposals in one request.
BATCH_PROPOSALS = 5000
#: Answers that end a proposal; after any other it is made again.
_FINAL = frozenset(
    {
        codes.NONE,
        codes.OPERATION_NOT_ATTEMPTED,
        codes.INELIGIBLE_REPLICA,
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.UNKNOWN_TOPIC_ID,
        codes.FENCED_LEADER_EPOCH,
        codes.INVALID_UPDATE_VERSION,
        codes.INVALID_REQUEST,
    }
)
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
                again, why = self._take_answers(batch, await self._writer.propose(batch))
            except IsrUnanswered as error:
                again, why = batch, str(error)
            if not again:
                failures = 0
                continue
            if failures % _REPORT_EVERY == 0:
                _log.warning("ISR changes not made yet: asking again", count=len(again), why=why)
            failures += 1
            for proposal in again:
                self._waiting.setdefault(proposal.key, proposal)
            self._wake.set()
            await asyncio.sleep(RETRY_PAUSE_S)

    def _take_answers(
        self, batch: list[IsrProposal], results: Sequence[IsrResult | None]
    ) -> tuple[list[IsrProposal], str]:
        """Tell what is settled. Returns what is to be proposed again, and the last reason."""
        again: list[IsrProposal] = []
        why = ""
        for proposal, result in zip(batch, results, strict=True):
            if result is not None and result.error in _FINAL:
                self._settled(proposal, result)
                continue
            again.append(proposal)
            why = f"{proposal.key[0]}-{proposal.key[1]}: "
            if result is None:
                why += "the answer leaves it out"
            else:
                known = codes.ErrorCode.DESCRIPTOR.values_by_number.get(result.error)
                why += known.name if known else str(result.error)
        return again, why

    def _take(self) -> list[IsrProposal]:
        batch: list[IsrProposal] = []
        while self._waiting and len(batch) < BATCH_PROPOSALS:
            proposal = self._waiting.pop(next(iter(self._waiting)))
            if self._is_current(proposal):
                batch.append(proposal)
        if not self._waiting:
            self._wake.clear()
        return batch
