"""The records of ``__consumer_offsets``: a JSON key and a JSON value; without a value, a tombstone. Pure.

Every key and value has ``kind`` and ``version``. Committed offsets and group metadata have separate keys, so that a
log compacted by key keeps the last value of each.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from proto.texts import in_words

VERSION = 1
_QUOTE_BYTES_MAX = 80

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Int32 = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Epoch = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
_Millis = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class MalformedRecord(ValueError):  # noqa: N818
    """An invalid record of ``__consumer_offsets``; the message names key or value, the field and the problem."""


class _Versioned(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True, kw_only=True):
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise ValueError(f"version is {self.version}: must be {VERSION}")


class OffsetKey(_Versioned, frozen=True, tag="offset", kw_only=True, gc=False):
    """Key of a committed offset."""

    group: _Text
    topic: _Text
    partition: _Int32


class GroupKey(_Versioned, frozen=True, tag="group", kw_only=True):
    """Key of a group's metadata."""

    group: _Text


class OffsetValue(_Versioned, frozen=True, tag="offset", kw_only=True, gc=False):
    """A committed offset. ``leader_epoch`` -1: unknown; ``commit_timestamp_ms`` since 1970.

    ``gc=False``: there are millions of them, they form no cycles, and the garbage collector need not scan them.
    """

    offset: _Count
    leader_epoch: _Epoch
    metadata: str
    commit_timestamp_ms: _Millis


class StoredProtocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A protocol of a member. ``metadata``, like all bytes, is base64 in the JSON."""

    name: str
    metadata: bytes


class StoredMember(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member with its assignment; ``protocols`` in its order of preference."""

    member_id: _Text
    client_id: str
    session_timeout_ms: _Int32
    rebalance_timeout_ms: _Int32
    protocols: tuple[StoredProtocol, ...]
    assignment: bytes


class GroupValue(_Versioned, frozen=True, tag="group", kw_only=True):
    """A group's metadata: Stable with members, Empty without. Empty strings: no protocol, no leader."""

    protocol_type: str
    generation_id: _Int32
    protocol: str
    leader: str
    members: tuple[StoredMember, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        ids = [member.member_id for member in self.members]
        if len(set(ids)) != len(ids):
            raise ValueError("members names a member twice: must name each once")
        if self.leader not in (ids or [""]):
            raise ValueError(f"leader is {self.leader!r}: must be one of members, empty without any")
        for member in self.members:
            if all(protocol.name != self.protocol for protocol in member.protocols):
                raise ValueError(
                    f"protocol is {self.protocol!r}: must be one that member {member.member_id!r} supports"
                )


Key = OffsetKey | GroupKey
_T = TypeVar("_T")
_KEY = msgspec.json.Decoder(OffsetKey | GroupKey)
_OFFSET_VALUE = msgspec.json.Decoder(OffsetValue)
_GROUP_VALUE = msgspec.json.Decoder(GroupValue)


def encode(message: Key | OffsetValue | GroupValue) -> bytes:
    """The JSON of a key or a value."""
    return msgspec.json.encode(message)


def decode(
    key: bytes | None, value: bytes | None
) -> tuple[OffsetKey, OffsetValue | None] | tuple[GroupKey, GroupValue | None]:
    """A record's key and value; value None: a tombstone. Raises MalformedRecord."""
    if key is None:
        raise MalformedRecord("key is absent")
    read_key: Key = _decode(_KEY, "key", key)
    if isinstance(read_key, OffsetKey):
        return read_key, None if value is None else _decode(_OFFSET_VALUE, "value", value, key)
    return read_key, None if value is None else _decode(_GROUP_VALUE, "value", value, key)


def _decode(decoder: msgspec.json.Decoder[_T], part: str, data: bytes, key: bytes | None = None) -> _T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        where = f"{part} of {_quote(key)}" if key is not None else f"{part} {_quote(data)}"
        raise MalformedRecord(f"{where}: {in_words(error)}") from error


def _quote(data: bytes) -> str:
    return repr(data if len(data) <= _QUOTE_BYTES_MAX else data[:_QUOTE_BYTES_MAX] + b"...")
