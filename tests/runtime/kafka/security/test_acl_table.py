"""ACLs decide as Kafka's AclAuthorizer: against its rules written down once more, as directly as Python allows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.runtime.kafka.security.acl_table import (
    DENY_EVERYBODY,
    Acl,
    Acls,
    AclTable,
    Pattern,
    PatternType,
    read_acls,
    resource_type,
)
from proto.security.authorization import (
    CLUSTER,
    Operation,
    Principal,
    Resource,
    ResourceType,
    super_users,
    topic,
)

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE

#: An entry as its JSON has it: permission, principal, operation, host.
Entry = tuple[str, str, str, str]
#: ACLs by (resource type, pattern type, name), as AclAuthorizer's cache has them.
Cache = dict[tuple[str, str, str], list[Entry]]


def kafka_allows(
    cache: Cache, supers: set[str], everyone: bool, who: str, host: str, operation: str, kind: str, name: str
) -> bool:
    """AclAuthorizer.authorizeAction of Kafka 3.9, method by method."""
    matching: list[Entry] = []
    matching += cache.get((kind, "LITERAL", "*"), [])
    matching += cache.get((kind, "LITERAL", name), [])
    for (other_kind, pattern, prefix), acls in cache.items():
        if other_kind == kind and pattern == "PREFIXED" and name.startswith(prefix):
            matching += acls

    def exists(permission: str, wanted: str) -> bool:
        return any(
            p == permission and principal in (who, "User:*") and op in (wanted, "All") and h in (host, "*")
            for p, principal, op, h in matching
        )

    def allow_exists() -> bool:
        allowing = {
            "Describe": ["Describe", "Read", "Write", "Delete", "Alter"],
            "DescribeConfigs": ["DescribeConfigs", "AlterConfigs"],
        }.get(operation, [operation])
        return any(exists("Allow", op) for op in allowing)

    if who in supers:
        return True
    if not matching:
        return everyone
    return not exists("Deny", operation) and allow_exists()


def camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def data(*entries: Entry) -> bytes:
    acls = [
        {"permissionType": p, "principal": who, "operation": operation, "host": host}
        for p, who, operation, host in entries
    ]
    return json.dumps({"version": 1, "acls": acls}).encode()


def table(cache: Cache, supers: frozenset[str] = frozenset(), *, everyone: bool = False) -> AclTable:
    acls = {}
    for (kind, pattern, name), entries in cache.items():
        known = resource_type(kind)
        assert known is not None
        acls[Pattern(known, PatternType(pattern), name)] = read_acls(data(*entries))
    return AclTable(acls, supers, everyone_if_none_found=everyone)


users = st.sampled_from(["User:alice", "User:bob", "User:*", "Group:alice"])
hosts = st.sampled_from(["*", "10.0.0.1", "0:0:0:0:0:0:0:1"])
#: LOSE_DATA is ours.
KAFKAS = [operation for operation in Operation if operation is not Operation.LOSE_DATA]
operations = st.sampled_from([*(camel(operation.value) for operation in KAFKAS), "All"])
kinds = st.sampled_from(["Topic", "Group", "Cluster", "TransactionalId"])
entries = st.tuples(st.sampled_from(["Allow", "Deny"]), users, operations, hosts)
names = st.sampled_from(["*", "a", "ab", "abc", "abd", "b", "kafka-cluster"])
caches = st.dictionaries(
    st.tuples(kinds, st.sampled_from(["LITERAL", "PREFIXED"]), names),
    st.lists(entries, max_size=4),
    max_size=6,
)


ASKING = [
    (Principal(user, peer), operation)
    for user in ("alice", "*", "carol")
    for peer in ("ipv4:10.0.0.1:5", "ipv4:10.0.0.2:5", "ipv6:%5B::1%5D:5")
    for operation in KAFKAS
]


@given(caches, st.sets(users, max_size=1), st.booleans(), names)
def test_decisions_are_kafka_s(cache: Cache, supers: set[str], everyone: bool, name: str) -> None:
    """Everybody asks for everything: on a name that an ACL may be about, and on those of the ACLs."""
    decides = table(cache, frozenset(supers), everyone=everyone)
    for kind, asked in {("Topic", name), *((kind, other) for kind, _, other in cache)}:
        known = resource_type(kind)
        assert known is not None
        for principal, operation in ASKING:
            expected = kafka_allows(
                cache, supers, everyone, str(principal), principal.host, camel(operation.value), kind, asked
            )
            assert decides.allowed(principal, operation, Resource(known, asked)) == expected


ALICE, BOB = Principal("alice", "ipv4:10.0.0.1:5"), Principal("bob", "ipv4:10.0.0.1:5")


def test_without_acls_only_super_users_may_anything() -> None:
    supers = super_users(" User:alice ; User:CN=b,OU=x;")
    assert supers == {"User:alice", "User:CN=b,OU=x"}
    empty = AclTable({}, supers)
    assert empty.allowed(ALICE, Operation.CLUSTER_ACTION, CLUSTER)
    assert not empty.allowed(BOB, Operation.CLUSTER_ACTION, CLUSTER)
    assert AclTable({}, everyone_if_none_found=True).allowed(BOB, READ, topic("t"))


def test_every_prefix_of_a_name_counts_up_to_the_whole_of_it() -> None:
    acls = table(
        {
            ("Topic", "PREFIXED", "a"): [("Allow", "User:alice", "All", "*")],
            ("Topic", "PREFIXED", "ab"): [("Deny", "User:alice", "Read", "*")],
        }
    )
    assert [acls.allowed(ALICE, READ, topic(name)) for name in ("a", "ac", "ab", "abc", "b")] == [
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("text", ["alice", "User:", ":alice", "User:a;b"])
def test_super_users_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="principals separated by semicolons"):
        super_users(text)


def test_long_names_cost_no_more_than_there_are_prefixes() -> None:
    acls = table({("Topic", "PREFIXED", "a" * n): [("Deny", "User:bob", "All", "*")] for n in range(1, 50)})
    for _ in range(200):
        assert not acls.allowed(BOB, READ, topic("a" * 100_000))


def one(entry: dict[str, Any]) -> Acls:
    return read_acls(json.dumps({"version": 1, "acls": [entry]}).encode())


GOOD = {"principal": "User:alice", "permissionType": "Deny", "operation": "Read", "host": "*"}


@pytest.mark.parametrize(
    ("spelled", "operation"),
    [("Read", READ), ("READ", READ), ("read", READ), ("DescribeConfigs", Operation.DESCRIBE_CONFIGS),
     ("describe_configs", Operation.DESCRIBE_CONFIGS), ("All", None), ("ALL", None)],
)  # fmt: skip
def test_spellings_that_kafka_reads(spelled: str, operation: Operation | None) -> None:
    assert one({**GOOD, "operation": spelled}) == Acls((Acl(False, "User:alice", operation, None),))


@pytest.mark.parametrize(
    ("change", "meaning"),
    [
        ({"operation": "Raed"}, Acl(False, "User:alice", None, None)),
        ({"operation": 3}, Acl(False, "User:alice", None, None)),
        ({"principal": "alice"}, Acl(False, None, READ, None)),
        ({"principal": None}, Acl(False, None, READ, None)),
        ({"host": 7}, Acl(False, "User:alice", READ, None)),
        ({"host": ["*"], "principal": "x", "operation": ""}, DENY_EVERYBODY),
        ({"permissionType": "Denny"}, Acl(False, "User:alice", READ, None)),
        ({"permissionType": None, "host": "10.0.0.1"}, Acl(False, "User:alice", READ, "10.0.0.1")),
        ({"permissionType": "Allow", "operation": "Raed"}, None),
        ({"permissionType": "Allow", "host": None}, None),
    ],
)
def test_an_unreadable_entry_opens_no_door_and_closes_no_more_than_it_may_mean(
    change: dict[str, Any], meaning: Acl | None
) -> None:
    found = one({**GOOD, **change})
    assert found.entries == (() if meaning is None else (meaning,))
    assert len(found.problems) == 1
    for field in change:
        if change[field] not in ("Allow", "10.0.0.1"):
            assert field in found.problems[0]


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b"null", b'{"acls":[]}', b'{"version":2,"acls":[]}', b'{"version":true,"acls":[]}',
     b'{"version":1}', b'{"version":1,"acls":{}}', b'{"version":1,"acls":[7]}', b"\xff", b"[" * 100_000],
)  # fmt: skip
def test_an_unreadable_znode_denies_its_names_only(content: bytes) -> None:
    found = read_acls(content)
    assert found.entries == (DENY_EVERYBODY,)
    assert len(found.problems) == 1
    kind = ResourceType.TOPIC
    everything = read_acls(data(("Allow", "User:*", "All", "*")))
    acls = AclTable(
        {
            Pattern(kind, PatternType.LITERAL, "*"): everything,
            Pattern(kind, PatternType.LITERAL, "broken"): found,
        },
        frozenset({"User:alice"}),
    )
    assert not acls.allowed(BOB, READ, topic("broken"))
    assert acls.allowed(ALICE, READ, topic("broken"))
    assert acls.allowed(BOB, READ, topic("whole"))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from(["version", "acls", *GOOD]), inner, max_size=5), max_leaves=20))  # fmt: skip
def test_no_content_raises(content: Any) -> None:
    read_acls(json.dumps(content).encode())


def test_an_empty_znode_has_no_acls() -> None:
    assert read_acls(b"") == Acls(())
    assert read_acls(data()) == Acls(())


def test_who_may_alter_may_lose_data() -> None:
    """Kafka has no right of its own for it: its controller elects uncleanly for who has ALTER."""
    cluster = Pattern(ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER.name)
    acls = AclTable({cluster: read_acls(data(("Allow", "User:alice", "Alter", "*")))})
    for name, may in (("alice", True), ("bob", False)):
        assert acls.allowed(Principal(name, ""), Operation.LOSE_DATA, CLUSTER) is may
