"""ZooKeeper's wire format (zookeeper.jute), both ways, as a test needs it; independent of the product's."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from tests.provers.sim.zookeeper.messages import (
    Check,
    Children,
    CloseSession,
    Code,
    Create,
    Created,
    Data,
    Delete,
    Event,
    EventKind,
    Exists,
    Get,
    GetPerms,
    Granted,
    Multi,
    MultiOp,
    MultiRead,
    Names,
    Operation,
    Ping,
    RemoveWatches,
    Set,
    SetPerms,
    SetWatches,
    Stat,
    Sync,
    Unknown,
    Value,
    WatchTree,
)

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL = 1, 2, 3, 4, 5, 6, 7
GET_CHILDREN, SYNC, PING, GET_CHILDREN_2, CHECK, MULTI, CREATE_2 = 8, 9, 11, 12, 13, 14, 15
MULTI_READ, SET_WATCHES, CLOSE_SESSION, ERROR = 22, 101, -11, -1
REMOVE_WATCHES, ADD_WATCH = 18, 106
#: AddWatchMode.PERSISTENT_RECURSIVE, WatcherType.ANY.
RECURSIVE, ANY_WATCH = 1, 3
XID_EVENT, XID_PING = -1, -2

_STAT = struct.Struct(">qqqqiiiqiiq")
_HEADER = struct.Struct(">i?i")


def pack_int(n: int) -> bytes:
    return struct.pack(">i", n)


def pack_long(n: int) -> bytes:
    return struct.pack(">q", n)


def pack_buffer(raw: bytes | None) -> bytes:
    return pack_int(-1) if raw is None else pack_int(len(raw)) + raw


def pack_string(text: str) -> bytes:
    return pack_buffer(text.encode())


def _pack_strings(texts: tuple[str, ...]) -> bytes:
    return pack_int(len(texts)) + b"".join(map(pack_string, texts))


def _pack_acl(perms: int | None) -> bytes:
    if perms is None:
        return pack_int(0)
    return pack_int(1) + pack_int(perms) + pack_string("world") + pack_string("anyone")


def opcode(op: Operation | MultiOp) -> int:  # noqa: C901  (a table)
    match op:
        case Create(with_stat=with_stat):
            return CREATE_2 if with_stat else CREATE
        case Children(with_stat=with_stat):
            return GET_CHILDREN_2 if with_stat else GET_CHILDREN
        case Delete():
            return DELETE
        case Set():
            return SET_DATA
        case Check():
            return CHECK
        case SetPerms():
            return SET_ACL
        case Get():
            return GET_DATA
        case Exists():
            return EXISTS
        case GetPerms():
            return GET_ACL
        case Sync():
            return SYNC
        case Ping():
            return PING
        case SetWatches():
            return SET_WATCHES
        case WatchTree():
            return ADD_WATCH
        case RemoveWatches():
            return REMOVE_WATCHES
        case Multi():
            return MULTI
        case MultiRead():
            return MULTI_READ
        case CloseSession():
            return CLOSE_SESSION
        case Unknown(number):
            return number


def pack(op: Operation | MultiOp) -> bytes:
    """A request's body."""
    match op:
        case Create(path, data, ephemeral, sequential, perms):
            flags = ephemeral | sequential << 1
            return pack_string(path) + pack_buffer(data) + _pack_acl(perms) + pack_int(flags)
        case Delete(path, version) | Check(path, version):
            return pack_string(path) + pack_int(version)
        case Set(path, data, version):
            return pack_string(path) + pack_buffer(data) + pack_int(version)
        case SetPerms(path, perms, version):
            return pack_string(path) + _pack_acl(perms) + pack_int(version)
        case Get(path, watch) | Exists(path, watch) | Children(path, watch):
            return pack_string(path) + bytes([watch])
        case GetPerms(path) | Sync(path):
            return pack_string(path)
        case WatchTree(path):
            return pack_string(path) + pack_int(RECURSIVE)
        case RemoveWatches(path):
            return pack_string(path) + pack_int(ANY_WATCH)
        case SetWatches(zxid, data_paths, exists, children):
            return pack_long(zxid) + b"".join(map(_pack_strings, (data_paths, exists, children)))
        case Multi() | MultiRead():
            packed = [_HEADER.pack(opcode(one), False, -1) + pack(one) for one in op.ops]
            return b"".join(packed) + _HEADER.pack(-1, True, -1)
        case Ping() | CloseSession() | Unknown():
            return b""


