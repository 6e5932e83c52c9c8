"""The RPC Audit: look at all brokers now, or tell what earlier looks found."""

from __future__ import annotations

import asyncio
import time
from itertools import islice

from controller.errors import LeadershipError
from controller.runtime.audit.auditor import BrokerAudit, Verdict
from controller.runtime.audit.problems import all_problems
from controller.runtime.rpc.plan_queue import AbandonedError
from controller.runtime.term import Term
from proto.gen import inspection_pb2 as pb

#: Problems of replicas in one answer.
PROBLEMS_MAX = 10_000
#: Brokers asked at once.
_AT_ONCE = 8
_VERDICTS = {
    Verdict.NOT_YET: pb.AUDIT_NOT_YET,
    Verdict.EQUAL: pb.AUDIT_EQUAL,
    Verdict.DIFFERENT: pb.AUDIT_DIFFERENT,
    Verdict.PENDING: pb.AUDIT_PENDING,
    Verdict.UNREACHABLE: pb.AUDIT_UNREACHABLE,
    Verdict.PARTIAL: pb.AUDIT_PARTIAL,
}


async def audit(term: Term, request: pb.AuditRequest) -> pb.AuditResponse:
    """One result for each registered broker. Raises AbandonedError when the term ends meanwhile."""
    topics = set(request.topics)
    if not request.recorded:
        turns = asyncio.Semaphore(_AT_ONCE)

        async def look(broker_id: int) -> None:
            async with turns:
                await term.auditor.look(broker_id, topics)

        try:
            await asyncio.gather(*map(look, sorted(term.machine.cluster.brokers)))
        except LeadershipError as error:
            raise AbandonedError(str(error)) from None
    audits = term.auditor.brokers
    found = all_problems(term.machine.cluster, term.senders, term.auditor, topics)
    problems = [
        pb.ReplicaProblem(**{**p._asdict(), "kind": p.kind.value}) for p in islice(found, PROBLEMS_MAX)
    ]
    return pb.AuditResponse(
        brokers=[
            _show(id_, audits.get(id_, BrokerAudit(-1)), topics)
            for id_ in sorted(term.machine.cluster.brokers)
        ],
        problems=problems,
        problems_left=sum(1 for _ in found),
    )


def _show(broker_id: int, found: BrokerAudit, topics: set[str]) -> pb.BrokerAudit:
    differences = sum(not topics or topic in topics for topic, _, _ in found.known)
    verdict = found.verdict
    if verdict is Verdict.DIFFERENT and topics and not differences:
        verdict = Verdict.EQUAL  # in these topics
    return pb.BrokerAudit(
        broker_id=broker_id,
        verdict=_VERDICTS[verdict],
        why=found.why,
        asked_at_ms=round((time.time() - found.age_s) * 1000) if found.age_s is not None else 0,
        differences=differences,
        topics_left=0 if topics else found.left,
        age_s=found.age_s,
    )
