"""What the check of a cluster finds, each rule alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kazoo.client import KazooClient

from controller.core.model import Broker, Endpoint, FeatureRange
from controller.runtime.kafka import cluster_facts
from controller.runtime.kafka.cluster_check import (
    CONTROLLER_ID_MAX,
    Answers,
    BrokerFacts,
    Check,
    ClusterFacts,
    Finding,
    Level,
    Wanted,
    can_be_led,
    changes,
    judge,
    protocol_version,
    release,
)
from controller.runtime.kafka.endpoints import Listeners
from controller.runtime.zookeeper.session import Session
from proto.gen.kafka.describe_configs_request import DescribeConfigsRequest
from proto.gen.kafka.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from proto.kafka.apis import ApiKey

#: What a broker of 3.9 answers, as far as it matters: by API key.
APIS_39 = {1: (0, 17), 2: (0, 9), 4: (0, 7), 48: (0, 1), 56: (0, 3), 60: (0, 1), 66: (0, 1), 67: (0, 0)}
CONFIGS: Mapping[str, str] = {"inter.broker.protocol.version": "3.9-IV0", "reserved.broker.max.id": "1000"}
WANTED = Wanted(9001)


def broker(
    id_: int = 1,
    *,
    listeners: Mapping[str, str] = {"PLAINTEXT": "PLAINTEXT"},
    rack: str | None = None,
    features: tuple[FeatureRange, ...] = (),
    apis: Mapping[int, tuple[int, int]] = APIS_39,
    configs: Mapping[str, str] = {},
    registration: int = 5,
) -> BrokerFacts:
    endpoints = tuple(Endpoint(name, kind, f"b{id_}", 9092) for name, kind in listeners.items())
    return BrokerFacts(
        Broker(id_, 100 + id_, endpoints, rack, features, registration), Answers(apis, {**CONFIGS, **configs})
    )


def cluster(*brokers: BrokerFacts, **facts: Any) -> ClusterFacts:
    return ClusterFacts(brokers or (broker(1), broker(2), broker(3)), **{"controller_id": 1, **facts})


def found(facts: ClusterFacts, check: Check, wanted: Wanted = WANTED) -> list[tuple[Level, int]]:
    """Level and broker of this check's findings, without those that are as they should be."""
    return [(f.level, f.broker) for f in judge(facts, wanted) if f.check is check and f.level is not Level.OK]


def test_an_ordinary_cluster_can_be_led() -> None:
    findings = judge(cluster(), WANTED)
    assert can_be_led(findings)
    assert {finding.level for finding in findings} == {Level.OK}
    assert [f.text for f in findings if f.check is Check.VERSION] == ["Kafka 3.9"] * 3


def test_one_blocker_is_enough() -> None:
    found = [Finding(Level.OK, Check.RACKS, -1, ""), Finding(Level.BLOCKER, Check.RACKS, -1, "")]
    assert not can_be_led(found)
    assert not can_be_led(found[::-1])
    assert can_be_led([Finding(Level.WARNING, Check.RACKS, -1, "")])


@pytest.mark.parametrize(
    ("apis", "expected"),
    [
        (APIS_39, "3.9"),
        ({**APIS_39, 1: (0, 16), 66: (0, 1)}, "3.8"),
        ({**APIS_39, 1: (0, 16), 66: (0, 0)}, "3.7"),
        ({1: (0, 15), 2: (0, 8), 4: (0, 7)}, "3.6"),
        ({1: (0, 13), 2: (0, 7), 4: (0, 6), 56: (0, 2)}, "3.3"),
        ({1: (0, 12), 4: (0, 5), 56: (0, 0), 60: (0, 0)}, "2.8"),
        ({1: (0, 11), 4: (0, 4), 48: (0, 0)}, "2.6"),
        ({1: (0, 11), 4: (0, 4)}, ""),
    ],
)
def test_release_by_api_versions(apis: Mapping[int, tuple[int, int]], expected: str) -> None:
    assert release(apis) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3.9-IV0", (3, 9)),
        ("2.8", (2, 8)),
        ("3.10-IV2", (3, 10)),
        ("", None),
        ("3", None),
        ("a.b", None),
        ("٣.٩", None),
    ],
)
def test_protocol_versions(text: str, expected: tuple[int, int] | None) -> None:
    assert protocol_version(text) == expected


