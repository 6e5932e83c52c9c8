"""The whole cluster in one read, and the ACLs of a whole tree: on the ensemble in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from controller.core import znode_paths as z
from controller.core.cluster.quarantine import Quarantine
from controller.core.model import Broker, Endpoint, LeaderAndIsr
from controller.core.model.brokers import Forgotten, StopApproval
from controller.core.model.maintenance import Attribution, Maintenance
from controller.errors import ControllerError
from controller.runtime.kafka import cluster_facts
from controller.runtime.kafka.cluster_check import Answers
from controller.runtime.kafka.registrations import kafka_brokers
from controller.runtime.zookeeper import acl_migration, cluster_reader, codecs, jute, single_codecs
from controller.runtime.zookeeper.cluster_reader import ClusterState, ControllerInfo, PartitionInfo
from controller.runtime.zookeeper.session import AccessError, Session
from controller.runtime.zookeeper.single_codecs import RESIGNATION, Resignation
from tests.provers.sim.environment import loop
from tests.provers.sim.zookeeper.ensemble import Ensemble
from tests.provers.sim.zookeeper.hands import Hands
from tests.provers.sim.zookeeper.network import Network
from tests.provers.sim.zookeeper.session import sessions_on
from tests.support.runtime.sessions import opened

CHROOT = "/test"
CONNECT = f"one:1{CHROOT}"
BROKER = (
    b'{"version":5,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":["GRPC://h:9092"],'
    b'"listener_security_protocol_map":{"GRPC":"PLAINTEXT"},"features":{}}'
)
TOPIC = b'{"version":3,"topic_id":"","partitions":{"1":[2,1],"0":[1,2]},"adding_replicas":{},"removing_replicas":{}}'
STATE = LeaderAndIsr(1, 4, (1, 2), 0, 9)
MAINTENANCE = Maintenance(drained={2: Attribution("why", "who")})
APPROVALS = {2: StopApproval(8, "why", "who", 9)}
FORGOTTEN = {7: Forgotten("why", "who", 9)}
RESIGNED = Resignation("why", "who", 9)
ZNODES: Mapping[str, bytes] = {
    z.CONTROLLER: codecs.encode_controller(100, "h:1"),
    z.CONTROLLER_EPOCH: b"9",
    f"{z.CONTROLLER_IDS}/100": codecs.encode_standby(100, "h:1", "h:2"),
    f"{z.CONTROLLER_IDS}/101": codecs.encode_standby(101, "h:3", "h:4"),
    z.broker_path("1"): BROKER,
    z.broker_path("2"): BROKER,
    z.FEATURE: codecs.encode_feature({"metadata.version": 3}),
    z.topic_path("foo"): TOPIC,
    z.topic_path("bar"): TOPIC,
    z.state_path("foo", 0): codecs.encode_state(STATE),
    z.deletion_path("gone"): b"",
    z.deletion_path("bar"): b"",
    z.topic_config_path("foo"): codecs.encode_config({"min.insync.replicas": "2"}),
    z.BROKER_DEFAULTS: codecs.encode_config({"min.insync.replicas": "3"}),
    z.MAINTENANCE: single_codecs.encode(z.MAINTENANCE, MAINTENANCE),
    z.APPROVALS: single_codecs.encode(z.APPROVALS, APPROVALS),
    z.FORGOTTEN: single_codecs.encode(z.FORGOTTEN, FORGOTTEN),
    RESIGNATION: single_codecs.encode(RESIGNATION, RESIGNED),
}


def reading(znodes: Mapping[str, bytes], read: Callable[[Session], Awaitable[Any]]) -> Any:
    """What ``read`` makes of these znodes."""

    async def run() -> Any:
        network = Network(Ensemble())
        with sessions_on(network):
            async with opened(CONNECT) as (session, _):
                zk = Hands(network, CHROOT)
                for path, data in znodes.items():
                    zk.create(path, data, makepath=True)
                return await read(session)

    return loop.run(run())


def looked(znodes: Mapping[str, bytes], **what: Any) -> ClusterState:
    found = reading(znodes, lambda session: cluster_reader.look(session, **what))
    assert isinstance(found, ClusterState)
    return found


def test_where_nothing_is_there_is_no_cluster() -> None:
    found = looked({})
    assert found == ClusterState()
    assert found.empty


@pytest.mark.parametrize(
    "path",
    [z.CONTROLLER, z.CONTROLLER_EPOCH, f"{z.CONTROLLER_IDS}/100", z.broker_path("1"), z.topic_path("foo")],
)
def test_any_trace_of_a_cluster_is_one(path: str) -> None:
    assert not looked({path: ZNODES[path]}).empty


def test_everything_is_read_at_once() -> None:
    found = looked(ZNODES, configs=True)
    endpoints = (Endpoint("GRPC", "PLAINTEXT", "h", 9092),)
    assert (found.controller_id, found.controller_endpoint, found.controller_epoch) == (100, "h:1", 9)
    assert found.controllers == [
        ControllerInfo(100, "h:1", "h:2", True),
        ControllerInfo(101, "h:3", "h:4", False),
    ]
    assert {id_: broker.endpoints for id_, broker in found.brokers.items()} == {1: endpoints, 2: endpoints}
    assert found.brokers[1].epoch < found.brokers[2].epoch
    assert {f.name: f.max for f in found.feature.features} == {"metadata.version": 3}  # type: ignore[union-attr]
    assert list(found.topics) == ["bar", "foo"]
    assert found.topics["foo"].version == 0
    assert found.topics["foo"].czxid < found.topics["bar"].czxid
    assert found.partitions == [
        PartitionInfo("bar", 0, (1, 2), None),
        PartitionInfo("bar", 1, (2, 1), None),
        PartitionInfo("foo", 0, (1, 2), STATE),
        PartitionInfo("foo", 1, (2, 1), None),
    ]
    assert [found.is_led(p) for p in found.partitions] == [False, False, True, False]
    assert [p.spare_in_sync(1) for p in found.partitions] == [None, None, 1, None]
    assert found.deleting == ["bar", "gone"]
    assert (found.maintenance, found.approvals, found.forgotten) == (MAINTENANCE, APPROVALS, FORGOTTEN)
    assert (found.resignation, found.quarantine) == (RESIGNED, Quarantine())
    assert found.configs == {"foo": {"min.insync.replicas": "2"}}
    assert (found.min_isr("foo"), found.min_isr("bar")) == (2, 3)
    assert (found.problems, found.gone) == ({}, [])


def test_what_may_not_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(session: Session) -> ClusterState:
        bulk_get = session.bulk_get

        async def refused(paths: list[str]) -> list[jute.Node | int]:
            found = await bulk_get(paths)
            return [
                jute.NO_AUTH if path == z.topic_path("bar") else node
                for path, node in zip(paths, found, strict=True)
            ]

        monkeypatch.setattr(session, "bulk_get", refused)
        return await cluster_reader.look(session)

    found = reading(ZNODES, look)
    assert found.problems == {z.topic_path("bar"): single_codecs.NOT_PERMITTED}
    assert list(found.topics) == ["foo"]


def test_only_what_is_asked_for_is_read() -> None:
    found = looked(ZNODES, topics=["foo", "never"], states=False)
    assert (list(found.topics), found.partitions) == (["foo"], [])
    assert (found.configs, found.broker_defaults, found.problems) == ({}, {}, {})


@pytest.mark.parametrize("path", sorted(set(ZNODES) - {z.deletion_path("gone"), z.deletion_path("bar")}))
def test_one_znode_that_does_not_decode_is_named_and_hides_no_other(path: str) -> None:
    whole, found = looked(ZNODES, configs=True), looked({**ZNODES, path: b"garbage"}, configs=True)
    assert list(found.problems) == [path]
    hidden = {
        z.CONTROLLER: "controller_id",
        z.CONTROLLER_EPOCH: "controller_epoch",
        z.FEATURE: "feature",
        z.MAINTENANCE: "maintenance",
        z.APPROVALS: "approvals",
        z.FORGOTTEN: "forgotten",
        RESIGNATION: "resignation",
        z.BROKER_DEFAULTS: "broker_defaults",
    }
    if field := hidden.get(path):
        assert getattr(found, field) == getattr(ClusterState(), field)
    listed = [
        [*s.topics, *s.configs, *s.brokers, *(c.controller_id for c in s.controllers)] for s in (whole, found)
    ]
    alone = (z.topic_path("bar"), z.topic_config_path("foo"), *(p for p in ZNODES if "/ids/" in p))
    # A topic that is not known has no settings either.
    lost = 2 if path == z.topic_path("foo") else int(path in alone)
    assert len(listed[1]) == len(listed[0]) - lost
    assert found.deleting == whole.deleting


def test_one_that_never_decoded_does_not_end_the_list_of_those_registered() -> None:
    ours = codecs.encode_own_registration((Endpoint("GRPC", "PLAINTEXT", "h", 1),), None)
    found = looked({z.broker_path("0"): ours, z.broker_path("1"): BROKER})
    assert (list(found.brokers), found.problems) == ([1], {})
    junk = {f"{z.CONTROLLER_IDS}/{name}": b"" for name in ("²", "9" * 5000)}
    candidates = reading({**ZNODES, **junk}, cluster_reader.candidates)
    assert candidates == [100, 101]
    controllers = reading(ZNODES, cluster_reader.controllers)
    assert [c.controller_id for c in controllers] == [100, 101]


def test_of_kafka_brokers_one_that_does_not_decode_hides_no_other() -> None:
    kafka = b'{"version":4,"endpoints":["A://h:1"],"listener_security_protocol_map":{"A":"SSL"},"host":"h","port":1}'
    registered = {z.broker_path(str(n)): b"garbage" if n == 1 else kafka for n in range(3)}
    found = reading(registered, lambda session: kafka_brokers(session, lambda *_: None))
    assert [broker.id for broker in found] == [0, 2]


def test_brokers_that_have_replicas_and_are_not_there_are_gone() -> None:
    assert looked({z.topic_path("foo"): TOPIC, z.broker_path("2"): BROKER}).gone == [1]


def test_what_is_to_be_checked_before_a_takeover_is_counted() -> None:
    moving = (
        b'{"version":3,"topic_id":"","partitions":{"0":[1,2],"1":[1,2]},"adding_replicas":{"0":[2]},'
        b'"removing_replicas":{"1":[2]}}'
    )
    led_by_two = LeaderAndIsr(2, 4, (1, 2), 0, 9)
    znodes = {**ZNODES, z.topic_path("bar"): moving, z.state_path("bar", 0): codecs.encode_state(led_by_two)}
    znodes |= {z.state_path("bar", 1): codecs.encode_state(LeaderAndIsr(-1, 4, (2,), 0, 9))}
    znodes[z.FEATURE] = (
        b'{"version":1,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'
    )
    facts = reading(znodes, cluster_facts.read)
    assert facts.features == {"f": 3}
    assert [known.broker.id for known in facts.brokers] == [1, 2]
    assert (facts.controller_id, facts.controller_ours, facts.controller_epoch) == (100, True, 9)
    assert (facts.topics, facts.partitions, facts.without_topic_id) == (2, 4, 2)
    assert (facts.reassigning, facts.not_preferred, facts.deleting) == (2, 1, ["bar", "gone"])
    assert (facts.our_ids, facts.replica_ids) == ({100, 101}, {1, 2})

    async def ask(broker: Broker) -> Answers:
        if broker.id == 1:
            raise ControllerError("it is away")
        return Answers({}, None)

    asked = loop.run(cluster_facts.ask_all(facts, ask))
    assert [(b.unreachable, b.answers) for b in asked.brokers] == [
        ("it is away", None),
        ("", Answers({}, None)),
    ]


# --- the ACLs of a tree --------------------------------------------------------------------------------------


def tree(count: int) -> list[str]:
    return [f"{z.TOPICS}/t{n}/partitions/0/state" for n in range(count)]


def test_each_znode_below_is_given_its_acl_once_and_what_is_refused_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acl_migration, "WINDOW", 3)
    given: list[str] = []

    async def migrate(session: Session) -> acl_migration.Migrated:
        async def give_acl(path: str) -> None:
            if path == f"{z.TOPICS}/t3/partitions":
                raise AccessError
            given.append(path)

        monkeypatch.setattr(session, "give_acl", give_acl)
        return await acl_migration.migrate(session)

    done = reading(dict.fromkeys(tree(8), b""), migrate)
    below = [path for path in given if path.startswith(f"{z.TOPICS}/")]
    assert sorted(below) == sorted(
        {path.rsplit("/", up)[0] if up else path for path in tree(8) for up in range(4)}
        - {f"{z.TOPICS}/t3/partitions"}
    )
    assert (done.changed, done.failures, done.failed) == (len(given), 1, [f"{z.TOPICS}/t3/partitions"])


def test_what_is_below_a_root_that_is_refused_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    async def migrate(session: Session) -> acl_migration.Migrated:
        async def give_acl(path: str) -> None:
            if path == z.BROKERS:
                raise AccessError
            given.append(path)

        monkeypatch.setattr(session, "give_acl", give_acl)
        return await acl_migration.migrate(session)

    done = reading(dict.fromkeys(tree(2), b""), migrate)
    assert done.failed == [z.BROKERS]
    assert not [path for path in given if path.startswith(f"{z.BROKERS}/")]
