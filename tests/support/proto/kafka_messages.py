"""Random messages of Kafka's protocol, which a version can carry whole.

What a field can hold in a version is not read from the generator: it is found by writing. A field that the version
lacks leaves no bytes, or is refused; a number too large is refused.
"""

from __future__ import annotations

import struct
from functools import cache
from random import Random
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from proto.kafka.apis import APIS, Message
from proto.kafka.primitives import ZERO_UUID, Structure

S = TypeVar("S", bound=Structure)
#: Every version of every message.
CASES: list[tuple[type[Message], int]] = [
    (message, version)
    for api in APIS.values()
    for message in (api.request, api.response)
    for version in message.VERSIONS
]
_TEXTS = ("", "a", "topic-1", "ü€𝄞", "x" * 126, "x" * 127, "y" * 300)
_WIDTHS = (63, 32, 31, 16, 15, 7)


class _Field(msgspec.Struct):
    name: str
    #: str, bytes, bool, int, or a structure.
    kind: Any
    array: bool
    nullable: bool
    is_uuid: bool
    low: int = 0
    high: int = 0

    def value(self, random: Random, version: int) -> Any:
        if self.nullable and random.random() < 0.2:
            return None
        if not self.array:
            return self._one(random, version)
        return [self._one(random, version) for _ in range(random.choice((0, 1, 2, 20)))]

    def _one(self, random: Random, version: int) -> Any:
        if self.kind is bool:
            return random.random() < 0.5
        if self.kind is int:
            # kio knows error codes and durations by what they mean.
            if self.name.endswith("error_code"):
                return random.choice((-1, 0, 3, 41, 97))
            if self.name.endswith("_ms"):
                return random.randrange(1_000_000)
            return random.choice((self.low, self.high, random.randint(self.low, self.high), 1))
        if self.kind is str:
            return random.choice(_TEXTS)
        if self.kind is bytes:
            return random.randbytes(16 if self.is_uuid else random.choice((0, 3, 200)))
        return filled(self.kind, version, random, small=self.array)


def _written(structure: Structure, version: int) -> bytes | None:
    """None: refused."""
    out = bytearray()
    try:
        structure.write(out, version)
    except (ValueError, struct.error):
        return None
    return bytes(out)


def _kind(annotation: Any) -> tuple[Any, bool]:
    """What an element is, and whether there are many."""
    found = [each for each in get_args(annotation) if each is not type(None)] if annotation else []
    if get_origin(annotation) is list:
        return found[0], True
    return _kind(found[0]) if found else (annotation, False)


@cache
def fields(cls: type[Structure], version: int) -> list[_Field]:
    """Those of this structure that this version has, with what they can hold."""
    empty = _written(cls(), version)
    assert empty is not None, f"{cls.__name__} version {version}: defaults are refused"
    found = []
    for each in msgspec.structs.fields(cls):
        kind, array = _kind(each.type)
        is_uuid = kind is bytes and (array or each.default == ZERO_UUID)

        def writes(value: Any, name: str = each.name, array: bool = array) -> bool:
            out = _written(cls(**{name: [value] if array else value}), version)
            return out is not None and out != empty

        low = high = 0
        if kind is int:
            high = next((2**width - 1 for width in _WIDTHS if writes(2**width - 1)), 0)
            low = -high - 1 if writes(-high - 1) else 0
            there = high > 0
        else:
            samples = {bool: (True, False), str: ("a",), bytes: (b"\1" * 16,)}
            there = any(map(writes, samples[kind] if kind in samples else (kind(),)))
        if not there:
            continue
        out = _written(cls(**{each.name: None}), version) if type(None) in get_args(each.type) else None
        found.append(_Field(each.name, kind, array, out is not None, is_uuid, low, high))
    return found


def filled(cls: type[S], version: int, random: Random, small: bool = False) -> S:
    """One with a random value in every field that this version has, or in some of them if it is a small one."""
    names = {field.name: field.value(random, version) for field in fields(cls, version)}
    if small and random.random() < 0.2:
        names = {name: value for name, value in names.items() if random.random() < 0.5}
    return cls(**names)
