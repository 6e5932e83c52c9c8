"""Deletes expired delegation tokens of Kafka brokers, which is the controller's task (KIP-48, ``expireTokens``).

Brokers create, renew and check tokens themselves. They read a token anew when a notification names it.
"""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
import structlog
from msgspec import Meta

from controller.core.znode_paths import CONTROLLER_EPOCH, DELEGATION_TOKENS, TOKEN_CHANGE, TOKEN_CHANGES
from controller.errors import MalformedError
from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.session import AccessError, NoNodeError, Session, Stat

log = structlog.get_logger(__name__)


class _Token(msgspec.Struct):
    """Times in ms since 1970."""

    expiration_ms: Annotated[int, Meta(ge=-1)] = msgspec.field(name="expirationTimestamp")
    max_ms: Annotated[int, Meta(ge=-1)] = msgspec.field(name="maxTimestamp")

    def expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expiration_ms < now_ms


_DECODER = msgspec.json.Decoder(_Token)


async def delete_expired(session: Session, epoch_version: int, now_ms: int | None = None) -> int:
    """Delete every expired token, fenced by ``/controller_epoch``, and notify brokers; returns the number deleted.

    A token that does not decode, or that ZooKeeper's ACLs deny, is logged and kept. Raises ConnectionLossError,
    LeadershipError.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    deleted = 0
    try:
        tokens = await session.children(DELEGATION_TOKENS)
    except NoNodeError:
        return 0
    except AccessError as error:
        log.warning("tokens_unreadable", path=DELEGATION_TOKENS, why=str(error))
        return 0
    for token in sorted(tokens):
        path = f"{DELEGATION_TOKENS}/{token}"
        try:
            data, stat = await session.get(path)
            if codecs.decode_with(_DECODER, path, data).expired(now_ms):
                deleted += await _delete(session, epoch_version, token, path, stat)
        except NoNodeError:
            continue
        except AccessError as error:
            log.warning("token_kept", path=path, why=str(error))
        except MalformedError as error:
            log.warning("malformed_znode", path=error.path, problem=error.problem)
    return deleted


async def _delete(session: Session, epoch_version: int, token: str, path: str, stat: Stat) -> bool:
    """Whether the token is deleted. One that a broker renewed meanwhile stays."""
    await session.ensure(TOKEN_CHANGES)
    operations = [
        jute.op_check(session.packed_path(CONTROLLER_EPOCH), epoch_version),
        jute.op_delete(session.packed_path(path), stat.version),
        session.op_create_sequential(TOKEN_CHANGE, token.encode()),
    ]
    try:
        await session.multi(operations)
    except jute.MultiError as error:
        log.info("token_kept", path=path, why=str(error))
        return False
    log.info("token_expired", path=path)
    return True
