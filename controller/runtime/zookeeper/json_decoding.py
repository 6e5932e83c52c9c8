"""Decoding of znodes' JSON, as tolerant as Kafka's parser, into the types of a codec."""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec

from controller.errors import MalformedError, in_words

T = TypeVar("T")


def decode_with(decoder: msgspec.json.Decoder[T], path: str, data: bytes | None) -> T:
    """Raises MalformedError naming path, field and what is allowed."""
    if not data:
        raise MalformedError(path, "is empty, must be a JSON object")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"{in_words(error)} (data begins {data[:80]!r})"
    try:
        return decoder.decode(_as_kafka_reads(data))
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise MalformedError(path, problem) from None


#: Numbers keep their spelling; NaN and Infinity are refused.
_ANY_JSON = json.JSONDecoder(parse_float=msgspec.Raw, parse_int=msgspec.Raw, parse_constant=int)


def _as_kafka_reads(data: bytes) -> bytes:
    """Standard JSON from JSON that Kafka's parser accepts: that ignores what follows the value, uses the last of
    duplicate fields, and accepts UTF-16, UTF-32 and byte order marks. Raises ValueError, RecursionError."""
    text = data.decode(json.detect_encoding(data), "surrogatepass")
    return msgspec.json.encode(_ANY_JSON.raw_decode(text.lstrip(" \t\r\n"))[0])
