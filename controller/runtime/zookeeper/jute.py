"""ZooKeeper's wire format for bulk writes (multi), bulk reads (multiRead) and bulk watches (setWatches).

kazoo sends these requests on its connection, but its own multi is far slower to serialise and parse, and it has no
multiRead or setWatches. The layouts are those of ``zookeeper.jute`` (MultiHeader, SetDataRequest, CreateRequest,
CheckVersionRequest, GetDataRequest, SetWatches, Stat).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from controller.errors import MalformedError, TooLargeError

OP_CREATE, OP_DELETE, OP_GET_DATA, OP_SET_DATA = 1, 2, 4, 5
OP_CHECK, OP_MULTI, OP_MULTI_READ, OP_SET_WATCHES = 13, 14, 22, 101
OP_REMOVE_WATCHES, OP_ADD_WATCH = 18, 106
OP_ERROR = -1

OK, NO_NODE, NO_AUTH, BAD_VERSION, NODE_EXISTS, QUOTA_EXCEEDED = 0, -101, -102, -103, -110, -125
RUNTIME_INCONSISTENCY, UNIMPLEMENTED = -2, -6
#: Of a write: somebody else was first.
CONFLICTS = (NO_NODE, BAD_VERSION, NODE_EXISTS)
_REFUSALS = {NO_AUTH: "an ACL forbids it", QUOTA_EXCEEDED: "a quota is exceeded (setquota)"}

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_HEADER = struct.Struct(">i?i")
_pack_int = _INT.pack
#: Lengths are mostly small; a table is faster than packing.
_SMALL_INT = tuple(_pack_int(n) for n in range(4096))

_HEAD_SET = _HEADER.pack(OP_SET_DATA, False, -1)
_HEAD_CREATE = _HEADER.pack(OP_CREATE, False, -1)
_HEAD_DELETE = _HEADER.pack(OP_DELETE, False, -1)
_HEAD_CHECK = _HEADER.pack(OP_CHECK, False, -1)
_HEAD_GET = _HEADER.pack(OP_GET_DATA, False, -1)
_END = _HEADER.pack(-1, True, -1)
_NO_WATCH = b"\0"
#: AddWatchMode.PERSISTENT_RECURSIVE and WatcherType.ANY.
_RECURSIVE, _ANY_WATCH = _pack_int(1), _pack_int(3)

#: Size of a multi, bytes. It cannot be split, and a server with the default jute.maxbuffer closes the connection over
#: a request of more than 1 MiB.
MULTI_BYTES_MAX = 1_000_000
#: Size of the paths in one setWatches, bytes; the default jute.maxbuffer limits the whole request to 1 MiB.
WATCHES_BYTES_MAX = 500_000
#: Lists of so many names are compared with the last one, and so many differences are looked for.
_MANY_NAMES, _CHANGES_MAX = 256, 20
#: The first bytes of the length of a name with less than 256 bytes. They are nowhere else: no name has a zero byte.
#: Near a longer name, no difference is found.
_SHORT = b"\0\0\0"
STAT_SIZE = 68
_STAT_CZXID, _STAT_VERSION = 0, 32
_PERMISSION_READ, _PERMISSIONS_ALL = 1, 31


def _len(n: int) -> bytes:
    return _SMALL_INT[n] if n < 4096 else _pack_int(n)


def _string(text: str) -> bytes:
    raw = text.encode()
    return _len(len(raw)) + raw


def _acl(*entries: tuple[int, str, str]) -> bytes:
    """A vector of (permissions, scheme, id)."""
    return _pack_int(len(entries)) + b"".join(
        _pack_int(permissions) + _string(scheme) + _string(who) for permissions, scheme, who in entries
    )


#: Packed ACLs of new znodes: everybody may all; the creator all and everybody read; the creator all.
OPEN_ACL = _acl((_PERMISSIONS_ALL, "world", "anyone"))
READABLE_ACL = _acl((_PERMISSIONS_ALL, "auth", ""), (_PERMISSION_READ, "world", "anyone"))
PRIVATE_ACL = _acl((_PERMISSIONS_ALL, "auth", ""))
_PERSISTENT, _EPHEMERAL, _PERSISTENT_SEQUENTIAL = map(_pack_int, range(3))


class MultiError(Exception):
    """A multi failed. ``codes`` has one ZooKeeper error code per operation; 0: it was rolled back."""

    def __init__(self, codes: Sequence[int]) -> None:
        self.codes = tuple(codes)
        index = next((n for n, code in enumerate(codes) if code not in (OK, RUNTIME_INCONSISTENCY)), -1)
        self.index = index
        self.code = codes[index] if index >= 0 else RUNTIME_INCONSISTENCY
        super().__init__(f"operation {index} of {len(codes)} failed with ZooKeeper error {self.code}")

    @property
    def why(self) -> str:
        """What a retry cannot change, in words; else the code."""
        return _REFUSALS.get(self.code, f"ZooKeeper error {self.code}")

    @property
    def happened(self) -> str:
        """What became of the write, in words."""
        what = "a write conflicted" if self.code in CONFLICTS else "ZooKeeper refused a write"
        return f"{what} ({self.why})"


def require_multi_fits(ops: Sequence[bytes]) -> None:
    """Raise TooLargeError if a multi of these operations is too large."""
    if (size := sum(map(len, ops))) > MULTI_BYTES_MAX:
        raise TooLargeError(f"a write of {size} bytes: ZooKeeper takes at most {MULTI_BYTES_MAX}")


def watchable(paths: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Slices of the paths, each of which fits one ``SetWatchesRequest``."""
    batch: list[bytes] = []
    size = 0
    for path in paths:
        if batch and size + len(path) + 4 > WATCHES_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += len(path) + 4
    if batch:
        yield batch


