"""The JSON of Kafka's znodes, as its parser (Jackson) reads it."""

from __future__ import annotations

import json

import msgspec

#: Numbers keep their spelling; NaN and Infinity are refused.
_ANY_JSON = json.JSONDecoder(parse_float=msgspec.Raw, parse_int=msgspec.Raw, parse_constant=int)


def standard_json(data: bytes) -> bytes:
    """Standard JSON from JSON that Kafka's parser accepts: that ignores what follows the value, uses the last of
    duplicate fields, and accepts UTF-16, UTF-32 and byte order marks. Raises ValueError, RecursionError."""
    text = data.decode(json.detect_encoding(data), "surrogatepass")
    return msgspec.json.encode(_ANY_JSON.raw_decode(text.lstrip(" \t\r\n"))[0])
