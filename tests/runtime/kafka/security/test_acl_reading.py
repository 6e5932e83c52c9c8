"""How ACLs are read and watched, on a session that answers as it is told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.core.znode_paths import ACLS
from controller.runtime.kafka.security import acls
from controller.runtime.kafka.security.acl_table import DENY_EVERYBODY, Acls, Pattern, PatternType
from controller.runtime.kafka.security.acls import AclAuthorizer
from controller.runtime.zookeeper import jute
from controller.runtime.zookeeper.session import NoNodeError, Stat
from proto.security.authorization import ResourceType

TOPIC = f"{ACLS}/Topic"
PATTERN = Pattern(ResourceType.TOPIC, PatternType.LITERAL, "t")


class Answers:
    """``made``: paths that somebody makes just after it was said that they are not there."""

    def __init__(self, children: dict[str, list[str]], *made: str) -> None:
        self._children, self._coming = children, set(made)
        self.read: list[str] = []

    async def children(self, path: str, _watch: object = None) -> list[str]:
        if path in self._coming or path not in self._children:
            raise NoNodeError
        return self._children[path]

    async def exists(self, path: str, _watch: object = None) -> Stat | None:
        self._coming.discard(path)
        return Stat(0, 1, 0) if path in self._children else None

    async def bulk_get(self, paths: list[str]) -> list[jute.Node | int]:
        self.read += paths
        return [jute.NO_AUTH if path.endswith("/hidden") else jute.NO_NODE for path in paths]


async def test_a_parent_that_is_made_while_it_is_looked_for_is_looked_into() -> None:
    session: Any = Answers({"/changes": ["a"]}, "/changes")
    assert await acls._watch(session, "/changes", lambda _kind, _path: None) == ["a"]
    assert await acls._watch(session, "/absent", lambda _kind, _path: None) == []


async def test_folders_are_read_under_kafkas_names_and_what_cannot_be_read_denies() -> None:
    session: Any = Answers(
        {ACLS: ["TOPIC", "Topic", "Other"], f"{ACLS}/TOPIC": ["a"], TOPIC: ["t", "hidden"]}
    )
    with capture_logs() as logs:
        found = await acls._read_all(session)
    assert session.read == [f"{TOPIC}/t", f"{TOPIC}/hidden"]
    assert {(pattern.name, read.entries) for pattern, read in found.items()} == {
        ("t", ()),
        ("hidden", (DENY_EVERYBODY,)),
    }
    assert [entry["path"] for entry in logs] == [f"{ACLS}/Other", f"{ACLS}/TOPIC"]


async def test_what_is_wrong_with_an_acl_is_logged_once() -> None:
    authorizer = AclAuthorizer(frozenset())
    authorizer._found = {PATTERN: Acls((DENY_EVERYBODY,), ("acls: must be a list",))}
    with capture_logs() as logs:
        authorizer._decide()
        authorizer._decide()
        authorizer._found = {PATTERN: Acls((DENY_EVERYBODY,), ("another",))}
        authorizer._decide()
    assert [(entry["path"], entry["why"]) for entry in logs] == [
        (f"{TOPIC}/t", "acls: must be a list"),
        (f"{TOPIC}/t", "another"),
    ]


async def test_what_is_announced_during_a_look_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    authorizer, session = AclAuthorizer(frozenset()), SimpleNamespace(over=False)
    looks: list[object] = []

    async def look(of: object) -> None:
        looks.append(of)
        authorizer._note("child", "/changes")
        session.over = len(looks) == 2

    monkeypatch.setattr(acls, "PAUSE_S", 0)
    monkeypatch.setattr(authorizer, "_look", look)
    following: Any = session
    await asyncio.wait_for(authorizer.follow(following), 10)
    assert looks == [session] * 2
