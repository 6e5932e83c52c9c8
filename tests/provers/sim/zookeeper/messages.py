"""ZooKeeper's requests and answers as plain data: what both the real server and the one in memory are asked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias


class Code(IntEnum):
    """Error codes of replies (org.apache.zookeeper.KeeperException.Code)."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    SESSION_MOVED = -118
    NO_WATCHER = -121


class Perms:
    """Permission bits; access is always given to ``world:anyone``."""

    READ, WRITE, CREATE, DELETE, ADMIN, ALL = 1, 2, 4, 8, 16, 31


class EventKind(IntEnum):
    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILD = 4


class Stat(NamedTuple):
    """All of a znode's Stat. ``owner`` is the session id of an ephemeral, 0 otherwise; times in ms."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    owner: int
    data_length: int
    num_children: int
    pzxid: int


# requests


@dataclass(frozen=True, slots=True)
class Create:
    """``perms`` None is an empty access list. ``with_stat`` asks by opcode create2."""

    path: str
    data: bytes | None = b""
    ephemeral: bool = False
    sequential: bool = False
    perms: int | None = Perms.ALL
    with_stat: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Set:
    path: str
    data: bytes | None
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """Only within a multi."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class SetPerms:
    """setACL; ``version`` is the aversion to find, -1 for any."""

    path: str
    perms: int | None
    version: int = -1


@dataclass(frozen=True, slots=True)
class Get:
    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Exists:
    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Children:
    path: str
    watch: bool = False
    with_stat: bool = False


@dataclass(frozen=True, slots=True)
class GetPerms:
    path: str


@dataclass(frozen=True, slots=True)
class Sync:
    path: str = "/"


@dataclass(frozen=True, slots=True)
class Ping:
    pass


@dataclass(frozen=True, slots=True)
class SetWatches:
    """Arm watches again; what changed after ``zxid`` fires at once."""

    zxid: int
    data: tuple[str, ...] = ()
    exists: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchTree:
    """addWatch, persistent and recursive: told of every creation, change and deletion of the node and below it."""

    path: str


@dataclass(frozen=True, slots=True)
class RemoveWatches:
    """removeWatches, of any kind, of exactly this path."""

    path: str


@dataclass(frozen=True, slots=True)
class Multi:
    ops: tuple[MultiOp, ...]


@dataclass(frozen=True, slots=True)
class MultiRead:
    ops: tuple[Get | Children, ...]


@dataclass(frozen=True, slots=True)
class CloseSession:
    pass


@dataclass(frozen=True, slots=True)
class Unknown:
    """A request with an operation code that the server does not know."""

    opcode: int = 77


MultiOp: TypeAlias = Create | Delete | Set | Check
Write: TypeAlias = Create | Delete | Set | SetPerms
Operation: TypeAlias = (
    Write | Get | Exists | Children | GetPerms | Sync | Ping | SetWatches | WatchTree | RemoveWatches
    | Multi | MultiRead | CloseSession | Unknown
)  # fmt: skip


# answers

#: What an operation answers when it succeeds. Multis hold one of the others (or a Code) for each operation.
Value: TypeAlias = object


class Data(NamedTuple):
    data: bytes | None
    stat: Stat


class Names(NamedTuple):
    """Children, sorted: the server promises no order."""

    names: tuple[str, ...]
    stat: Stat | None = None


class Created(NamedTuple):
    path: str
    stat: Stat | None = None


class Granted(NamedTuple):
    """getACL."""

    perms: int
    stat: Stat


@dataclass(frozen=True, slots=True)
class Reply:
    """``zxid`` is the last transaction the server had applied; ``value`` is None with any other code than OK."""

    zxid: int
    code: Code
    value: Value = None


@dataclass(frozen=True, slots=True)
class Event:
    """A watch went off. ``zxid``: the header's."""

    zxid: int
    kind: EventKind
    path: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The server ended the connection."""


Message: TypeAlias = Reply | Event | Closed