def test_versions() -> None:
    old = broker(2, apis={1: (0, 11), 4: (0, 4)})
    raft = broker(3, apis={key: found for key, found in APIS_39.items() if key != 4})
    assert found(cluster(broker(1), old, raft), Check.VERSION) == [(Level.BLOCKER, 2), (Level.BLOCKER, 3)]
    before_3 = broker(2, apis={1: (0, 12), 4: (0, 5), 56: (0, 0), 60: (0, 0)})
    assert found(cluster(broker(1), before_3), Check.VERSION) == [(Level.NOTE, 2)]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("3.9-IV0", []),
        ("3.0-IV1", []),
        ("2.8-IV1", [(Level.NOTE, 1)]),
        ("2.6-IV0", [(Level.NOTE, 1)]),
        ("2.5-IV0", [(Level.BLOCKER, 1)]),
    ],
)
def test_inter_broker_protocol(version: str, expected: list[tuple[Level, int]]) -> None:
    facts = cluster(broker(1, configs={"inter.broker.protocol.version": version}))
    assert found(facts, Check.PROTOCOL) == expected


@pytest.mark.parametrize(
    ("version", "what"),
    [("2.6-IV0", "write ISRs"), ("2.7-IV2", "take producer ids"), ("2.8-IV1", "take producer ids")],
)
def test_what_brokers_of_an_older_protocol_do_themselves(version: str, what: str) -> None:
    facts = cluster(broker(1, configs={"inter.broker.protocol.version": version}))
    (finding,) = (f for f in judge(facts, WANTED) if f.check is Check.PROTOCOL)
    assert what in finding.text


def test_brokers_of_different_protocol_versions() -> None:
    facts = cluster(broker(1), broker(2, configs={"inter.broker.protocol.version": "3.3-IV3"}))
    assert found(facts, Check.PROTOCOL) == [(Level.WARNING, -1)]


def test_brokers_that_do_not_answer() -> None:
    silent = broker(2, registration=4)._replace(answers=None, unreachable="b2:9092: refused")
    secretive = broker(3)._replace(answers=Answers(APIS_39, None))
    facts = cluster(broker(1), silent, secretive)
    assert found(facts, Check.BROKERS) == [(Level.WARNING, 2), (Level.WARNING, 3)]
    assert "b2:9092: refused" in next(f.text for f in judge(facts, WANTED) if f.broker == 2)
    # The format of its registration tells that its protocol version may be too old.
    assert found(facts, Check.PROTOCOL) == [(Level.WARNING, 2)]
    assert found(ClusterFacts(()), Check.BROKERS) == [(Level.BLOCKER, -1)]
    assert found(cluster(unreadable={"/brokers/ids/7": "x"}), Check.BROKERS) == [(Level.BLOCKER, -1)]


SECURED = {"CLIENT": "SASL_SSL", "REPLICATION": "SSL"}


@pytest.mark.parametrize(
    ("name", "protocol", "configs", "blocked"),
    [
        ("", "PLAINTEXT", {}, True),
        ("", "SSL", {}, False),
        ("REPLICATION", "SSL", {}, False),
        ("CLIENT", "SSL", {}, True),
        ("INTERNAL", "SSL", {}, True),
        ("", "SSL", {"inter.broker.listener.name": "REPLICATION"}, False),
        ("", "SASL_SSL", {"inter.broker.listener.name": "REPLICATION"}, True),
        ("", "SSL", {"security.inter.broker.protocol": "SSL"}, True),
        (
            "REPLICATION",
            "SSL",
            {"inter.broker.listener.name": "REPLICATION", "security.inter.broker.protocol": "PLAINTEXT"},
            False,
        ),
    ],
)
def test_listeners(name: str, protocol: str, configs: Mapping[str, str], blocked: bool) -> None:
    wanted = Wanted(9001, Listeners(name, "", protocol))
    facts = cluster(broker(1, listeners=SECURED, configs=configs))
    assert ((Level.BLOCKER, 1) in found(facts, Check.LISTENERS, wanted)) is blocked