def packet(xid: int, op: Operation) -> bytes:
    """A whole request with its length."""
    return pack_buffer(pack_int(xid) + pack_int(opcode(op)) + pack(op))


class Reader:
    """Reads values one after another."""

    def __init__(self, raw: bytes, offset: int = 0) -> None:
        self.raw, self.offset = raw, offset

    def number(self) -> int:
        return self._unpack(">i", 4)

    def long_number(self) -> int:
        return self._unpack(">q", 8)

    def flag(self) -> bool:
        return bool(self._unpack(">?", 1))

    def _unpack(self, form: str, size: int) -> int:
        (value,) = struct.unpack_from(form, self.raw, self.offset)
        self.offset += size
        return int(value)

    def buffer(self) -> bytes | None:
        length = self.number()
        if length < 0:
            return None
        self.offset += length
        return self.raw[self.offset - length : self.offset]

    def string(self) -> str:
        """The server writes a character beyond U+FFFF as two surrogates of three bytes each."""
        text = (self.buffer() or b"").decode("utf-8", "surrogatepass")
        return text.encode("utf-16", "surrogatepass").decode("utf-16")

    def strings(self) -> list[str]:
        return [self.string() for _ in range(self.number())]

    def stat(self) -> Stat:
        fields = _STAT.unpack_from(self.raw, self.offset)
        self.offset += _STAT.size
        return Stat(*fields)

    def perms(self) -> int | None:
        """Of ``world:anyone``; None for an empty list."""
        found: int | None = None
        for _ in range(self.number()):
            found = self.number()
            assert (self.string(), self.string()) == ("world", "anyone")
        return found

    def header(self) -> tuple[int, bool, int]:
        """Of one operation in a multi, or of its result: type, whether it is the end, error."""
        kind, done, error = _HEADER.unpack_from(self.raw, self.offset)
        self.offset += _HEADER.size
        return kind, done, error

    @property
    def exhausted(self) -> bool:
        return self.offset >= len(self.raw)


def unpack_event(reader: Reader, zxid: int) -> Event:
    kind = EventKind(reader.number())
    assert reader.number() == 3, "events tell the state SyncConnected"
    return Event(zxid, kind, reader.string())


_RESULTS: dict[int, Callable[[Reader], Value]] = {
    CREATE: lambda r: Created(r.string()),
    CREATE_2: lambda r: Created(r.string(), r.stat()),
    SET_DATA: Reader.stat,
    SET_ACL: Reader.stat,
    EXISTS: Reader.stat,
    GET_DATA: lambda r: Data(r.buffer(), r.stat()),
    GET_CHILDREN: lambda r: Names(tuple(sorted(r.strings()))),
    GET_CHILDREN_2: lambda r: Names(tuple(sorted(r.strings())), r.stat()),
    GET_ACL: lambda r: Granted(r.perms() or 0, r.stat()),
    SYNC: Reader.string,
    ERROR: lambda r: Code(r.number()),
    # An error code of its own, which is always 0.
    ADD_WATCH: lambda r: Code(r.number()),
}


def unpack_result(op: Operation, reader: Reader) -> Value:
    """The body of a reply without an error."""
    if not isinstance(op, Multi | MultiRead):
        unpack = _RESULTS.get(opcode(op))
        return unpack(reader) if unpack else None
    results: list[Value] = []
    while True:
        kind, done, _ = reader.header()
        if done:
            return tuple(results)
        result = _RESULTS[kind](reader) if kind in _RESULTS else None
        results.append(result)


#: Bytes of an operation beyond its path and data, at most.
_OVERHEAD = 64


def packet_size(op: Operation) -> int:
    """Bytes of a whole request after its length, as the server counts them."""
    return 8 + len(pack(op))


def surely_below(op: Operation, limit: int) -> bool:
    """Whether the request is smaller than so many bytes, told without packing it; False when that is not sure."""
    match op:
        case Create(path, data) | Set(path, data):
            return 4 * len(path) + len(data or b"") + _OVERHEAD < limit
        case Multi(ops):
            return (
                sum(4 * len(o.path) + len(getattr(o, "data", b"") or b"") + 2 * _OVERHEAD for o in ops)
                < limit
            )
        case MultiRead(reads):
            return sum(4 * len(o.path) + _OVERHEAD for o in reads) < limit
        case SetWatches():
            return False
        case WatchTree(path) | RemoveWatches(path) | Get(path) | Exists(path) | Children(path) | Delete(path):
            return 4 * len(path) + _OVERHEAD < limit
        case GetPerms(path) | Sync(path):
            return 4 * len(path) + _OVERHEAD < limit
        case _:
            return True