def op_check(path: bytes, version: int) -> bytes:
    return b"".join((_HEAD_CHECK, _len(len(path)), path, _pack_int(version)))


def op_set(path: bytes, data: bytes, version: int) -> bytes:
    return b"".join((_HEAD_SET, _len(len(path)), path, _len(len(data)), data, _pack_int(version)))


def op_create(path: bytes, data: bytes, acl: bytes = OPEN_ACL) -> bytes:
    return b"".join((_HEAD_CREATE, _len(len(path)), path, _len(len(data)), data, acl, _PERSISTENT))


def op_create_ephemeral(path: bytes, data: bytes, acl: bytes = OPEN_ACL) -> bytes:
    """Create a node that the session which sends this owns."""
    return b"".join((_HEAD_CREATE, _len(len(path)), path, _len(len(data)), data, acl, _EPHEMERAL))


def op_create_sequential(path: bytes, data: bytes, acl: bytes = OPEN_ACL) -> bytes:
    """Create a persistent node; ZooKeeper appends a number of ten digits to its name."""
    return b"".join((_HEAD_CREATE, _len(len(path)), path, _len(len(data)), data, acl, _PERSISTENT_SEQUENTIAL))


def op_delete(path: bytes, version: int) -> bytes:
    return b"".join((_HEAD_DELETE, _len(len(path)), path, _pack_int(version)))


def op_get(path: bytes) -> bytes:
    return b"".join((_HEAD_GET, _len(len(path)), path, _NO_WATCH))


class Node(NamedTuple):
    """One znode from a bulk read."""

    data: bytes
    version: int
    czxid: int


class BulkRequest:
    """A request for kazoo's connection with a packed body; its response stays packed, too.

    ``deserialize`` runs on kazoo's thread, so it only keeps the position of the response.
    """

    def __init__(self, opcode: int, ops: Iterable[bytes]) -> None:
        self.type = opcode
        self._ops = ops

    def serialize(self) -> bytes:
        return b"".join((*self._ops, _END))

    def deserialize(self, data: bytes, offset: int) -> list[memoryview]:
        # A list, because kazoo iterates over the result of every request with a transaction's opcode.
        return [memoryview(data)[offset:]]


class SetWatchesRequest:
    """Arm data watches on many paths at once; watches of znodes changed after ``zxid`` fire immediately."""

    type = OP_SET_WATCHES

    def __init__(self, zxid: int, paths: Sequence[bytes]) -> None:
        self._zxid, self._paths = zxid, paths

    def serialize(self) -> bytes:
        body = [_LONG.pack(self._zxid), _pack_int(len(self._paths))]
        for path in self._paths:
            body += (_len(len(path)), path)
        body += (_pack_int(0), _pack_int(0))
        return b"".join(body)

    def deserialize(self, data: bytes, offset: int) -> bool:  # noqa: ARG002  (the answer has no body)
        return True


class TreeWatchRequest:
    """Arm a persistent watch on a znode and all below it, or remove it; servers from 3.6 on know both.

    A later watch of the same session on this very path would replace it (ZOOKEEPER-4466), and its removal removes all
    watches of the path.
    """

    def __init__(self, path: bytes, *, arm: bool) -> None:
        self.type = OP_ADD_WATCH if arm else OP_REMOVE_WATCHES
        self._path, self._argument = path, _RECURSIVE if arm else _ANY_WATCH

    def serialize(self) -> bytes:
        return b"".join((_len(len(self._path)), self._path, self._argument))

    def deserialize(self, data: bytes, offset: int) -> bool:  # noqa: ARG002  (nothing that is of use)
        return True


def event_path(buffer: bytes, offset: int) -> str:
    """The path of a watch event, which follows its type and the connection's state."""
    length = _INT.unpack_from(buffer, offset + 8)[0]
    return bytes(buffer[offset + 12 : offset + 12 + length]).decode("utf-8", "replace")


def parse_multi(answer: memoryview, count: int) -> list[int]:
    """Error codes of a multi, one per operation; empty when it succeeded.

    A multi is atomic. When it fails, the operations before the failing one have code 0 and those after it -2.
    Raises MalformedError.
    """
    try:
        return _codes(answer, count)
    except struct.error as error:
        raise _cut_short(answer, error) from None


def _cut_short(answer: memoryview, error: Exception) -> MalformedError:
    return MalformedError("ZooKeeper's answer", f"has {len(answer)} bytes, must go on: {error}")


