"""Strategies for any protobuf message, from its descriptor: all that the wire allows, sane or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX = -(2**31), 2**31 - 1, -(2**63), 2**63 - 1
UINT32_MAX = 2**32 - 1
NASTY = (
    "",
    " ",
    ".",
    "..",
    "/",
    "a/b",
    "../../controller",
    "\0",
    "a\0b",
    "line\nline",
    "\r\n\t",
    "🎈" * 3,
    "ünï",
    "a" * 249,
    "a" * 250,
    "x" * 2000,
    "\x1b[2J",
    "{}",
    "%s",
    "<default>",
    "-1",
    "²",
    "1" * 400,
    "null",
    "\u202e",
)
#: Entries of a repeated field, where it is long; how many times the few that are drawn are repeated.
REPETITIONS = (1, 1, 1, 1, 1, 1, 2, 300, 10_000)
DEPTH_MAX = 4


class Known(NamedTuple):
    """Values that exist in the cluster, so that requests get further than the first check."""

    texts: Sequence[str]
    small: Sequence[int]
    large: Sequence[int]
    requests: Sequence[Descriptor]


def messages(kind: Descriptor, known: Known, depth: int = 0) -> st.SearchStrategy[Any]:
    """Any message of a type; fields are absent, zero or anything."""

    @st.composite
    def made(draw: Callable[..., Any]) -> Any:
        message = GetMessageClass(kind)()
        for field in kind.fields:
            if field.message_type is not None and depth >= DEPTH_MAX:
                continue
            if draw(st.integers(0, 5)) == 0 and field.containing_oneof is None:
                continue
            if field.containing_oneof is not None and draw(st.booleans()):
                continue
            _fill(draw, message, field, known, depth)
        return message

    return made()


def _fill(draw: Callable[..., Any], message: Any, field: Any, known: Known, depth: int) -> None:
    if is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        for _ in range(draw(st.integers(0, 4))):
            at = draw(scalars(key, known))
            if value.message_type is None:
                getattr(message, field.name)[at] = draw(scalars(value, known))
            else:
                getattr(message, field.name)[at].CopyFrom(
                    draw(messages(value.message_type, known, depth + 1))
                )
    elif field.is_repeated:
        entries = (
            scalars(field, known)
            if field.message_type is None
            else messages(field.message_type, known, depth + 1)
        )
        drawn = draw(st.lists(entries, max_size=4))
        times = draw(st.sampled_from(REPETITIONS)) if depth == 0 else 1
        getattr(message, field.name).extend(drawn * times)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(draw(messages(field.message_type, known, depth + 1)))
    else:
        setattr(message, field.name, draw(scalars(field, known)))


def is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def scalars(field: Any, known: Known) -> st.SearchStrategy[Any]:
    kind = field.type
    if kind == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if kind == FieldDescriptor.TYPE_STRING:
        return st.sampled_from(known.texts) | st.sampled_from(NASTY) | st.text(max_size=20)
    if kind == FieldDescriptor.TYPE_ENUM:
        numbers = [value.number for value in field.enum_type.values]
        return st.sampled_from([*numbers, *numbers, -1, 99, INT32_MAX, INT32_MIN])
    if kind == FieldDescriptor.TYPE_INT32:
        odd = st.sampled_from([-1, 0, INT32_MIN, INT32_MAX, -2])
        return st.sampled_from(known.small) | st.sampled_from(known.small) | odd | st.integers(-20, 20)
    if kind == FieldDescriptor.TYPE_FIXED32:
        return st.sampled_from([0, 1, UINT32_MAX]) | st.integers(0, UINT32_MAX)
    if kind == FieldDescriptor.TYPE_INT64:
        odd = st.sampled_from([-1, 0, INT64_MIN, INT64_MAX, -2])
        return st.sampled_from(known.large) | odd | st.integers(INT64_MIN, INT64_MAX)
    if kind == FieldDescriptor.TYPE_BYTES:
        # Which request it is meant to be is said elsewhere: right or wrong by chance.
        return st.binary(max_size=100) | st.sampled_from(known.requests).flatmap(
            lambda inner: messages(inner, known, DEPTH_MAX - 2).map(
                lambda message: message.SerializeToString()
            )
        )
    raise AssertionError(f"{field.full_name}: a type that no request has had")


# --- one field at its worst ----------------------------------------------------------------------------------


class Extreme(NamedTuple):
    """One field of a request as large as it gets: ``what`` is long or many, ``path`` leads to the field."""

    what: str
    path: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.what} {'.'.join(field.name for field in self.path)}"

    def of(self, good: Any, count: int, characters: int) -> Any:
        """A good request, but for this."""
        message = type(good)()
        message.CopyFrom(good)
        _stretch(message, self.path, self.what, characters if self.what == "long" else count)
        return message


def extremes(method: MethodDescriptor) -> Iterator[Extreme]:
    """Each string that may be long, each list that may have many entries."""
    empty = GetMessageClass(method.input_type)()
    for path in _paths(method.input_type):
        for what in ("long", "many"):
            message = type(empty)()
            if _stretch(message, path, what, 1):
                yield Extreme(what, path)


def _paths(kind: Descriptor, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for field in kind.fields:
        yield (*before, field)
        if field.message_type is not None and not is_map(field) and len(before) < DEPTH_MAX:
            yield from _paths(field.message_type, (*before, field))


def _stretch(message: Any, path: Sequence[Any], what: str, amount: int) -> bool:
    """Whether the field at the end of a path can be so."""
    *parents, last = path
    for field in parents:
        holder = getattr(message, field.name)
        if field.is_repeated:
            if not holder:
                holder.add()
            holder = holder[0]
        else:
            holder.SetInParent()
        message = holder
    text = last.type == FieldDescriptor.TYPE_STRING
    if what == "long" and text and last.is_repeated:
        getattr(message, last.name).append("\0" * amount)
    elif what == "long" and text:
        setattr(message, last.name, "\0" * amount)
    elif what == "long" and is_map(last):
        if last.message_type.fields_by_name["key"].type != FieldDescriptor.TYPE_STRING:
            return False
        _map_with(message, last, "\0" * amount)
    elif what == "many" and is_map(last):
        for n in range(amount):
            _map_with(message, last, n)
    elif what == "many" and last.is_repeated:
        _fill_up(getattr(message, last.name), last, amount)
    else:
        return False
    return True


def _map_with(message: Any, field: Any, what: str | int) -> None:
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    at: Any = str(what) if key.type == FieldDescriptor.TYPE_STRING else what
    holder = getattr(message, field.name)
    if value.type == FieldDescriptor.TYPE_STRING:
        holder[at] = str(what)
    else:
        holder[at].broker_ids.append(1)


def _fill_up(entries: Any, field: Any, count: int) -> None:
    """Entries that differ in their texts and numbers."""
    if field.type == FieldDescriptor.TYPE_STRING:
        entries.extend(f"n{n}" for n in range(count))
    elif field.message_type is None:
        entries.extend(range(count))
    else:
        model = GetMessageClass(field.message_type)()
        if entries:
            model.CopyFrom(entries[0])
        del entries[:]
        for n in range(count):
            entry = entries.add()
            entry.CopyFrom(model)
            _distinguish(entry, n)


def _distinguish(entry: Any, number: int) -> None:
    for field in entry.DESCRIPTOR.fields:
        if field.is_repeated:
            continue
        if field.type == FieldDescriptor.TYPE_STRING and field.name in ("name", "topic", "resource_name"):
            setattr(entry, field.name, f"n{number}")
        elif field.type == FieldDescriptor.TYPE_INT32 and field.name == "partition":
            setattr(entry, field.name, number)
        elif field.message_type is not None and entry.HasField(field.name):
            _distinguish(getattr(entry, field.name), number)


def answer_problems(answer: Any, allowed: Mapping[int, str]) -> Iterator[str]:
    """What is wrong with an answer, in words: an unknown error code, an error that says nothing, or says too much."""
    names = answer.DESCRIPTOR.fields_by_name
    if "error_code" in names:
        if answer.error_code not in allowed:
            yield f"{answer.DESCRIPTOR.name}: error code {answer.error_code}"
        if "error_message" in names:
            if answer.error_code and not answer.error_message:
                yield f"{answer.DESCRIPTOR.name}: {allowed[answer.error_code]} without a word"
            if len(answer.error_message) > 3000:
                begins = answer.error_message[:200]
                yield f"{answer.DESCRIPTOR.name}: {len(answer.error_message)} characters: {begins}"
    for field in answer.DESCRIPTOR.fields:
        if field.message_type is not None and field.is_repeated and not is_map(field):
            for entry in getattr(answer, field.name)[:200]:
                yield from answer_problems(entry, allowed)
