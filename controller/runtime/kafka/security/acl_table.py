"""Kafka's ACLs and how they decide, without I/O: ``kafka.security.authorizer.AclAuthorizer`` of Kafka 3.9.

A znode holds the ACLs of one resource pattern: ``{"version":1,"acls":[{"principal":"User:alice",
"permissionType":"Allow","operation":"Read","host":"*"}]}``.

What cannot be read never opens a door (Kafka takes invalid JSON for no ACLs, and a broker does not start over a
malformed entry): an unreadable entry that does not plainly say Allow denies, for everything that its unreadable fields
might have said; one that says Allow grants nothing; an unreadable znode denies everybody all on its pattern. Super
users are asked about no ACLs, and can repair them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from proto.security.authorization import IMPLIED_BY, Operation, Principal, Resource, ResourceType
from proto.texts import in_words

#: Every name, host, or user.
WILDCARD = "*"
WILDCARD_PRINCIPAL = "User:*"
_ALL = "ALL"
_VERSION = 1

#: Kafka has no right of its own to lose data: who may alter may.
_KAFKAS = {Operation.LOSE_DATA: Operation.ALTER}


class PatternType(Enum):
    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Pattern(NamedTuple):
    """What ACLs are about: a name, every name (``*``), or all names with a prefix."""

    resource: ResourceType
    type: PatternType
    name: str


class Acl(NamedTuple):
    """One entry. None: every one. ``principal``: ``User:alice``; ``host``: an address as Java prints it."""

    allows: bool
    principal: str | None
    operation: Operation | None
    host: str | None

    def matches(self, principal: str, operation: Operation, host: str) -> bool:
        return (
            self.principal in (None, principal)
            and self.operation in (None, operation)
            and self.host in (None, host)
        )


class _Announcement(msgspec.Struct):
    resourceType: str  # noqa: N815  (Kafka's name)
    name: str
    patternType: str  # noqa: N815


DENY_EVERYBODY = Acl(False, None, None, None)


class Acls(NamedTuple):
    """The ACLs of one pattern, and what was wrong with its znode."""

    entries: tuple[Acl, ...]
    problems: tuple[str, ...] = ()


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _named(names: Iterable[str]) -> dict[str, str]:
    """Kafka's spellings of an enum's names: ``DescribeConfigs`` and, in any case, ``DESCRIBE_CONFIGS``."""
    return {spelling: name for name in names for spelling in (name, _camel(name))}


_OPERATIONS = _named([*(operation.value for operation in Operation if operation not in _KAFKAS), _ALL])
_PERMISSIONS = _named(["ALLOW", "DENY"])
_RESOURCE_TYPES = _named(kind.value for kind in ResourceType)


def _lookup(names: Mapping[str, str], text: object) -> str | None:
    """As ``SecurityUtils.valueFromMap``: the name as it is, else in upper case."""
    return names.get(text) or names.get(text.upper()) if isinstance(text, str) else None


def resource_type(text: str) -> ResourceType | None:
    """The resource type of a znode's name (``Topic``, ``TransactionalId``); None: one that Kafka 3.9 has not."""
    name = _lookup(_RESOURCE_TYPES, text)
    return ResourceType(name) if name else None


def read_announcement(data: bytes) -> Pattern | None:
    """The pattern that a change is about: ``TOPIC:name``, or an ``ExtendedAclChangeEvent``; None: not readable."""
    try:
        if data.startswith(b"{"):
            event = msgspec.json.decode(data, type=_Announcement)
            kind, pattern, name = event.resourceType, PatternType(event.patternType.upper()), event.name
        else:
            kind, _, name = data.decode().partition(":")
            pattern = PatternType.LITERAL
    except (ValueError, RecursionError):
        return None
    resource = resource_type(kind)
    return None if resource is None or not name or "/" in name else Pattern(resource, pattern, name)


def read_acls(data: bytes) -> Acls:
    """The content of a pattern's znode; an empty one has no ACLs."""
    if not data:
        return Acls(())
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        return _unreadable(in_words(error))
    if not isinstance(found, dict) or found.get("version") != _VERSION or isinstance(found["version"], bool):
        return _unreadable(f"must be an object with version {_VERSION}")
    listed = found.get("acls")
    if not isinstance(listed, list):
        return _unreadable("acls: must be a list")
    read = [_entry(number, entry) for number, entry in enumerate(listed)]
    problems = tuple(problem for _, problem in read if problem)
    return Acls(tuple(dict.fromkeys(acl for acl, _ in read if acl)), problems)


def _unreadable(problem: str) -> Acls:
    return Acls((DENY_EVERYBODY,), (problem,))


def _entry(number: int, entry: Any) -> tuple[Acl | None, str]:
    """An entry, and what is wrong with it."""
    if not isinstance(entry, dict):
        return DENY_EVERYBODY, f"acls[{number}]: must be an object"
    wrong: list[str] = []
    permission = _lookup(_PERMISSIONS, entry.get("permissionType"))
    operation = _lookup(_OPERATIONS, entry.get("operation"))
    principal, host = entry.get("principal"), entry.get("host")
    if permission is None:
        wrong.append("permissionType")
    if operation is None:
        wrong.append("operation")
    if not isinstance(principal, str) or not all(principal.partition(":")):
        wrong.append("principal")
        principal = None
    if not isinstance(host, str):
        wrong.append("host")
        host = None
    problem = f"acls[{number}]: {', '.join(wrong)}: missing or not one of Kafka's" if wrong else ""
    if wrong and permission == "ALLOW":
        return None, problem
    return Acl(
        permission == "ALLOW",
        None if principal == WILDCARD_PRINCIPAL else principal,
        None if operation in (None, _ALL) else Operation(operation),
        None if host == WILDCARD else host,
    ), problem


class AclTable:
    """All ACLs at one time. It is immutable: a change makes a new one."""

    def __init__(
        self,
        acls: Mapping[Pattern, Acls],
        supers: frozenset[str] = frozenset(),
        *,
        everyone_if_none_found: bool = False,
    ) -> None:
        self._acls = {pattern: found.entries for pattern, found in acls.items() if found.entries}
        self._supers, self._everyone = supers, everyone_if_none_found
        #: Lengths of the prefixes of each resource type: no other slice of a name need be looked up.
        self._lengths = {
            kind: sorted(
                {len(p.name) for p in self._acls if p.type is PatternType.PREFIXED and p.resource is kind}
            )
            for kind in ResourceType
        }

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """``AclAuthorizer.authorizeAction``: super users may all; a deny wins over every allow; who is not allowed is
        denied, except where no ACL is about the resource at all and ``everyone_if_none_found``."""
        who, host, operation = str(principal), principal.host, _KAFKAS.get(operation, operation)
        if who in self._supers:
            return True
        acls = self._about(resource)
        if not acls:
            return self._everyone
        if any(not acl.allows and acl.matches(who, operation, host) for acl in acls):
            return False
        sufficient = (operation, *IMPLIED_BY.get(operation, ()))
        return any(acl.allows and acl.matches(who, enough, host) for acl in acls for enough in sufficient)

    def _about(self, resource: Resource) -> list[Acl]:
        kind, name = resource
        found = [*self._acls.get(Pattern(kind, PatternType.LITERAL, WILDCARD), ())]
        if name != WILDCARD:
            found += self._acls.get(Pattern(kind, PatternType.LITERAL, name), ())
        for length in self._lengths[kind]:
            if length > len(name):
                break
            found += self._acls.get(Pattern(kind, PatternType.PREFIXED, name[:length]), ())
        return found