def test_two_listeners_of_one_protocol() -> None:
    """Ours would be the first one, which is not the one on which the brokers look for their controller."""
    both = {"EXTERNAL": "PLAINTEXT", "INTERNAL": "PLAINTEXT"}
    facts = cluster(broker(1, listeners=both, configs={"inter.broker.listener.name": "INTERNAL"}))
    assert (Level.BLOCKER, 1) in found(facts, Check.LISTENERS)
    listeners = Listeners("INTERNAL", "", "PLAINTEXT")
    (unseen,) = (f for f in judge(facts, Wanted(9001, listeners)) if f.level is Level.WARNING)
    assert unseen.text.startswith("administrators' tools on EXTERNAL will not find")
    assert not found(facts, Check.LISTENERS, Wanted(9001, listeners, frozenset({"EXTERNAL"})))


def test_listeners_that_differ_and_brokers_of_ours() -> None:
    more = broker(2, listeners={"PLAINTEXT": "PLAINTEXT", "OTHER": "PLAINTEXT"})
    # That the brokers differ, and that tools on OTHER do not find the controller.
    assert found(cluster(broker(1), more), Check.LISTENERS) == [(Level.WARNING, -1)] * 2
    ours = broker(2, listeners={"GRPC": "PLAINTEXT", "CLIENTS": "PLAINTEXT"})
    assert found(cluster(broker(1), ours), Check.LISTENERS) == [(Level.NOTE, -1)]
    assert not found(cluster(ours), Check.LISTENERS), "tools find controllers of such brokers by gRPC"
    # As many, but others.
    pair = [broker(n, listeners={"PLAINTEXT": "PLAINTEXT", f"OF_{n}": "PLAINTEXT"}) for n in (1, 2)]
    wanted = WANTED._replace(addresses=frozenset({"", "OF_1", "OF_2"}))
    assert found(cluster(*pair), Check.LISTENERS, wanted) == [(Level.WARNING, -1)]


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        ("", "", []),
        ("CONTROL", "CONTROL", []),
        ("CONTROL", "", [(Level.BLOCKER, 1)]),
        ("CONTROL", "OTHER", [(Level.BLOCKER, 1)]),
        ("", "OTHER", [(Level.BLOCKER, 1)]),
    ],
)
def test_control_plane(theirs: str, ours: str, expected: list[tuple[Level, int]]) -> None:
    facts = cluster(
        broker(
            1,
            listeners={"PLAINTEXT": "PLAINTEXT", "CONTROL": "PLAINTEXT"},
            configs={"control.plane.listener.name": theirs} if theirs else {},
        )
    )
    assert (
        found(facts, Check.CONTROL_PLANE, Wanted(9001, Listeners("PLAINTEXT", ours, "PLAINTEXT"))) == expected
    )


@pytest.mark.parametrize("facts", [{"kraft_epoch": 7}, {"kraft_epoch": 0}, {"migration": True}])
def test_migration_in_zookeeper(facts: Mapping[str, Any]) -> None:
    assert found(cluster(**facts), Check.MIGRATION) == [(Level.BLOCKER, -1)]


def test_no_sign_of_a_migration_is_said_only_where_there_is_none() -> None:
    enabled = broker(1, configs={"zookeeper.metadata.migration.enable": "true"})
    for facts, fine in (
        (cluster(), True),
        (cluster(kraft_epoch=0), False),
        (cluster(migration=True), False),
        (cluster(enabled), False),
    ):
        said = [f.level for f in judge(facts, WANTED) if f.check is Check.MIGRATION]
        assert (Level.OK in said) is fine


def test_without_brokers_the_controller_s_id_is_above_kafka_s_default() -> None:
    nobody = ClusterFacts([], controller_id=-1)
    assert found(nobody, Check.CONTROLLER_ID, Wanted(1000)) == [(Level.BLOCKER, -1)]
    assert found(nobody, Check.CONTROLLER_ID, Wanted(1001)) == []
    (text,) = (f.text for f in judge(nobody, Wanted(7)) if f.check is Check.CONTROLLER_ID)
    assert "above reserved.broker.max.id (1000)" in text


