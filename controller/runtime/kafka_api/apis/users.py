"""AlterUserScramCredentials (KIP-554): clients send it to the controller alone."""

from __future__ import annotations

from controller.core.requests.errors import ErrorCode
from controller.core.requests.scram_credentials import AlterScramCredentials, ScramAlteration, ScramCredential
from controller.runtime.kafka.security.scram import ScramMechanism, credential_of_salted, format_credential
from controller.runtime.kafka_api.call import Call, message_of
from proto.gen.kafka.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from proto.gen.kafka.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from proto.security.authorization import Operation

#: Kafka's numbers of mechanisms (org.apache.kafka.clients.admin.ScramMechanism).
_MECHANISMS = {1: ScramMechanism.SHA_256, 2: ScramMechanism.SHA_512}


async def alter_scram_credentials(
    call: Call[AlterUserScramCredentialsRequest],
) -> AlterUserScramCredentialsResponse:
    """Each user once; what concerns the whole request is said of each, as in Kafka."""
    request = call.request
    names = dict.fromkeys([*(d.name for d in request.deletions), *(u.name for u in request.upsertions)])
    if not call.may(Operation.ALTER):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return AlterUserScramCredentialsResponse(
            results=[_result(name, error, "not authorized") for name in names]
        )
    wanted = [ScramAlteration(each.name, _name(each.mechanism)) for each in request.deletions]
    wanted += [
        ScramAlteration(each.name, _name(each.mechanism), _credential(each)) for each in request.upsertions
    ]
    reply = await call.ask(AlterScramCredentials(wanted))
    results = [_result(each.user, each.error, each.message) for each in reply.users]
    if reply.error is not ErrorCode.NONE:
        results = [_result(name, reply.error, "") for name in names]
    return AlterUserScramCredentialsResponse(results=results)


def _name(number: int) -> str | None:
    mechanism = _MECHANISMS.get(number)
    return mechanism.value if mechanism is not None else None


def _credential(asked: ScramCredentialUpsertion) -> ScramCredential:
    mechanism = _MECHANISMS.get(asked.mechanism, ScramMechanism.SHA_512)
    credential = credential_of_salted(mechanism, asked.salt, asked.salted_password, asked.iterations)
    return ScramCredential(asked.iterations, format_credential(credential))


def _result(name: str, error: ErrorCode, message: str) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(name, error, message_of(error, message))
