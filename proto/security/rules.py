"""The authorizer that follows a file of rules (setting ``authorizer_file``, docs/security.md).

::

    brokers = ["User:CN=broker-{id},O=Example"]     # may act as the broker with that id, and as no other
    controllers = ["User:CN=controller-*"]          # may send control requests to brokers

    [[allow]]
    principals = ["User:alice", "User:CN=ops-*"]
    operations = ["ALTER", "DESCRIBE"]
    resources = ["cluster", "topic:orders", "topic:logs-*"]
    hosts = ["10.0.0.7"]                            # if absent: every one

    [[deny]]
    ...

A deny wins over every allow, and who is not allowed is denied. Operations, what one implies, and the comparison of
hosts are those of Kafka's ACLs (KIP-11); a ``*`` at the end of a name stands for anything.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from proto.security.authorization import (
    CLUSTER,
    IMPLIED_BY,
    Operation,
    Principal,
    Resource,
    ResourceType,
    peer_of,
)
from proto.security.files import FileSettingError, FromFiles, read_file

SETTING = "authorizer_file"
ALL = "ALL"
WILDCARD = "*"
_USER = "User:"
_ID = "{id}"
#: Every request is compared with each of them.
RULES_MAX = 1000
#: Answers that are remembered until the file changes.
_REMEMBERED = 10_000
_TYPES = {
    kind.value.lower().replace("_", "-"): kind for kind in ResourceType if kind is not ResourceType.CLUSTER
}
_RESOURCES_ALLOWED = f"cluster, or TYPE:NAME, TYPE:PREFIX* with a type of {', '.join(_TYPES)}"

_OperationName = Literal[(*(operation.value for operation in Operation), ALL)]  # type: ignore[valid-type]
_Texts = Annotated[list[str], Meta(min_length=1)]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    principals: _Texts
    operations: Annotated[list[_OperationName], Meta(min_length=1)]  # type: ignore[valid-type]
    resources: _Texts
    hosts: _Texts = msgspec.field(default_factory=lambda: [WILDCARD])


class _File(msgspec.Struct, forbid_unknown_fields=True):
    brokers: list[str] = []
    controllers: list[str] = []
    allow: list[_Entry] = []
    deny: list[_Entry] = []


class _WrongError(ValueError):
    """``path``: of the value, as msgspec names it."""

    def __init__(self, path: str, allowed: str) -> None:
        self.path, self.allowed = path, allowed
        super().__init__(allowed)


class Names(NamedTuple):
    """A name, or with ``prefix`` all names that begin with it."""

    text: str
    prefix: bool

    def match(self, name: str) -> bool:
        return name.startswith(self.text) if self.prefix else name == self.text


class Rule(NamedTuple):
    """One rule. An empty set of operations or hosts stands for all of them."""

    principals: tuple[Names, ...]
    operations: frozenset[Operation]
    resources: tuple[tuple[ResourceType, Names], ...]
    hosts: frozenset[str]

    def matches(self, who: str, host: str, operation: Operation, resource: Resource) -> bool:
        return (
            (not self.operations or operation in self.operations)
            and (not self.hosts or host in self.hosts)
            and any(names.match(who) for names in self.principals)
            and any(kind is resource.type and names.match(resource.name) for kind, names in self.resources)
        )


class Rules:
    """The content of a file. It is immutable: a change of the file makes a new one."""

    def __init__(
        self,
        allow: Sequence[Rule] = (),
        deny: Sequence[Rule] = (),
        brokers: Sequence[re.Pattern[str]] = (),
        controllers: Sequence[Names] = (),
    ) -> None:
        self._allow, self._deny = tuple(allow), tuple(deny)
        self._brokers, self._controllers = tuple(brokers), tuple(controllers)
        self.allowed: Callable[[str, str, Operation, Resource], bool] = lru_cache(_REMEMBERED)(self._decide)

    def _decide(self, who: str, host: str, operation: Operation, resource: Resource) -> bool:
        if any(rule.matches(who, host, operation, resource) for rule in self._deny):
            return False
        if operation is Operation.CLUSTER_ACTION and resource == CLUSTER and self._has_role(who):
            return True
        sufficient = (operation, *IMPLIED_BY.get(operation, ()))
        return any(rule.matches(who, host, each, resource) for each in sufficient for rule in self._allow)

    def _has_role(self, who: str) -> bool:
        return self.is_controller(who) or any(pattern.fullmatch(who) for pattern in self._brokers)

    def is_controller(self, who: str) -> bool:
        return any(names.match(who) for names in self._controllers)

    def speaks_for(self, who: str, broker_id: int) -> bool:
        return any(
            found is not None and found["id"] == str(broker_id)
            for found in (pattern.fullmatch(who) for pattern in self._brokers)
        )


class RuleAuthorizer:
    """An ``Authorizer``: super users may all, the others what the rules say. The rules follow their file."""

    def __init__(self, rules: FromFiles[Rules] | None, supers: frozenset[str] = frozenset()) -> None:
        self._rules, self._supers, self._none = rules, supers, Rules()

    def _current(self) -> Rules:
        return self._none if self._rules is None else self._rules.current()

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        who = str(principal)
        return who in self._supers or self._current().allowed(who, principal.host, operation, resource)

    def speaks_for(self, principal: Principal, broker_id: int) -> bool:
        who = str(principal)
        return who in self._supers or self._current().speaks_for(who, broker_id)

    def is_controller(self, principal: Principal) -> bool:
        who = str(principal)
        return who in self._supers or self._current().is_controller(who)


def rules_in_file(path: Path) -> FromFiles[Rules]:
    """The rules of a file. Raises FileSettingError."""
    return FromFiles([path], lambda: _read(path))


def _read(path: Path) -> Rules:
    try:
        text = read_file(SETTING, path, "a file of rules", secret=False).decode()
        parsed = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise FileSettingError(SETTING, str(path), f"a file in TOML ({error})") from None
    try:
        return _rules(msgspec.convert(parsed, _File))
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at ")
        raise _unusable(path, text, place.strip("`") or "$", problem) from None
    except _WrongError as error:
        raise _unusable(path, text, error.path, f"must be {error.allowed}") from None


def _unusable(path: Path, text: str, place: str, problem: str) -> FileSettingError:
    """``place``: ``$.allow[2].operations[0]``, as msgspec names it."""
    named = place.removeprefix("$").removeprefix(".")
    unknown = re.search(r"unknown field `(.*?)`", problem)
    line = _line(text, named, unknown[1] if unknown else "")
    at = ", ".join([*([f"line {line}"] if line else []), *([named] if named else [])])
    return FileSettingError(
        SETTING, str(path), f"a file of rules without mistakes ({f'{at}: ' if at else ''}{problem})"
    )


def _line(text: str, named: str, unknown: str) -> int:
    """The line of a key, counted from 1; 0 if its table is not written with a header of its own."""
    found = re.match(r"(allow|deny)\[(\d+)\]\.?(\w*)", named)
    table, number, key = (
        (found[1], int(found[2]), found[3]) if found else ("", -1, re.split(r"[.\[]", named)[0])
    )
    header = re.compile(rf"\s*\[\[\s*{table}\s*\]\]") if table else None
    inside = header is None
    for count, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*\[", line) and (header is None or inside):
            break
        if header is not None and header.match(line):
            number -= 1
            inside = number < 0
            if inside and not (key or unknown):
                return count
        elif inside and re.match(rf"\s*[\"']?{re.escape(unknown or key)}[\"']?\s*=", line):
            return count
    return 0


def _rules(file: _File) -> Rules:
    """Raises _WrongError."""
    if len(file.allow) + len(file.deny) > RULES_MAX:
        raise _WrongError("", f"at most {RULES_MAX} rules")
    return Rules(
        [_rule(entry, f"allow[{number}]") for number, entry in enumerate(file.allow)],
        [_rule(entry, f"deny[{number}]") for number, entry in enumerate(file.deny)],
        [_template(text, f"brokers[{number}]") for number, text in enumerate(file.brokers)],
        [_principals(text, f"controllers[{number}]") for number, text in enumerate(file.controllers)],
    )


def _rule(entry: _Entry, path: str) -> Rule:
    operations: list[Any] = entry.operations
    return Rule(
        tuple(_principals(text, f"{path}.principals[{n}]") for n, text in enumerate(entry.principals)),
        frozenset() if ALL in operations else frozenset(map(Operation, operations)),
        tuple(_resource(text, f"{path}.resources[{n}]") for n, text in enumerate(entry.resources)),
        frozenset()
        if WILDCARD in entry.hosts
        else frozenset(_host(text, f"{path}.hosts[{n}]") for n, text in enumerate(entry.hosts)),
    )


def _principals(text: str, path: str) -> Names:
    if not text.startswith(_USER) or text == _USER:
        raise _WrongError(path, f"{_USER}NAME, {_USER}PREFIX* or {_USER}*, not {text!r}")
    return Names(text.removesuffix(WILDCARD), text.endswith(WILDCARD))


def _template(text: str, path: str) -> re.Pattern[str]:
    before, _, after = text.partition(_ID)
    if text.count(_ID) != 1 or not text.startswith(_USER):
        raise _WrongError(
            path, f"{_USER}NAME or {_USER}PREFIX* with {_ID} once in place of the broker's id, not {text!r}"
        )
    end = re.escape(after.removesuffix(WILDCARD)) + (".*" if after.endswith(WILDCARD) else "")
    # No digit may follow: broker-12 is no broker 1.
    return re.compile(rf"{re.escape(before)}(?P<id>0|[1-9][0-9]{{0,9}})(?![0-9]){end}", re.DOTALL)


def _resource(text: str, path: str) -> tuple[ResourceType, Names]:
    if text == "cluster":
        return ResourceType.CLUSTER, Names(CLUSTER.name, False)
    kind, _, name = text.partition(":")
    if kind not in _TYPES or not name:
        raise _WrongError(path, f"{_RESOURCES_ALLOWED}, not {text!r}")
    return _TYPES[kind], Names(name.removesuffix(WILDCARD), name.endswith(WILDCARD))


def _host(text: str, path: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise _WrongError(path, f"an IP address or {WILDCARD}, not {text!r}") from None
    return Principal("", peer_of(text, 0)).host
