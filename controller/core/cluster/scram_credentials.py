"""AlterUserScramCredentials (KIP-554), as ``ZkAdminManager.alterUserScramCredentials`` of Kafka's controller.

A user's credentials are keys of its configuration, beside quotas. Brokers learn of a change by its notification.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from controller.core.cluster.configs import alter_entity
from controller.core.context import EventContext, Handler, Pause
from controller.core.effects import Problem, ReadNodes
from controller.core.names import shown
from controller.core.requests.configs import ConfigChange
from controller.core.requests.errors import ErrorCode
from controller.core.requests.scram_credentials import (
    AlterScramCredentials,
    AlterScramCredentialsReply,
    ScramAlteration,
    ScramAltered,
)
from controller.core.znode_paths import config_path, user_entity

#: Limits of both mechanisms (``ScramMechanism.minIterations``, ``ZkAdminManager``).
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16_384
#: A longer name is refused; Kafka lets ZooKeeper refuse it.
NAME_CHARS_MAX = 1000


def alter_scram_credentials(
    context: EventContext, serial: int, request: AlterScramCredentials
) -> Handler[None]:
    """Set and delete credentials, each user separately."""
    by_user: defaultdict[str, list[ScramAlteration]] = defaultdict(list)
    for alteration in request.alterations:
        by_user[alteration.user].append(alteration)
    answers = []
    for user, alterations in by_user.items():
        error, message = _invalid(user, alterations)
        if error is ErrorCode.NONE:
            error, message = yield from _alter(context, user, alterations)
        if error is not ErrorCode.NONE:
            context.reject(error.name, f"AlterUserScramCredentials of {shown(user)}: {message}")
        answers.append(ScramAltered(user, error, message))
        yield Pause.YIELD
    context.reply(serial, AlterScramCredentialsReply(ErrorCode.NONE, answers))


def _invalid(user: str, alterations: Sequence[ScramAlteration]) -> tuple[ErrorCode, str]:
    if not user:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if user in (".", "..") or len(user) > NAME_CHARS_MAX:
        allowed = f"must have at most {NAME_CHARS_MAX} characters, and be neither '.' nor '..'"
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username {shown(user)}: {allowed}"
    for alteration in alterations:
        if alteration.mechanism is None:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
        credential = alteration.credential
        if credential is not None and not ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX:
            few = "few" if credential.iterations < ITERATIONS_MIN else "many"
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too {few} iterations"
    if len({alteration.mechanism for alteration in alterations}) < len(alterations):
        why = "A user credential cannot be altered twice in the same request"
        return ErrorCode.DUPLICATE_RESOURCE, why
    return ErrorCode.NONE, ""


def _alter(
    context: EventContext, user: str, alterations: Sequence[ScramAlteration]
) -> Handler[tuple[ErrorCode, str]]:
    entity = user_entity(user)
    (node,) = yield from context.read(ReadNodes([config_path(entity)]))
    if isinstance(node, Problem):
        context.problem(node)
        return ErrorCode.UNKNOWN_SERVER_ERROR, f"{node.path}: {node.problem}"
    known = node.value if node is not None else {}
    changes = []
    for alteration in alterations:
        assert alteration.mechanism is not None
        if alteration.credential is None and alteration.mechanism not in known:
            return (
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        text = alteration.credential.text if alteration.credential is not None else None
        changes.append(ConfigChange(alteration.mechanism, text))
    return (yield from alter_entity(context, entity, changes))
