"""Inputs that are nearly valid: bytes, JSON, protobuf messages and words changed in a few places."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from tests.support.runtime.random_messages import NASTY, is_map

BYTES_MAX = 8192
#: Numbers at which something overflows, ends or begins.
NUMBERS = (
    0, 1, 2, 7, -1, -2, 127, 128, 255, 256, 2**15 - 1, 2**15, 2**16, 2**31 - 2, 2**31 - 1, 2**31, 2**32, 2**53,
    2**63 - 1, 2**63, -(2**31), -(2**63), 10**30,
)  # fmt: skip
_BITS_64 = 2**64
_PIECES: tuple[bytes, ...] = (
    b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\n", b"\r\n", b'"', b"\\", b"{", b"[",
    b"}", b"]", b",", b":", b"=", b"-1", b"1e999", b"null", b"\xed\xa0\x80", "²".encode(), b" ", b"\x1b[2J", b"0" * 30,
    b"[" * 1500, b"\\ud800", b"NaN",
)  # fmt: skip
#: JSON in the place of what was expected.
VALUES: tuple[Any, ...] = (
    None, True, False, *NUMBERS, 0.5, 1e300, "", "0", "x", "1" * 4400, "²", "\0", "\n", "\x1b[2J", "-1", "a/b", "..",
    "é" * 300, [], {}, [None], [1, 1], {"": 1}, {"0": [1]}, [[[[]]]],
)  # fmt: skip


def mutate_bytes(data: bytes, rng: Random) -> bytes:
    """A few bytes flipped, removed, added, moved or doubled; or cut short."""
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        at = rng.randrange(len(raw) + 1)
        end = min(at + rng.choice((1, 1, 2, 4, 8, 40)), len(raw))
        match rng.randrange(8):
            case 0 if raw:
                raw[at - 1] ^= 1 << rng.randrange(8)
            case 1 if raw:
                raw[at - 1] = rng.randrange(256)
            case 2:
                del raw[at:end]
            case 3:
                raw[at:at] = rng.choice(_PIECES)
            case 4:
                raw[at:end] = rng.choice(_PIECES)
            case 5:
                raw[at:at] = raw[at:end]
            case 6:
                size = rng.choice((1, 2, 4, 8))
                number = rng.choice(NUMBERS) % (1 << (8 * size))
                raw[at : at + size] = number.to_bytes(size, rng.choice(("big", "little")))
            case _:
                if rng.randrange(4) == 0:
                    del raw[at:]
    return bytes(raw[:BYTES_MAX])


# --- JSON ------------------------------------------------------------------------------------------------------


def mutate_json(data: bytes, rng: Random) -> bytes:
    """A field replaced, removed or added; where it is no JSON, and sometimes, its bytes changed."""
    if rng.randrange(4) == 0:
        return mutate_bytes(data, rng)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_bytes(data, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        value = _changed(value, rng)
    text = json.dumps(value, ensure_ascii=rng.random() < 0.7).encode(errors="surrogatepass")[:BYTES_MAX]
    if rng.randrange(30) == 0:
        # JSON but for a text that is no text.
        at = text.find(b'"', rng.randrange(len(text) or 1)) + 1
        text = text[:at] + rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80")) + text[at:]
    return text


def _changed(value: Any, rng: Random, depth: int = 0) -> Any:
    if isinstance(value, dict | list) and value and depth < 20 and rng.randrange(8):
        key: Any = rng.choice(sorted(value)) if isinstance(value, dict) else rng.randrange(len(value))
        match rng.randrange(8):
            case 0:
                del value[key]
            case 1 if isinstance(value, dict):
                value[rng.choice(("x", "0", "7", "-1", "99999999999", "²", "", "\n", "version"))] = deepcopy(
                    value[key]
                )
            case 2 if isinstance(value, list):
                value.insert(key, deepcopy(value[key]))
            case _:
                value[key] = _changed(value[key], rng, depth + 1)
        return value
    if isinstance(value, int) and not isinstance(value, bool) and rng.randrange(2):
        return rng.choice(NUMBERS) if rng.randrange(2) else value + rng.choice((-1, 1))
    if isinstance(value, str) and rng.randrange(2):
        return rng.choice(NASTY) if rng.randrange(2) else value + rng.choice(("x", "0", "-", " ", "\n"))
    return deepcopy(rng.choice(VALUES))


# --- protobuf --------------------------------------------------------------------------------------------------


def message_mutator(
    kind: Any, texts: Sequence[str], numbers: Sequence[int]
) -> Callable[[bytes, Random], bytes]:
    """Mutates messages of a type; ``texts`` and ``numbers`` mean something to whoever reads them."""

    def mutate(data: bytes, rng: Random) -> bytes:
        if rng.randrange(5) == 0:
            return mutate_bytes(data, rng)
        try:
            message = GetMessageClass(kind).FromString(data)
        except DecodeError:
            return mutate_bytes(data, rng)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            _change_field(message, rng, texts, numbers, 0)
        return message.SerializeToString()

    return mutate


def _change_field(
    message: Any, rng: Random, texts: Sequence[str], numbers: Sequence[int], depth: int
) -> None:
    fields = message.DESCRIPTOR.fields
    if not fields:
        return
    field = rng.choice(fields)
    if rng.randrange(8) == 0:
        message.ClearField(field.name)
        return
    if is_map(field):
        _change_map(getattr(message, field.name), field, rng, texts, numbers, depth)
    elif field.is_repeated:
        _change_list(getattr(message, field.name), field, rng, texts, numbers, depth)
    elif field.message_type is not None:
        inner = getattr(message, field.name)
        inner.SetInParent()
        if depth < 4:
            _change_field(inner, rng, texts, numbers, depth + 1)
    else:
        setattr(message, field.name, _scalar(field, rng, texts, numbers))


def _change_list(
    entries: Any, field: Any, rng: Random, texts: Sequence[str], numbers: Sequence[int], depth: int
) -> None:
    if entries and rng.randrange(6) == 0:
        del entries[rng.randrange(len(entries))]
    elif field.message_type is None:
        if entries and rng.randrange(2):
            entries[rng.randrange(len(entries))] = _scalar(field, rng, texts, numbers)
        else:
            entries.append(_scalar(field, rng, texts, numbers))
    else:
        if not entries or rng.randrange(3) == 0:
            copied = entries[0] if entries else None
            added = entries.add()
            if copied is not None:
                added.CopyFrom(copied)
        if depth < 4:
            _change_field(entries[rng.randrange(len(entries))], rng, texts, numbers, depth + 1)


def _change_map(
    entries: Any, field: Any, rng: Random, texts: Sequence[str], numbers: Sequence[int], depth: int
) -> None:
    key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
    at = _scalar(key, rng, texts, numbers)
    if value.message_type is None:
        entries[at] = _scalar(value, rng, texts, numbers)
    else:
        entries[at].SetInParent()
        if depth < 4:
            _change_field(entries[at], rng, texts, numbers, depth + 1)


def _scalar(field: Any, rng: Random, texts: Sequence[str], numbers: Sequence[int]) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.TYPE_STRING:
            return rng.choice(texts) if rng.randrange(3) else rng.choice(NASTY)
        case FieldDescriptor.TYPE_BYTES:
            return mutate_bytes(rng.choice((b"", b"x", bytes(61))), rng)
        case FieldDescriptor.TYPE_ENUM:
            known = [value.number for value in field.enum_type.values]
            return rng.choice((*known, *known, -1, 99, 2**31 - 1, -(2**31)))
    bits = 64 if field.cpp_type == FieldDescriptor.CPPTYPE_INT64 else 32
    number = rng.choice(numbers) if rng.randrange(3) else rng.choice(NUMBERS)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return min(max(number, low), high)


# --- words -----------------------------------------------------------------------------------------------------


def words_mutator(words: Sequence[str]) -> Callable[[bytes, Random], bytes]:
    """Mutates words that NUL separates: one replaced by another, removed, doubled, or changed."""

    def mutate(data: bytes, rng: Random) -> bytes:
        parts = data.split(b"\0")
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(len(parts))
            match rng.randrange(6):
                case 0:
                    parts[at] = rng.choice(words).encode(errors="surrogateescape")
                case 1:
                    parts.insert(at, rng.choice(words).encode(errors="surrogateescape"))
                case 2 if len(parts) > 1:
                    del parts[at]
                case 3:
                    parts.insert(at, parts[at])
                case 4:
                    name, equals, _ = parts[at].partition(b"=")
                    odd = rng.choice((*NASTY, *map(str, NUMBERS))).replace("\0", "").encode()
                    parts[at] = name + equals + odd if equals else odd
                case _:
                    parts[at] = mutate_bytes(parts[at], rng).replace(b"\0", b"")
        return b"\0".join(parts)[:BYTES_MAX]

    return mutate


# --- inputs that choose among several codecs --------------------------------------------------------------------


def chosen(data: bytes, count: int) -> tuple[int, bytes]:
    """Which of several an input is for, by its first byte; and the rest."""
    return (data[0] % count, data[1:]) if data else (0, b"")


def choosing(index: int, body: bytes) -> bytes:
    return bytes([index]) + body


def chooser(mutators: Sequence[Callable[[bytes, Random], bytes]]) -> Callable[[bytes, Random], bytes]:
    """Mutates the rest as its kind is mutated; seldom changes the kind."""

    def mutate(data: bytes, rng: Random) -> bytes:
        index, body = chosen(data, len(mutators))
        if rng.randrange(40) == 0:
            return choosing(rng.randrange(len(mutators)), body)
        return choosing(index, mutators[index](body, rng))

    return mutate
