"""Sends ISR proposals to an `IsrWriter`: one request in flight; proposals made meanwhile form the next request.

Reference, section 8.4, "Broker side"; KIP-497.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from broker_stub.control.requests import Key
from broker_stub.replication.ports import IsrProposal, IsrResult, IsrUnanswered, IsrWriter
from proto.error_names import error_name
from proto.gen import common_pb2 as codes

_log = structlog.get_logger("broker_stub.replication.isr")

#: Pause after a request that failed or was refused as a whole, seconds.
RETRY_PAUSE_S = 0.05
#: Proposals in one request.
BATCH_PROPOSALS = 5000
#: Error codes that end a proposal; after any other code it is sent again.
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
#: A lasting failure is logged once in so many attempts.
_REPORT_EVERY = 100

OnResult = Callable[[IsrProposal, IsrResult], None]
Current = Callable[[IsrProposal], bool]


class IsrProposer:
    """Queues proposals, at most one per partition, and passes the result of each to ``on_result``.

    ``is_current``: whether a proposal is still valid. One that a LeaderAndIsr has overtaken is dropped.
    """

    def __init__(self, writer: IsrWriter, is_current: Current, on_result: OnResult) -> None:
        self._writer, self._is_current, self._on_result = writer, is_current, on_result
        self._waiting: dict[Key, IsrProposal] = {}
        self._wake = asyncio.Event()

    def submit(self, proposal: IsrProposal) -> None:
        self._waiting[proposal.key] = proposal
        self._wake.set()

    async def run(self) -> None:
        """Send proposals until cancelled."""
        failures = 0
        while True:
            await self._wake.wait()
            batch = self._take()
            if not batch:
                continue
            try:
                again, why = self._handle_results(batch, await self._writer.propose(batch))
            except IsrUnanswered as error:
                again, why = batch, str(error)
            if not again:
                failures = 0
                continue
            if failures % _REPORT_EVERY == 0:
                _log.warning("ISR changes not made yet: trying again", count=len(again), why=why)
            failures += 1
            for proposal in again:
                self._waiting.setdefault(proposal.key, proposal)
            self._wake.set()
            await asyncio.sleep(RETRY_PAUSE_S)

    def _handle_results(
        self, batch: list[IsrProposal], results: Sequence[IsrResult | None]
    ) -> tuple[list[IsrProposal], str]:
        """Pass on final results. Returns the proposals to send again, and the reason of the last one."""
        again: list[IsrProposal] = []
        why = ""
        for proposal, result in zip(batch, results, strict=True):
            if result is not None and result.error in _FINAL:
                self._on_result(proposal, result)
                continue
            again.append(proposal)
            why = f"{proposal.key[0]}-{proposal.key[1]}: "
            if result is None:
                why += "the response does not name it"
            else:
                why += error_name(result.error)
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
