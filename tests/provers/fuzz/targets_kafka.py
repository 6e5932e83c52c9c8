"""Kafka's protocol: frames as brokers and clients send them to us (without the size), and answers of brokers.

What is no message is MalformedMessageError, whose text begins with the message's name and version.
"""

from __future__ import annotations

from random import Random

from proto.kafka.apis import APIS, ApiKey, Message, decode_request_header, encode_request
from proto.kafka.primitives import MalformedMessageError
from tests.provers.fuzz.harness import Outcome, Target, require_line
from tests.provers.fuzz.mutation import choosing, chosen, mutate_bytes
from tests.support.proto.kafka_messages import CASES, filled

_ANSWERS = [api.response for api in APIS.values()]


def _check_body(message: type[Message], version: int, body: bytes) -> Outcome:
    try:
        found = message.decode(body, version)
    except MalformedMessageError as error:
        require_line(str(error), message.title(version))
        return Outcome.REFUSED
    assert message.decode(found.encode(version), version) == found
    return Outcome.VALID


def _check_request(frame: bytes) -> Outcome:
    try:
        header, at = decode_request_header(frame)
    except MalformedMessageError as error:
        require_line(str(error), "RequestHeader")
        return Outcome.REFUSED
    if header.api_key not in APIS:
        return Outcome.REFUSED
    request = APIS[ApiKey(header.api_key)].request
    if header.api_version not in request.VERSIONS:
        return Outcome.REFUSED
    return _check_body(request, header.api_version, frame[at:])


def _check_response(data: bytes) -> Outcome:
    index, rest = chosen(data, len(_ANSWERS))
    response = _ANSWERS[index]
    at, body = chosen(rest, len(response.VERSIONS))
    return _check_body(response, response.VERSIONS[at], body)


def _request_seeds() -> list[bytes]:
    return [
        encode_request(filled(message, version, Random(seed)), version, 7, "c")
        for message, version in CASES
        if message not in _ANSWERS
        for seed in range(2)
    ]


def _response_seeds() -> list[bytes]:
    return [
        choosing(
            _ANSWERS.index(message), choosing(version, filled(message, version, Random(seed)).encode(version))
        )
        for message, version in CASES
        if message in _ANSWERS
        for seed in range(2)
    ]


TARGETS = (
    Target("kafka-requests", _check_request, _request_seeds(), mutate_bytes, weight=20),
    Target("kafka-responses", _check_response, _response_seeds(), mutate_bytes, weight=10),
)