@pytest.mark.slow
async def test_what_zookeeper_knows_is_read(session: Session, zk: KazooClient) -> None:
    data = b'{"version":5,"host":"h","port":9,"endpoints":["PLAINTEXT://h:9"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}}'
    for id_ in (10, 9, 2):
        zk.create(f"/brokers/ids/{id_}", data, makepath=True)
    zk.ensure_path("/brokers/topics")
    zk.create(
        "/brokers/topics/t",
        b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[2,9],"1":[9,2]},'
        b'"adding_replicas":{"1":[10]},"removing_replicas":{}}',
    )
    zk.create("/brokers/topics/u", b'{"version":1,"partitions":{"0":[10,77]}}')
    for path, leader in (("t/partitions/0", 2), ("t/partitions/1", 2), ("u/partitions/0", -1)):
        state = b'{"controller_epoch":1,"leader":%d,"version":1,"leader_epoch":0,"isr":[2]}' % leader
        zk.create(f"/brokers/topics/{path}/state", state, makepath=True)
    zk.create("/controller", b'{"version":2,"brokerid":9,"timestamp":"1","kraftControllerEpoch":-1}')
    zk.create("/controller_epoch", b"5")
    facts = await cluster_facts.read(session)
    assert [known.broker.id for known in facts.brokers] == [2, 9, 10]
    assert (facts.controller_id, facts.controller_ours, facts.controller_epoch) == (9, False, 5)
    assert (facts.topics, facts.partitions, facts.without_topic_id) == (2, 3, 1)
    assert facts.replica_ids == {2, 9, 10, 77}
    assert (facts.reassigning, facts.not_preferred, facts.unreadable) == (1, 1, {})


def test_migration_of_one_broker() -> None:
    facts = cluster(broker(1), broker(2, configs={"zookeeper.metadata.migration.enable": "true"}))
    assert found(facts, Check.MIGRATION) == [(Level.BLOCKER, 2)]


def test_features() -> None:
    able = broker(1, features=(FeatureRange("f", 2, 2),))
    facts = cluster(able, broker(2, features=(FeatureRange("f", 1, 1),)), features={"f": 2})
    assert found(facts, Check.FEATURES) == [(Level.NOTE, -1), (Level.BLOCKER, 2)]


@pytest.mark.parametrize(
    ("id_", "blocked"),
    [
        (1, True),
        (999, True),
        (1000, True),
        (1001, False),
        (7000, True),
        (9001, False),
        (CONTROLLER_ID_MAX, False),
        (CONTROLLER_ID_MAX + 1, True),
        (2**31 - 2, True),
    ],
)
def test_controller_id(id_: int, blocked: bool) -> None:
    facts = cluster(replica_ids=frozenset({1, 7000}))
    assert bool(found(facts, Check.CONTROLLER_ID, Wanted(id_))) is blocked


def test_the_suggested_controller_id_is_free() -> None:
    facts = cluster(replica_ids=frozenset({1, 7000}))
    (finding,) = (f for f in judge(facts, Wanted(1)) if f.check is Check.CONTROLLER_ID)
    assert finding.text.endswith("such as 7001")
    assert not found(facts, Check.CONTROLLER_ID, Wanted(7001))
    raised = cluster(broker(1, configs={"reserved.broker.max.id": "20000"}))
    assert found(raised, Check.CONTROLLER_ID) == [(Level.BLOCKER, -1)]


def test_a_broker_s_own_id_is_said_to_be_one() -> None:
    facts = cluster(broker(1), broker(5000))
    (finding,) = (f for f in judge(facts, Wanted(5000)) if f.check is Check.CONTROLLER_ID)
    assert (finding.level, finding.text) == (
        Level.BLOCKER,
        "5000 is a broker's: set controller_id, such as 5001",
    )


def test_of_brokers_that_reserve_different_ids_the_most_counts() -> None:
    facts = cluster(broker(1), broker(2, configs={"reserved.broker.max.id": "20000"}))
    assert found(facts, Check.CONTROLLER_ID) == [(Level.BLOCKER, -1)]
    assert not found(facts, Check.CONTROLLER_ID, Wanted(20001))


def test_an_id_of_ours_in_assignments_is_ours() -> None:
    facts = cluster(replica_ids=frozenset({1, 9001}), our_ids=frozenset({9001}))
    assert not found(facts, Check.CONTROLLER_ID)