# the server's side


def unpack_request(kind: int, body: bytes) -> Operation:
    """A request's operation. Raises ValueError for one that is not among ours."""
    reader = Reader(body)
    if kind in (MULTI, MULTI_READ):
        ops = tuple(_unpack_operations(reader))
        return Multi(ops) if kind == MULTI else MultiRead(ops)  # type: ignore[arg-type]
    if kind == CLOSE_SESSION:
        return CloseSession()
    if kind == SET_WATCHES:
        zxid = reader.long_number()
        return SetWatches(zxid, *(tuple(reader.strings()) for _ in range(3)))
    path = reader.string()
    match kind:
        case _ if kind in _IN_MULTIS and kind != CHECK:
            return _unpack_one(kind, path, reader)  # type: ignore[return-value]
        case _ if kind == EXISTS:
            return Exists(path, reader.flag())
        case _ if kind == GET_CHILDREN_2:
            return Children(path, reader.flag(), with_stat=True)
        case _ if kind == SYNC:
            return Sync(path)
        case _ if kind == GET_ACL:
            return GetPerms(path)
        case _ if kind == ADD_WATCH:
            assert reader.number() == RECURSIVE
            return WatchTree(path)
        case _ if kind == REMOVE_WATCHES:
            assert reader.number() == ANY_WATCH
            return RemoveWatches(path)
        case _ if kind == SET_ACL:
            return SetPerms(path, reader.perms(), reader.number())
    raise ValueError(f"no such operation: {kind}")


_IN_MULTIS = (CREATE, CREATE_2, SET_DATA, CHECK, DELETE, GET_DATA, GET_CHILDREN)


def _unpack_operations(reader: Reader) -> Iterator[MultiOp | Get | Children]:
    while True:
        kind, done, _ = reader.header()
        if done:
            return
        yield _unpack_one(kind, reader.string(), reader)


def _unpack_one(kind: int, path: str, reader: Reader) -> MultiOp | Get | Children:
    if kind in (CREATE, CREATE_2):
        data, perms, flags = reader.buffer(), reader.perms(), reader.number()
        return Create(path, data, bool(flags & 1), bool(flags & 2), perms, kind == CREATE_2)
    if kind == SET_DATA:
        return Set(path, reader.buffer(), reader.number())
    if kind == CHECK:
        return Check(path, reader.number())
    if kind == DELETE:
        return Delete(path, reader.number())
    if kind == GET_DATA:
        return Get(path, reader.flag())
    if kind == GET_CHILDREN:
        return Children(path, reader.flag())
    raise ValueError(f"operation {kind} does not belong in a multi")


def pack_event(kind: EventKind, path: str) -> bytes:
    return pack_int(kind) + pack_int(3) + pack_string(path)


def pack_result(op: Operation, value: Value) -> bytes:
    """The body of a reply without an error."""
    if not isinstance(op, Multi | MultiRead):
        return _pack_value(value)
    assert isinstance(value, tuple)
    packed = []
    for one, result in zip(op.ops, value, strict=True):
        kind = ERROR if isinstance(result, Code) else opcode(one)
        error = int(result) if isinstance(result, Code) else 0
        packed.append(_HEADER.pack(kind, False, error) + _pack_value(result))
    return b"".join(packed) + _HEADER.pack(-1, True, -1)


def _pack_value(value: Value) -> bytes:
    match value:
        case None:
            return b""
        case Code():
            return pack_int(value)
        case str():
            return pack_string(value)
        case Stat():
            return _STAT.pack(*value)
        case Data(data, stat):
            return pack_buffer(data) + _STAT.pack(*stat)
        case Names(names, stat):
            return _pack_strings(names) + (_STAT.pack(*stat) if stat else b"")
        case Created(path, stat):
            return pack_string(path) + (_STAT.pack(*stat) if stat else b"")
        case Granted(perms, stat):
            return _pack_acl(perms) + _STAT.pack(*stat)
    raise ValueError(f"not a result: {value!r}")
