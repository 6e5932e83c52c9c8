"""Kafka's APIs, and requests and responses with their headers, as they stand in a frame after its size.

Header versions are those of Kafka's ``ApiMessageType.requestHeaderVersion`` and ``responseHeaderVersion``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from proto.gen.kafka.table import FLEXIBLE, MESSAGES, ApiKey
from proto.kafka.primitives import (
    UNREADABLE,
    MalformedMessageError,
    Message,
    malformed,
    read_nullable_string,
    skip_tagged,
    write_nullable_string,
)

__all__ = [
    "APIS",
    "Api",
    "ApiKey",
    "MalformedMessageError",
    "Message",
    "RequestHeader",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_response",
]


class Api(NamedTuple):
    key: ApiKey
    request: type[Message]
    response: type[Message]

    @property
    def versions(self) -> range:
        """The versions in Kafka's specification; requests and responses have the same."""
        return self.request.VERSIONS


#: Those whose messages we have; ApiKey names all of Kafka's.
APIS: Mapping[ApiKey, Api] = {key: Api(key, *messages) for key, messages in MESSAGES.items()}

_FIXED = struct.Struct(">hhi")
_CORRELATION_ID = struct.Struct(">i")


class RequestHeader(NamedTuple):
    #: It may be the key of an API that nobody knows.
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def _is_flexible(api_key: int, version: int) -> bool:
    since = FLEXIBLE.get(api_key)
    return since is not None and version >= since


def _has_no_client_id(api_key: int, version: int) -> bool:
    return api_key == ApiKey.CONTROLLED_SHUTDOWN and version == 0


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Header and body, without the size before them. Raises ValueError as ``Message.encode`` does."""
    out = bytearray(_FIXED.pack(request.API_KEY, version, correlation_id))
    if not _has_no_client_id(request.API_KEY, version):
        write_nullable_string(out, client_id, False)
    if _is_flexible(request.API_KEY, version):
        out.append(0)
    request.write_into(out, version)
    return bytes(out)


def decode_request_header(data: bytes | memoryview) -> tuple[RequestHeader, int]:
    """The header, and where the body begins. Raises MalformedMessageError.

    The header of an API that nobody knows is read as one that is not flexible.
    """
    data = bytes(data)
    try:
        api_key, version, correlation_id = _FIXED.unpack_from(data)
        at = _FIXED.size
        client_id: str | None = None
        if not _has_no_client_id(api_key, version):
            client_id, at = read_nullable_string(data, at, False)
        if _is_flexible(api_key, version):
            at = skip_tagged(data, at)
    except UNREADABLE as error:
        raise malformed("RequestHeader", error) from error
    return RequestHeader(api_key, version, correlation_id, client_id), at


def _has_tags(api_key: int, version: int) -> bool:
    # A client that asks for versions does not know yet which header the broker would send.
    return api_key != ApiKey.API_VERSIONS and _is_flexible(api_key, version)


def encode_response(response: Message, version: int, correlation_id: int) -> bytes:
    """Header and body, without the size before them. Raises ValueError as ``Message.encode`` does."""
    out = bytearray(_CORRELATION_ID.pack(correlation_id))
    if _has_tags(response.API_KEY, version):
        out.append(0)
    response.write_into(out, version)
    return bytes(out)


def decode_response(api_key: int, version: int, data: bytes | memoryview) -> tuple[int, Message]:
    """Correlation id and response. Raises MalformedMessageError; KeyError, ValueError: no such API or version."""
    api = APIS[ApiKey(api_key)]
    data = bytes(data)
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(data)
        at = _CORRELATION_ID.size
        if _has_tags(api_key, version):
            at = skip_tagged(data, at)
    except UNREADABLE as error:
        raise malformed("ResponseHeader", error) from error
    return correlation_id, api.response.decode_at(data, at, version)