def _codes(answer: memoryview, count: int) -> list[int]:
    kind, _, _ = _HEADER.unpack_from(answer, 0)
    if kind != OP_ERROR:
        return []
    codes = []
    offset = 0
    for _ in range(count):
        _, done, _ = _HEADER.unpack_from(answer, offset)
        if done:
            break
        codes.append(_INT.unpack_from(answer, offset + _HEADER.size)[0])
        offset += _HEADER.size + 4
    return codes


class NameLists:
    """Decodes lists of names. A server lists the names of a znode's children in the same order each time, with new ones
    somewhere between. So of a long list, such as that of all topics, only what differs from the last one is decoded.
    """

    def __init__(self) -> None:
        #: The last long list, packed and decoded.
        self._packed = b""
        self._names: list[str] = []

    def decode(self, answer: memoryview) -> list[str]:
        """The names, in any order. Raises MalformedError."""
        packed = bytes(answer)
        try:
            (count,) = _INT.unpack_from(packed)
            if count < _MANY_NAMES:
                return list(_names(packed, count))
            if self._packed and (changes := _changes(packed, self._packed)) is not None:
                came, gone = changes
                if len(self._names) + len(came) - len(gone) != count:
                    raise IndexError(f"{count} names are announced")
                for name in gone:
                    self._names.remove(name)
                self._names += came
            else:
                self._names = list(_names(packed, count))
            self._packed = packed
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise _cut_short(answer, error) from None
        return self._names.copy()


def _changes(packed: bytes, before: bytes) -> tuple[list[str], list[str]] | None:
    """The names that one packed list has and another has not, and the reverse. None: they differ too much."""
    came: list[str] = []
    gone: list[str] = []
    here = there = _INT.size
    while len(came) + len(gone) <= _CHANGES_MAX:
        same = _equal_bytes(packed, here, before, there)
        here, there = here + same, there + same
        if here == len(packed) and there == len(before):
            return came, gone
        if here < len(packed) and there < len(before):
            # Back to where the name begins: up to there, both are equal.
            start = packed.rfind(_SHORT, here - same, here + len(_SHORT))
            here, there = start, there - (here - start)
            if start < 0:
                return None
        if (new := _next_of(packed, here, before, there)) is not None:
            came.append(new)
            here += _INT.size + packed[here + len(_SHORT)]
        elif (old := _next_of(before, there, packed, here)) is not None:
            gone.append(old)
            there += _INT.size + before[there + len(_SHORT)]
        else:
            return None
    return None


def _next_of(some: bytes, start: int, others: bytes, other_start: int) -> str | None:
    """The name at a position of a packed list, if what follows it is what the other list has at its position."""
    if some[start : start + len(_SHORT)] != _SHORT:
        return None
    following = start + _INT.size + some[start + len(_SHORT)]
    if other_start == len(others):
        fits = following <= len(some)
    else:
        end = other_start + _INT.size + others[other_start + len(_SHORT)]
        fits = some[following : following + end - other_start] == others[other_start:end]
    return some[start + _INT.size : following].decode() if fits else None


def _equal_bytes(some: bytes, start: int, others: bytes, other_start: int) -> int:
    """How many bytes are equal from these positions on."""
    high = min(len(some) - start, len(others) - other_start)
    if some[start : start + high] == others[other_start : other_start + high]:
        return high
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        if some[start + low : start + middle] == others[other_start + low : other_start + middle]:
            low = middle
        else:
            high = middle
    return low


def _names(packed: bytes, count: int) -> Iterator[str]:
    start = _INT.size
    for _ in range(count):
        (length,) = _INT.unpack_from(packed, start)
        start += _INT.size + length
        if start > len(packed):
            raise IndexError("a name is cut short")
        yield packed[start - length : start].decode()


def parse_multi_read(answer: memoryview, count: int) -> list[Node | int]:
    """Nodes of a bulk read, in order; an error code for each that could not be read. Raises MalformedError."""
    try:
        return _nodes(bytes(answer), count)
    except (struct.error, IndexError) as error:
        raise _cut_short(answer, error) from None


def _nodes(buffer: bytes, count: int) -> list[Node | int]:
    nodes: list[Node | int] = []
    append = nodes.append
    offset = 0
    unpack_int, unpack_long = _INT.unpack_from, _LONG.unpack_from
    # Without the named tuple's own constructor, which is written in Python: there may be a million.
    make = tuple.__new__
    for _ in range(count):
        if buffer[offset] == 0xFF:  # type -1: an error, whose code follows the header
            append(unpack_int(buffer, offset + 9)[0])
            offset += 13
            continue
        start = offset + 13
        length = unpack_int(buffer, offset + 9)[0]
        end = start + length if length > 0 else start
        version = unpack_int(buffer, end + _STAT_VERSION)[0]
        czxid = unpack_long(buffer, end + _STAT_CZXID)[0]
        append(make(Node, (buffer[start:end], version, czxid)))
        offset = end + STAT_SIZE
    return nodes