def test_racks() -> None:
    assert not found(cluster(broker(1, rack="a"), broker(2, rack="b")), Check.RACKS)
    assert found(cluster(broker(1, rack="a"), broker(2)), Check.RACKS) == [(Level.WARNING, -1)]


@pytest.mark.parametrize(
    ("name", "authorizer", "expected"),
    [
        ("", False, []),
        ("kafka.security.authorizer.AclAuthorizer", False, [(Level.BLOCKER, 1)]),
        ("kafka.security.authorizer.AclAuthorizer", True, [(Level.NOTE, 1)]),
        ("com.example.Mine", True, [(Level.WARNING, 1)]),
        ("com.example.MyAuthorizer", False, [(Level.WARNING, 1)]),
    ],
)
def test_authorizer(name: str, authorizer: bool, expected: list[tuple[Level, int]]) -> None:
    facts = cluster(broker(1, configs={"authorizer.class.name": name}))
    assert found(facts, Check.AUTHORIZER, Wanted(9001, authorizer=authorizer)) == expected


def test_zookeeper_acls() -> None:
    facts = cluster(broker(1, configs={"zookeeper.set.acl": "true"}))
    assert found(facts, Check.ZOOKEEPER_ACL) == [(Level.WARNING, 1)]


def test_the_present_controller() -> None:
    assert found(cluster(controller_id=-1), Check.CONTROLLER) == [(Level.NOTE, -1)]
    assert found(cluster(controller_id=9001, controller_ours=True), Check.CONTROLLER) == [(Level.NOTE, -1)]


def test_changes_name_what_is_pending() -> None:
    calm = [change.what for change in changes(cluster(controller_epoch=7), WANTED)]
    assert calm == [
        "/controller",
        "/controller_epoch",
        "/controllers/ids",
        "live brokers in clients' metadata",
    ]
    busy = changes(cluster(without_topic_id=1, deleting=["a"], reassigning=2, not_preferred=3), WANTED)
    assert [change.now for change in busy][4:] == ["1", "1 topic", "2 partitions", "3"]
    old = cluster(broker(1), broker(2, registration=4), without_topic_id=1)
    assert len(changes(old, WANTED)) == len(calm)
    (epoch,) = (c for c in changes(cluster(controller_epoch=7), WANTED) if c.what == "/controller_epoch")
    assert (epoch.now, epoch.then) == ("7", "8")
    assert "persistent" in changes(cluster(), Wanted(9001, exclusive=True))[0].then


@pytest.mark.parametrize(
    ("setting", "about"),
    [
        ("create.topic.policy.class.name", "CreateTopics"),
        ("alter.config.policy.class.name", "changes of configurations"),
    ],
)
def test_policies_in_brokers_are_named(setting: str, about: str) -> None:
    assert found(cluster(), Check.POLICIES) == []
    facts = cluster(broker(1), broker(2, configs={setting: "com.example.Policy"}))
    assert found(facts, Check.POLICIES) == [(Level.WARNING, 2)]
    (text,) = (each.text for each in judge(facts, WANTED) if each.check is Check.POLICIES)
    assert "com.example.Policy" in text
    assert about in text


async def test_configurations_are_asked_for_in_the_newest_version_that_both_speak() -> None:
    asked = list[int]()

    class Connected:
        versions: Mapping[int, range] = {}

        async def request(self, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
            asked.append(version)
            told = [DescribeConfigsResourceResult("a", "1"), DescribeConfigsResourceResult("secret", None)]
            names = [each.resource_name for each in request.resources]
            return DescribeConfigsResponse(
                results=[DescribeConfigsResult(0, None, 4, name, told) for name in names]
            )

    connected: Any = Connected()
    for spoken, version in (
        (range(1, 3), [2]),
        (range(99), [DescribeConfigsRequest.VERSIONS[-1]]),
        (range(0), []),
    ):
        connected.versions = {ApiKey.DESCRIBE_CONFIGS: spoken}
        told = await cluster_facts._configs(connected, 1)
        assert (told, asked) == ({"a": "1"} if version else None, version)
        asked.clear()
