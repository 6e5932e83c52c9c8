"""A file of rules: what it allows, and what is said of its mistakes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proto.security.authorization import (
    CLUSTER,
    Operation,
    Principal,
    Resource,
    ResourceType,
    group,
    is_allowed,
    is_controller,
    speaks_for,
    topic,
)
from proto.security.files import FileSettingError
from proto.security.rules import RULES_MAX, RuleAuthorizer, rules_in_file

RULES = """
brokers = ["User:CN=broker-{id},O=x", "User:b{id}*"]
controllers = ["User:CN=controller-*"]

[[allow]]
principals = ["User:alice", "User:ops-*"]
operations = ["ALTER", "CREATE"]
resources = ["cluster", "topic:orders", "topic:logs-*"]

[[allow]]
principals = ["User:*"]
operations = ["READ"]
resources = ["topic:public", "group:*"]
hosts = ["10.0.0.7", "::1"]

[[allow]]
principals = ["User:root"]
operations = ["ALL"]
resources = ["cluster", "topic:*", "group:*"]

[[deny]]
principals = ["User:ops-evil", "User:CN=broker-9,O=x"]
operations = ["ALL"]
resources = ["cluster"]
"""
PEER, INSIDE = "ipv4:192.0.2.1:5", "ipv4:10.0.0.7:5"


#: Kafka's ``AclOperation`` and ``ResourceType``, without those that stand for several or for none, and LOSE_DATA.
OPERATIONS = """
ALTER ALTER_CONFIGS CLUSTER_ACTION CREATE CREATE_TOKENS DELETE DESCRIBE DESCRIBE_CONFIGS DESCRIBE_TOKENS
IDEMPOTENT_WRITE LOSE_DATA READ WRITE
"""
RESOURCE_TYPES = "CLUSTER DELEGATION_TOKEN GROUP TOPIC TRANSACTIONAL_ID USER"


@pytest.mark.parametrize(("names", "members"), [(OPERATIONS, Operation), (RESOURCE_TYPES, ResourceType)])
def test_operations_and_resources_have_kafkas_names(
    names: str, members: type[Operation] | type[ResourceType]
) -> None:
    assert sorted(one.value for one in members) == names.split()
    assert [one.name for one in members] == [one.value for one in members]


def authorizer(tmp_path: Path, text: str, supers: frozenset[str] = frozenset()) -> RuleAuthorizer:
    file = tmp_path / "authorizer.toml"
    file.write_text(text)
    return RuleAuthorizer(rules_in_file(file), supers)


@pytest.mark.parametrize(
    ("name", "peer", "operation", "resource", "allowed"),
    [
        ("alice", PEER, Operation.ALTER, CLUSTER, True),
        ("alice", PEER, Operation.DESCRIBE, CLUSTER, True),  # implied by ALTER
        ("alice", PEER, Operation.LOSE_DATA, CLUSTER, False),
        ("alice", PEER, Operation.CLUSTER_ACTION, CLUSTER, False),
        ("alice", PEER, Operation.ALTER, topic("orders"), True),
        ("alice", PEER, Operation.ALTER, topic("orders2"), False),
        ("alice", PEER, Operation.ALTER, topic("logs-1"), True),
        ("alice", PEER, Operation.DELETE, topic("orders"), False),
        ("alice", PEER, Operation.ALTER, group("orders"), False),
        ("alice2", PEER, Operation.ALTER, CLUSTER, False),
        ("ops-1", PEER, Operation.ALTER, CLUSTER, True),
        ("ops-evil", PEER, Operation.ALTER, CLUSTER, False),
        ("ops-evil", PEER, Operation.ALTER, topic("orders"), True),
        ("ANONYMOUS", PEER, Operation.READ, topic("public"), False),
        ("ANONYMOUS", INSIDE, Operation.READ, topic("public"), True),
        ("ANONYMOUS", "ipv6:%5B::1%5D:1", Operation.READ, topic("public"), True),
        ("ANONYMOUS", INSIDE, Operation.DESCRIBE, group("any"), True),
        ("ANONYMOUS", INSIDE, Operation.WRITE, topic("public"), False),
        ("root", PEER, Operation.LOSE_DATA, CLUSTER, True),
        ("root", PEER, Operation.WRITE, topic("any"), True),
        ("root", PEER, Operation.DESCRIBE, Resource(ResourceType.USER, "any"), False),
        ("CN=broker-1,O=x", PEER, Operation.CLUSTER_ACTION, CLUSTER, True),
        ("CN=broker-1,O=x", PEER, Operation.ALTER, CLUSTER, False),
        ("CN=broker-9,O=x", PEER, Operation.CLUSTER_ACTION, CLUSTER, False),
        ("CN=controller-1", PEER, Operation.CLUSTER_ACTION, CLUSTER, True),
        ("CN=broker-01,O=x", PEER, Operation.CLUSTER_ACTION, CLUSTER, False),
    ],
)  # fmt: skip
def test_who_may_what(
    name: str, peer: str, operation: Operation, resource: Resource, allowed: bool, tmp_path: Path
) -> None:
    assert authorizer(tmp_path, RULES).allowed(Principal(name, peer), operation, resource) is allowed


FINE = """
brokers = ["User:broker-{id}"]
allow = [
    {principals = ["User:a*b"], operations = ["ALL"], resources = ["cluster", "topic:t"]},
    {principals = ["User:inside"], operations = ["READ"], resources = ["topic:t"], hosts = ["10.0.0.7"]},
]
deny = [{principals = ["User:a*b"], operations = ["READ"], resources = ["topic:t"]}]
"""


@pytest.mark.parametrize(
    ("name", "peer", "operation", "resource", "allowed"),
    [
        # A star within a name is a character of it.
        ("a*b", PEER, Operation.ALTER, CLUSTER, True),
        ("a*bc", PEER, Operation.ALTER, CLUSTER, False),
        # What READ implies where it is allowed is not denied with it.
        ("a*b", PEER, Operation.READ, topic("t"), False),
        ("a*b", PEER, Operation.DESCRIBE, topic("t"), True),
        # A caller without an address is at no host.
        ("inside", INSIDE, Operation.READ, topic("t"), True),
        ("inside", "unix:", Operation.READ, topic("t"), False),
        ("inside", "ipv6:%5B::ffff:10.0.0.7%5D:1", Operation.READ, topic("t"), True),
        # A broker acts on the cluster, and on no topic of its name.
        ("broker-1", PEER, Operation.CLUSTER_ACTION, CLUSTER, True),
        ("broker-1", PEER, Operation.CLUSTER_ACTION, topic(CLUSTER.name), False),
    ],
)  # fmt: skip
def test_who_may_what_at_the_edges_of_rules(
    name: str, peer: str, operation: Operation, resource: Resource, allowed: bool, tmp_path: Path
) -> None:
    assert authorizer(tmp_path, FINE).allowed(Principal(name, peer), operation, resource) is allowed


class Failing:
    """An authorizer with a bug."""

    def allowed(self, *asked: object) -> bool:
        raise KeyError(asked)

    speaks_for = is_controller = allowed


def test_an_authorizer_that_raises_denies() -> None:
    asked = Principal("root", PEER)
    assert not is_allowed(Failing(), asked, Operation.DESCRIBE, CLUSTER)
    assert not speaks_for(Failing(), asked, 1)
    assert not is_controller(Failing(), asked)


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("CN=broker-1,O=x", [1]),
        ("CN=broker-12,O=x", [12]),
        ("CN=broker-1,O=y", []),
        ("CN=broker-,O=x", []),
        ("CN=broker--1,O=x", []),
        ("b1-rack7", [1]),
        ("b12", [12]),
        ("b012", []),
        ("b12345678901", []),
        ("CN=controller-1", []),
        ("ANONYMOUS", []),
    ],
)
def test_a_broker_speaks_for_itself_only(name: str, ids: list[int], tmp_path: Path) -> None:
    rules = authorizer(tmp_path, RULES)
    asked = range(-1, 30)
    assert [id_ for id_ in asked if rules.speaks_for(Principal(name, PEER), id_)] == ids


def test_who_is_a_controller(tmp_path: Path) -> None:
    rules = authorizer(tmp_path, RULES, frozenset({"User:admin"}))
    who = ("CN=controller-1", "CN=broker-1,O=x", "admin", "ANONYMOUS")
    assert [rules.is_controller(Principal(name, PEER)) for name in who] == [True, False, True, False]


def test_super_users_may_all_and_without_rules_nobody_else(tmp_path: Path) -> None:
    for rules in (
        RuleAuthorizer(None, frozenset({"User:a"})),
        authorizer(tmp_path, "", frozenset({"User:a"})),
    ):
        for name, may in (("a", True), ("b", False)):
            asked = Principal(name, PEER)
            assert rules.allowed(asked, Operation.LOSE_DATA, CLUSTER) is may
            assert rules.speaks_for(asked, 3) is may


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[allow]\n", "TOML"),
        ("\nallowed = 1\n", "line 2: .*unknown field `allowed`"),
        (RULES + "host = ['10.0.0.1']\n", "line 25, deny.0.: .*unknown field `host`"),
        (RULES.replace('"CREATE"', '"MAKE"'), r"line 7, allow.0..operations.1.: .*'MAKE'"),
        (RULES.replace('"topic:orders"', '"topic:"'), r"line 8, allow.0..resources.1.: .*not 'topic:'"),
        (RULES.replace('"topic:orders"', '"orders"'), "not 'orders'"),
        (RULES.replace('"User:root"', '"root"'), r"line 17, allow.2..principals.0.: .*not 'root'"),
        (RULES.replace('"User:root"', '"User:"'), "not 'User:'"),
        (RULES.replace('"::1"', '"server"'), r"line 14, allow.1..hosts.1.: .*an IP address"),
        (RULES.replace("b{id}*", "b*"), r"line 2, brokers.1.: .*\{id\} once"),
        (RULES.replace("b{id}*", "b{id}{id}"), r"\{id\} once"),
        ("controllers = ['CN=x']\n", "line 1, controllers.0."),
        ("[[allow]]\nprincipals = ['User:a']\noperations = []\nresources = ['cluster']\n", "line 3"),
        ("[[allow]]\nprincipals = ['User:a']\n", "line 1, allow.0.: .*missing required field"),
        (
            "[[deny]]\nprincipals = []\noperations = ['ALL']\nresources = ['cluster']\n" * (RULES_MAX + 1),
            "line 2",
        ),
        ("allow = 1\n", "line 1, allow"),
    ],
)
def test_mistakes_are_named_with_line_and_key(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(FileSettingError, match=says) as refused:
        authorizer(tmp_path, text)
    assert refused.value.key == "authorizer_file"


def test_too_many_rules(tmp_path: Path) -> None:
    rule = "[[deny]]\nprincipals = ['User:a']\noperations = ['ALL']\nresources = ['cluster']\n"
    authorizer(tmp_path, rule * RULES_MAX)
    with pytest.raises(FileSettingError, match=f"at most {RULES_MAX} rules"):
        authorizer(tmp_path, rule * (RULES_MAX + 1))


def test_a_change_counts_at_once_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    rules, file, alice = authorizer(tmp_path, RULES), tmp_path / "authorizer.toml", Principal("alice", PEER)

    def may() -> bool:
        return rules.allowed(alice, Operation.ALTER, CLUSTER)

    def write(text: str, at_s: int) -> None:
        file.write_text(text)
        os.utime(file, (at_s, at_s))

    assert may()
    write("[[allow]]\nwrong = 1\n", 1)
    assert may()
    write("", 2)
    assert not may()
    file.unlink()
    assert not may()
    write(RULES, 3)
    assert may()
