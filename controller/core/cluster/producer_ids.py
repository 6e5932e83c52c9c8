"""Producer ids: blocks of a thousand, each allocated once (reference, section 8.6; KIP-730)."""

from __future__ import annotations

import msgspec

from controller.core.commits import ATTEMPTS_MAX
from controller.core.context import EventContext, Handler
from controller.core.effects import Committed, Problem, ReadNodes, StoredNode, write_node
from controller.core.requests.brokers import AllocateProducerIds, AllocateProducerIdsReply
from controller.core.requests.errors import ErrorCode
from controller.core.znode_paths import PRODUCER_IDS, NodePath

PATH: NodePath[ProducerIdBlock | None] = NodePath(PRODUCER_IDS)
BLOCK_SIZE = 1000
LAST_ID = 2**63 - 1


class ProducerIdBlock(msgspec.Struct, frozen=True):
    """Ids from ``start`` to ``end``, both included, and the broker that got them."""

    broker: int
    start: int
    end: int


def allocate_producer_ids(context: EventContext, serial: int, request: AllocateProducerIds) -> Handler[None]:
    """Reserve the next block with a write conditional on the znode's version."""
    broker = context.cluster.brokers.get(request.broker_id)
    if broker is None:
        _refuse(context, serial, request, ErrorCode.BROKER_ID_NOT_REGISTERED, "no such broker is registered")
        return
    if request.broker_epoch != broker.epoch:
        why = f"its present epoch is {broker.epoch}"
        _refuse(context, serial, request, ErrorCode.STALE_BROKER_EPOCH, why)
        return
    reason = ""
    for _ in range(ATTEMPTS_MAX):
        (found,) = yield from context.read(ReadNodes([PATH]))
        if isinstance(found, Problem):
            context.problem(found)
            reason = f"{found.path}: {found.problem}"
            break
        context.solved(PATH)
        before = found.value if found is not None else None
        start = before.end + 1 if before is not None else 0
        if start > LAST_ID - BLOCK_SIZE + 1:
            reason = f"{PATH}: all ids up to {LAST_ID} are given out"
            break
        block = ProducerIdBlock(request.broker_id, start, start + BLOCK_SIZE - 1)
        version = found.version if found is not None else None
        outcome = yield from context.commit([write_node(PATH, block, version)])
        if isinstance(outcome, Committed) or (yield from _landed(context, block, version)):
            context.reply(serial, AllocateProducerIdsReply(ErrorCode.NONE, start, BLOCK_SIZE))
            return
        reason = outcome.reason
    _refuse(context, serial, request, ErrorCode.UNKNOWN_SERVER_ERROR, reason)


def _landed(context: EventContext, block: ProducerIdBlock, version: int | None) -> Handler[bool]:
    """Whether an unconfirmed write is durable: same content, next version."""
    (found,) = yield from context.read(ReadNodes([PATH]))
    next_version = 0 if version is None else version + 1
    return isinstance(found, StoredNode) and (found.value, found.version) == (block, next_version)


def _refuse(
    context: EventContext, serial: int, request: AllocateProducerIds, error: ErrorCode, why: str
) -> None:
    who = f"broker {request.broker_id} with broker epoch {request.broker_epoch}"
    context.reject(error.name, f"AllocateProducerIds of {who}: {why}")
    context.reply(serial, AllocateProducerIdsReply(error))
