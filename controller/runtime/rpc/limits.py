"""Size limits of requests: the same for every RPC, checked before anything else reads the request.

Names are repeated in responses, records and logs, and while a long list is handled all other events wait. A request
far beyond any sensible size is refused as a whole, with the field and what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from controller.core.znode_sizes import ZNODE_BYTES_MAX

#: Characters of a string, and entries of a list.
TEXT_MAX, ENTRIES_MAX = 1000, 100_000
#: Lists whose entries are handled one by one, such as topics: all other events wait meanwhile.
ENTRIES_MAX_BY_FIELD = {
    f"partition_controller.v1.{name}": 10_000
    for name in (
        "CreateTopicsRequest.topics",
        "CreatePartitionsRequest.topics",
        "DeleteTopicsRequest.topics",
        "AlterConfigsRequest.resources",
        "DescribeConfigsRequest.resources",
        "UpdateFeaturesRequest.updates",
    )
}
#: Strings that may be longer: config values, which are checked where the rest of their znode is known.
TEXT_MAX_BY_FIELD = {
    "partition_controller.v1.AlterableConfig.value": ZNODE_BYTES_MAX,
    "partition_controller.v1.CreatableTopic.ConfigsEntry.value": ZNODE_BYTES_MAX,
}


class _Field(NamedTuple):
    name: str
    text_max: int  # 0: not a string
    entries_max: int  # 0: not repeated
    holds_messages: bool
    #: Limits of a map's keys and values in characters; 0: not strings. None: it is no map.
    entry: tuple[int, int] | None


def excess(request: Message) -> str | None:
    """The first exceeded limit of a request, with the field and what is allowed; None: within the limits."""
    if request.ByteSize() <= TEXT_MAX:
        return None
    return next(_excess(request, ""), None)


def _excess(message: Any, prefix: str) -> Iterator[str]:
    for field in _fields(message.DESCRIPTOR):
        value, name = getattr(message, field.name), f"{prefix}{field.name}"
        if field.entries_max:
            if len(value) > field.entries_max:
                yield f"{name}: has {len(value)} entries, must have at most {field.entries_max}"
            elif field.entry is not None:
                yield from _of_map(name, value, field.entry, holds_messages=field.holds_messages)
            elif field.holds_messages:
                for position, entry in enumerate(value):
                    # A small entry cannot exceed a limit, and there may be many.
                    if entry.ByteSize() > TEXT_MAX:
                        yield from _excess(entry, f"{name}[{position}].")
            elif field.text_max:
                yield from _too_long(name, max(value, key=len, default=""), field.text_max)
        elif field.holds_messages:
            if message.HasField(field.name):
                yield from _excess(value, f"{name}.")
        else:
            yield from _too_long(name, value, field.text_max)


def _of_map(name: str, entries: Any, allowed: tuple[int, int], *, holds_messages: bool) -> Iterator[str]:
    key_max, value_max = allowed
    for key, value in entries.items():
        if key_max:
            yield from _too_long(f"{name}: a key", key, key_max)
        if value_max:
            yield from _too_long(f"{name}[{key!r}]", value, value_max)
        elif holds_messages:
            yield from _excess(value, f"{name}[{key!r}].")


def _too_long(name: str, text: str, allowed: int) -> Iterator[str]:
    if len(text) > allowed:
        yield f"{name}: has {len(text)} characters, must have at most {allowed}"


@cache
def _fields(kind: Descriptor) -> tuple[_Field, ...]:
    """The fields that have a limit: strings, lists and messages."""
    return tuple(
        _known(field) for field in kind.fields if field.is_repeated or _text_max(field) or _inner(field)
    )


def _known(field: Any) -> _Field:
    entry = None
    inner = _inner(field)
    if inner is not None and inner.GetOptions().map_entry:
        value = inner.fields_by_name["value"]
        entry = (_text_max(inner.fields_by_name["key"]), _text_max(value))
        inner = _inner(value)
    entries_max = ENTRIES_MAX_BY_FIELD.get(field.full_name, ENTRIES_MAX) if field.is_repeated else 0
    return _Field(field.name, _text_max(field), entries_max, inner is not None, entry)


def _inner(field: Any) -> Any:
    return field.message_type


def _text_max(field: Any) -> int:
    if field.type != FieldDescriptor.TYPE_STRING:
        return 0
    return TEXT_MAX_BY_FIELD.get(field.full_name, TEXT_MAX)
