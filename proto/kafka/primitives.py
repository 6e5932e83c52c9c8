"""What generated messages are made of: numbers, strings, counts and tagged fields on the wire (KIP-482), and the
class of messages.

Writers append to a bytearray and raise ValueError. Readers take bytes and an offset, give a value and the offset after
it, and raise ValueError, IndexError or struct.error on bytes that are no such value: :meth:`Message.decode` makes
MalformedMessageError of them. ``flexible`` says whether lengths are unsigned varints, one more than the length, 0 for
null; else they are int16 (strings) or int32, -1 for null.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import ClassVar, Self, TypeVar

import msgspec

T = TypeVar("T")

ZERO_UUID = bytes(16)
#: Bytes in UTF-8; Kafka's generated code refuses longer ones also where a varint could say more.
STRING_BYTES_MAX = 0x7FFF
#: Bytes; a varint of 32 bits is no longer.
_UVARINT_MAX = 5

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
#: Most lists of broker ids are short.
_INT32S = [struct.Struct(f">{n}i") for n in range(17)]
#: What a reader raises on bytes that it cannot read.
UNREADABLE = (ValueError, IndexError, struct.error)


class MalformedMessageError(Exception):
    """Bytes are not the message that they should be. ``message`` is its name and version, ``what`` the problem."""

    def __init__(self, message: str, what: str) -> None:
        super().__init__(f"{message}: {what}")
        self.message = message
        self.what = what


def malformed(message: str, error: Exception) -> MalformedMessageError:
    """The error to raise for one of UNREADABLE."""
    return MalformedMessageError(message, "ends too early" if isinstance(error, IndexError) else str(error))


class Structure(msgspec.Struct, gc=False):
    """Part of a message. Nothing in it refers back, so the garbage collector need not look.

    Where a list of structures is written, each element's own ``write`` is called: a subclass may append bytes that it
    kept.
    """

    def write(self, out: bytearray, version: int) -> None:
        """Append this structure as this version of the message has it. Raises ValueError, struct.error."""
        raise NotImplementedError

    @classmethod
    def read(cls, data: bytes, at: int, version: int) -> tuple[Self, int]:
        """The structure at this offset, and the offset after it. Raises one of UNREADABLE."""
        raise NotImplementedError


class Message(Structure, gc=False):
    """A request or response."""

    API_KEY: ClassVar[int]
    #: Valid ones, of Kafka's specification.
    VERSIONS: ClassVar[range]
    #: The first version with compact lengths and tagged fields.
    FLEXIBLE: ClassVar[int | None]

    @classmethod
    def title(cls, version: int) -> str:
        return f"{cls.__name__} version {version}"

    @classmethod
    def require(cls, version: int) -> None:
        """Raises ValueError if the message has no such version."""
        if version not in cls.VERSIONS:
            raise ValueError(f"{cls.title(version)}: versions are {cls.VERSIONS[0]} to {cls.VERSIONS[-1]}")

    def encode(self, version: int) -> bytes:
        """The body. Raises ValueError: a value that this version cannot carry, or no such version."""
        out = bytearray()
        self.write_into(out, version)
        return bytes(out)

    def write_into(self, out: bytearray, version: int) -> None:
        """Append the body. Raises ValueError, as :meth:`encode` does."""
        self.require(version)
        try:
            self.write(out, version)
        except struct.error as error:
            raise ValueError(f"{self.title(version)}: {error}") from error

    @classmethod
    def decode(cls, data: bytes | memoryview, version: int) -> Self:
        """The message of a body, all of it. Raises MalformedMessageError; ValueError: no such version."""
        return cls.decode_at(bytes(data), 0, version)

    @classmethod
    def decode_at(cls, data: bytes, at: int, version: int, *, exact: bool = True) -> Self:
        """The message whose body begins at this offset and ends with the bytes; ``exact`` False: or before. Raises as
        :meth:`decode` does."""
        cls.require(version)
        try:
            found, end = cls.read(data, at, version)
        except UNREADABLE as error:
            raise malformed(cls.title(version), error) from error
        if exact and end != len(data):
            raise MalformedMessageError(cls.title(version), f"{len(data) - end} bytes too many")
        return found


def lacks(structure: Structure, field: str, version: int) -> ValueError:
    """The error to raise for a value that would be lost. Kafka raises UnsupportedVersionException."""
    return ValueError(
        f"{type(structure).__name__}.{field}: version {version} has no such field,"
        f" so it must be left at its default, not {str(getattr(structure, field))[:100]}"
    )


def no_null(structure: Structure, field: str, version: int) -> ValueError:
    return ValueError(f"{type(structure).__name__}.{field}: must not be null in version {version}")


# --- writing ---------------------------------------------------------------------------------------------------


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_count(out: bytearray, count: int, flexible: bool) -> None:
    """How many elements or bytes follow; -1 is null."""
    if not flexible:
        out += _INT32.pack(count)
    elif count < 0x7F:
        out.append(count + 1)
    else:
        write_uvarint(out, count + 1)


def write_string(out: bytearray, value: str, flexible: bool) -> None:
    data = value.encode()
    size = len(data)
    if size > STRING_BYTES_MAX:
        raise ValueError(f"a string of {size} bytes is longer than {STRING_BYTES_MAX}: {value[:40]}...")
    if flexible:
        write_count(out, size, True)
    else:
        out += _INT16.pack(size)
    out += data


def write_nullable_string(out: bytearray, value: str | None, flexible: bool) -> None:
    if value is not None:
        write_string(out, value, flexible)
    elif flexible:
        out.append(0)
    else:
        out += b"\xff\xff"


def write_bytes(out: bytearray, value: bytes | None, flexible: bool) -> None:
    if value is None:
        write_count(out, -1, flexible)
    else:
        write_count(out, len(value), flexible)
        out += value


def write_uuid(out: bytearray, value: bytes) -> None:
    if len(value) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
    out += value


def write_int32s(out: bytearray, values: list[int] | None, flexible: bool) -> None:
    if values is None or len(values) > 16:
        write_numbers(out, values, flexible, "i")
        return
    count = len(values)
    if flexible:
        out.append(count + 1)
    else:
        out += _INT32.pack(count)
    out += _INT32S[count].pack(*values)


def write_numbers(out: bytearray, values: list[int] | None, flexible: bool, code: str) -> None:
    """``code``: how struct calls the type."""
    if values is None:
        write_count(out, -1, flexible)
    else:
        write_count(out, len(values), flexible)
        out += struct.pack(f">{len(values)}{code}", *values)


def write_strings(out: bytearray, values: list[str] | None, flexible: bool) -> None:
    write_count(out, -1 if values is None else len(values), flexible)
    for value in values or ():
        write_string(out, value, flexible)


def write_uuids(out: bytearray, values: list[bytes] | None, flexible: bool) -> None:
    write_count(out, -1 if values is None else len(values), flexible)
    for value in values or ():
        write_uuid(out, value)


def write_structures(
    out: bytearray, values: Sequence[Structure] | None, flexible: bool, version: int
) -> None:
    write_count(out, -1 if values is None else len(values), flexible)
    for value in values or ():
        value.write(out, version)


def write_tagged(out: bytearray, fields: list[tuple[int, bytearray]]) -> None:
    """Tagged fields, by ascending tag."""
    write_uvarint(out, len(fields))
    for tag, value in fields:
        write_uvarint(out, tag)
        write_uvarint(out, len(value))
        out += value


# --- reading ---------------------------------------------------------------------------------------------------


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for n in range(1, _UVARINT_MAX):
        byte = data[at + n]
        value |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            return value, at + n + 1
    raise ValueError(f"a varint at byte {at} is longer than {_UVARINT_MAX} bytes")


def read_nullable_count(data: bytes, at: int, flexible: bool, nullable: bool = True) -> tuple[int, int]:
    """-1 for null. Each element takes a byte at least, so a count never exceeds the bytes that are left."""
    start = at
    if flexible:
        count, at = read_uvarint(data, at)
        count -= 1
    else:
        (count,) = _INT32.unpack_from(data, at)
        at += 4
    if count < 0:
        if not nullable:
            raise ValueError(f"null at byte {start}, where there must be an array or bytes")
        return -1, at
    if count > len(data) - at:
        raise ValueError(f"a count of {count} at byte {start}, with {len(data) - at} bytes left")
    return count, at


def read_nullable_string(
    data: bytes, at: int, flexible: bool, nullable: bool = True
) -> tuple[str | None, int]:
    start = at
    if flexible:
        size, at = read_uvarint(data, at)
        size -= 1
    else:
        (size,) = _INT16.unpack_from(data, at)
        at += 2
    if size < 0:
        if not nullable:
            raise ValueError(f"null at byte {start}, where there must be a string")
        return None, at
    end = at + size
    if size > STRING_BYTES_MAX:
        raise ValueError(f"a string of {size} bytes at byte {start} is longer than {STRING_BYTES_MAX}")
    if end > len(data):
        raise ValueError(f"a string of {size} bytes at byte {start}, with {len(data) - at} bytes left")
    return str(data[at:end], "utf-8"), end


def read_string(data: bytes, at: int, flexible: bool) -> tuple[str, int]:
    value, at = read_nullable_string(data, at, flexible, False)
    return value or "", at


def read_bytes(data: bytes, at: int, flexible: bool) -> tuple[bytes, int]:
    size, at = read_nullable_count(data, at, flexible, False)
    return data[at : at + size], at + size


def read_uuid(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 16
    if end > len(data):
        raise ValueError(f"a uuid at byte {at}, with {len(data) - at} bytes left")
    return data[at:end], end


def read_int32s(data: bytes, at: int, flexible: bool) -> tuple[list[int], int]:
    count, at = read_nullable_count(data, at, flexible, False)
    if count < 17:
        return list(_INT32S[count].unpack_from(data, at)), at + 4 * count
    return list(struct.unpack_from(f">{count}i", data, at)), at + 4 * count


def read_nullable_int32s(
    data: bytes, at: int, flexible: bool, nullable: bool = True
) -> tuple[list[int] | None, int]:
    count, end = read_nullable_count(data, at, flexible, nullable)
    return (None, end) if count < 0 else read_int32s(data, at, flexible)


def read_numbers(data: bytes, at: int, flexible: bool, code: str) -> tuple[list[int], int]:
    count, at = read_nullable_count(data, at, flexible, False)
    found = struct.Struct(f">{count}{code}")
    return list(found.unpack_from(data, at)), at + found.size


def read_nullable_strings(
    data: bytes, at: int, flexible: bool, nullable: bool = True
) -> tuple[list[str] | None, int]:
    count, at = read_nullable_count(data, at, flexible, nullable)
    if count < 0:
        return None, at
    found = []
    for _ in range(count):
        value, at = read_string(data, at, flexible)
        found.append(value)
    return found, at


def read_strings(data: bytes, at: int, flexible: bool) -> tuple[list[str], int]:
    found, at = read_nullable_strings(data, at, flexible, False)
    return found or [], at


def read_uuids(data: bytes, at: int, flexible: bool) -> tuple[list[bytes], int]:
    count, at = read_nullable_count(data, at, flexible, False)
    found = []
    for _ in range(count):
        value, at = read_uuid(data, at)
        found.append(value)
    return found, at


def read_structures(
    data: bytes, at: int, flexible: bool, version: int, read: Callable[[bytes, int, int], tuple[T, int]]
) -> tuple[list[T], int]:
    count, at = read_nullable_count(data, at, flexible, False)
    found = []
    for _ in range(count):
        value, at = read(data, at, version)
        found.append(value)
    return found, at


def read_nullable_structures(
    data: bytes,
    at: int,
    flexible: bool,
    version: int,
    read: Callable[[bytes, int, int], tuple[T, int]],
    nullable: bool = True,
) -> tuple[list[T] | None, int]:
    count, end = read_nullable_count(data, at, flexible, nullable)
    return (None, end) if count < 0 else read_structures(data, at, flexible, version, read)


def read_tag(data: bytes, at: int) -> tuple[int, int, int]:
    """Tag, and where its value begins and ends."""
    tag, at = read_uvarint(data, at)
    size, at = read_uvarint(data, at)
    if size > len(data) - at:
        raise ValueError(f"a tagged field of {size} bytes at byte {at}, with {len(data) - at} bytes left")
    return tag, at, at + size


def require_end(at: int, end: int) -> None:
    if at != end:
        raise ValueError(f"a tagged field ends at byte {at}, not at byte {end} as its size says")


def skip_tagged(data: bytes, at: int) -> int:
    """The offset after tagged fields of which none is known."""
    count, at = read_uvarint(data, at)
    for _ in range(count):
        _, _, at = read_tag(data, at)
    return at
