"""Proposals of ISRs: each gets its final result once, and whatever has none is proposed again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from broker_stub.replication import isr as module
from broker_stub.replication.isr import _FINAL, IsrProposer
from broker_stub.replication.ports import IsrProposal, IsrResult, IsrUnanswered
from proto.gen import common_pb2 as codes

Outcome = list[codes.ErrorCode | None] | IsrUnanswered


def proposal(number: int, epoch: int = 5) -> IsrProposal:
    return IsrProposal(("t", number), "id", epoch, (1,), 7, 1)


class Written:
    """A writer that answers each request with the next outcome, the last one for ever, and a proposer on it."""

    def __init__(self, *outcomes: Outcome) -> None:
        self._outcomes = list(outcomes)
        self.requests: list[list[int]] = []
        self.results: list[tuple[int, codes.ErrorCode]] = []
        self.gone: set[int] = set()
        self.proposer = IsrProposer(
            self,
            lambda asked: asked.key[1] not in self.gone,
            lambda asked, result: self.results.append((asked.key[1], result.error)),
        )

    async def propose(self, batch: Sequence[IsrProposal]) -> list[IsrResult | None]:
        self.requests.append([asked.key[1] for asked in batch])
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        if isinstance(outcome, IsrUnanswered):
            raise outcome
        return [
            None if error is None else IsrResult(asked.key, error)
            for asked, error in zip(batch, outcome * len(batch), strict=False)
        ]

    async def run(self, *numbers: int, requests: int) -> None:
        """Propose these, and go on until so many requests were made."""
        for number in numbers:
            self.proposer.submit(proposal(number))
        task = asyncio.create_task(self.proposer.run())
        for _ in range(10_000):
            if task.done() or (len(self.requests) >= requests and not self.proposer._waiting):
                break
            await asyncio.sleep(0)
        assert not task.done(), task.exception()
        await asyncio.sleep(0)
        task.cancel()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_PAUSE_S", 0)


@pytest.mark.parametrize(
    "missing", [None, codes.NOT_CONTROLLER, codes.STALE_BROKER_EPOCH, codes.UNKNOWN_SERVER_ERROR]
)
async def test_what_has_no_final_result_is_proposed_again_and_nothing_else(
    missing: codes.ErrorCode | None,
) -> None:
    written = Written([codes.NONE, missing, codes.FENCED_LEADER_EPOCH], [codes.NONE])
    await written.run(0, 1, 2, requests=2)
    assert written.requests == [[0, 1, 2], [1]]
    assert written.results == [(0, codes.NONE), (2, codes.FENCED_LEADER_EPOCH), (1, codes.NONE)]


async def test_a_request_without_an_answer_is_made_again_as_a_whole() -> None:
    written = Written(IsrUnanswered("cut off"), [codes.NONE])
    await written.run(0, 1, requests=2)
    assert written.requests == [[0, 1], [0, 1]]
    assert written.results == [(0, codes.NONE), (1, codes.NONE)]


async def test_a_newer_proposal_is_not_replaced_by_one_that_is_made_again() -> None:
    written = Written([None], [codes.NONE])
    propose = written.propose

    async def overtaken(batch: Sequence[IsrProposal]) -> list[IsrResult | None]:
        if not written.requests:
            written.proposer.submit(proposal(0, epoch=6))
        else:
            assert [asked.leader_epoch for asked in batch] == [6]
        return await propose(batch)

    written.propose = overtaken  # type: ignore[method-assign]
    await written.run(0, requests=2)
    assert written.results == [(0, codes.NONE)]


async def test_who_leads_no_longer_proposes_nothing() -> None:
    written = Written([codes.NONE])
    written.gone.add(0)
    await written.run(0, 1, requests=1)
    assert written.requests == [[1]]


@pytest.mark.parametrize("error", sorted(_FINAL))
async def test_a_final_result_ends_a_proposal(error: codes.ErrorCode) -> None:
    written = Written([error])
    await written.run(0, requests=1)
    assert (written.requests, written.results) == ([[0]], [(0, error)])


async def test_a_lasting_failure_is_logged_now_and_then_with_its_reason() -> None:
    count = module._REPORT_EVERY + 1
    for missing, why in (
        (None, "t-0: the response does not name it"),
        (codes.NOT_CONTROLLER, "t-0: NOT_CONTROLLER"),
    ):
        written = Written(*[[missing]] * count, [codes.NONE])
        with capture_logs() as logs:
            await written.run(0, requests=count + 1)
        assert [(entry["why"], entry["count"]) for entry in logs] == [(why, 1)] * 2


async def test_each_failure_that_follows_a_success_is_logged() -> None:
    written = Written([None], [codes.NONE], [None], [codes.NONE])
    propose = written.propose

    async def with_another(batch: Sequence[IsrProposal]) -> list[IsrResult | None]:
        if len(written.requests) == 1:
            written.proposer.submit(proposal(1))
        return await propose(batch)

    written.propose = with_another  # type: ignore[method-assign]
    with capture_logs() as logs:
        await written.run(0, requests=4)
    assert [entry["why"] for entry in logs] == [f"t-{n}: the response does not name it" for n in (0, 1)]
