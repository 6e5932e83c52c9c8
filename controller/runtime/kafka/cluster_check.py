"""Can this cluster of Kafka brokers be led by a controller of ours? Judged from what was read; pure, nothing is asked.

What each check goes by: brokers' registrations and ``/controller`` (ZooKeeper), ApiVersions and DescribeConfigs (each
broker that answers). Kafka's classes: ``kafka.server.KafkaConfig``, ``kafka.zk.ZkData``, ``ApiMessageType``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from controller.core.model import Broker, ControlProtocol
from controller.core.names import counted, first_few
from controller.core.znode_paths import (
    BROKER_IDS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    CONTROLLER_IDS,
    DELETE_TOPICS,
)
from controller.runtime.kafka.endpoints import Listeners, brokers_endpoint
from controller.runtime.kafka.listeners import own_endpoints

#: Written by KRaft controllers while a cluster migrates (KIP-866).
MIGRATION = "/migration"
#: The oldest inter.broker.protocol.version that can be led.
PROTOCOL_MIN = (2, 6)
#: From this one on, leaders change ISRs by AlterPartition (AlterIsr), not in ZooKeeper.
PROTOCOL_ALTER_PARTITION = (2, 7)
#: From this one on, the controller gives out producer ids.
PROTOCOL_PRODUCER_IDS = (3, 0)
#: Kafka's default of reserved.broker.max.id.
RESERVED_ID_MAX = 1000
#: Java clients number connections to coordinators downwards from 2^31 - 1: an id must stay far below.
CONTROLLER_ID_MAX = 1_000_000_000
#: Brokers or racks named in one finding; the rest is counted.
_NAMED_MAX = 10

_FETCH, _LIST_OFFSETS, _LIST_TRANSACTIONS = 1, 2, 66
_LEADER_AND_ISR, _ALTER_PARTITION, _DESCRIBE_CLUSTER, _PRODUCER_IDS = 4, 56, 60, 67
_DESCRIBE_QUOTAS = 48
#: The newest release first: a broker that takes this version of this API is of the release, or a newer one.
_RELEASES: Sequence[tuple[str, int, int]] = (
    ("3.9", _FETCH, 17),
    ("3.8", _LIST_TRANSACTIONS, 1),
    ("3.7", _FETCH, 16),
    ("3.6", _LIST_OFFSETS, 8),
    ("3.5", _FETCH, 15),
    ("3.4", _LEADER_AND_ISR, 7),
    ("3.3", _ALTER_PARTITION, 2),
    ("3.2", _LEADER_AND_ISR, 6),
    ("3.1", _FETCH, 13),
    ("3.0", _PRODUCER_IDS, 0),
    ("2.8", _DESCRIBE_CLUSTER, 0),
    ("2.7", _ALTER_PARTITION, 0),
    ("2.6", _DESCRIBE_QUOTAS, 0),
)


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    BLOCKER = "blocker"


class Check(StrEnum):
    BROKERS = "brokers"
    VERSION = "version"
    PROTOCOL = "inter.broker.protocol.version"
    LISTENERS = "listeners"
    CONTROL_PLANE = "control plane"
    MIGRATION = "migration"
    FEATURES = "features"
    CONTROLLER_ID = "controller id"
    RACKS = "racks"
    AUTHORIZER = "authorizer"
    ZOOKEEPER_ACL = "zookeeper.set.acl"
    POLICIES = "policies"
    CONTROLLER = "controller"
    TOPICS = "topics"


class Finding(NamedTuple):
    """``broker``: whom it concerns; -1: the cluster."""

    level: Level
    check: Check
    broker: int
    text: str


class Change(NamedTuple):
    """What a takeover changes in ZooKeeper, or for whom."""

    what: str
    now: str
    then: str


class Answers(NamedTuple):
    """What a broker said. ``apis``: least and greatest version by API key; ``configs``: effective values by name;
    None: it would not tell."""

    apis: Mapping[int, tuple[int, int]]
    configs: Mapping[str, str] | None


class BrokerFacts(NamedTuple):
    """A registered broker. ``answers`` None: not asked or no answer, then ``unreachable`` says why."""

    broker: Broker
    answers: Answers | None = None
    unreachable: str = ""

    def config(self, name: str) -> str | None:
        """The effective value; None: not known, or not set."""
        configs = self.answers.configs if self.answers is not None else None
        return None if configs is None else configs.get(name)

    @property
    def protocol(self) -> tuple[int, int] | None:
        """inter.broker.protocol.version, such as (3, 9); None: not known."""
        return protocol_version(self.config("inter.broker.protocol.version") or "")


class ClusterFacts(NamedTuple):
    """What ZooKeeper says. ``controller_id`` -1: there is none; ``kraft_epoch``: of ``/controller``, -1: no KRaft
    controller; ``controller_ours``: one of ours wrote it; ``replica_ids``: all that assignments name; ``unreadable``:
    problems by path."""

    brokers: Sequence[BrokerFacts]
    controller_id: int = -1
    controller_ours: bool = False
    kraft_epoch: int = -1
    migration: bool = False
    controller_epoch: int = -1
    our_ids: frozenset[int] = frozenset()
    replica_ids: frozenset[int] = frozenset()
    features: Mapping[str, int] = {}
    topics: int = 0
    partitions: int = 0
    without_topic_id: int = 0
    deleting: Sequence[str] = ()
    reassigning: int = 0
    not_preferred: int = 0
    unreadable: Mapping[str, str] = {}


class Wanted(NamedTuple):
    """The settings of the controller that would lead. ``addresses``: names of listeners in ``kafka_listen``."""

    controller_id: int
    listeners: Listeners = Listeners("", "", "PLAINTEXT")
    addresses: frozenset[str] = frozenset({""})
    exclusive: bool = False
    authorizer: bool = False


def protocol_version(text: str) -> tuple[int, int] | None:
    """Major and minor number of a version such as ``3.9-IV0``; None: not one."""
    numbers = text.split("-")[0].split(".")[:2]
    if len(numbers) != 2 or not all(n.isascii() and n.isdigit() and len(n) < 6 for n in numbers):
        return None
    return int(numbers[0]), int(numbers[1])


def release(apis: Mapping[int, tuple[int, int]]) -> str:
    """The release that a broker's ApiVersions tell: the newest whose mark it has; empty: older than 2.6."""
    for name, key, version in _RELEASES:
        if key in apis and apis[key][1] >= version:
            return name
    return ""


def can_be_led(findings: Sequence[Finding]) -> bool:
    return all(finding.level is not Level.BLOCKER for finding in findings)


def judge(facts: ClusterFacts, wanted: Wanted) -> list[Finding]:
    """All findings, in the order of ``Check``."""
    found = [
        *_brokers(facts),
        *_versions(facts),
        *_protocols(facts),
        *_listeners(facts, wanted),
        *_control_plane(facts, wanted),
        *_migration(facts),
        *_features(facts),
        *_controller_id(facts, wanted),
        *_racks(facts),
        *_authorizer(facts, wanted),
        *_zookeeper_acl(facts),
        *_policies(facts),
        *_controller(facts),
        *_topics(facts),
    ]
    order = list(Check)
    return sorted(found, key=lambda finding: (order.index(finding.check), finding.broker))


def _brokers(facts: ClusterFacts) -> Iterator[Finding]:
    if not facts.brokers:
        yield Finding(Level.BLOCKER, Check.BROKERS, -1, "no broker is registered: nothing can be judged")
    for known in facts.brokers:
        if known.answers is None:
            text = f"was not asked, only ZooKeeper was read: {known.unreachable or 'no connection was tried'}"
            yield Finding(Level.WARNING, Check.BROKERS, known.broker.id, text)
        elif known.answers.configs is None:
            text = "does not tell its configuration (DescribeConfigs on Cluster is not allowed to us)"
            yield Finding(Level.WARNING, Check.BROKERS, known.broker.id, text)
    for path, problem in sorted(facts.unreadable.items()):
        yield Finding(Level.BLOCKER, Check.BROKERS, -1, f"{path} cannot be read: {problem}")


def _versions(facts: ClusterFacts) -> Iterator[Finding]:
    for known in facts.brokers:
        if known.answers is None:
            continue
        name = release(known.answers.apis)
        if not name:
            text = "older than 2.6: its requests and ours are not tested together"
            yield Finding(Level.BLOCKER, Check.VERSION, known.broker.id, text)
        elif _LEADER_AND_ISR not in known.answers.apis:
            text = "takes no LeaderAndIsr: it is not in ZooKeeper mode"
            yield Finding(Level.BLOCKER, Check.VERSION, known.broker.id, text)
        else:
            yield Finding(Level.OK, Check.VERSION, known.broker.id, f"Kafka {name}")
            if _PRODUCER_IDS not in known.answers.apis:
                text = f"older than 3.0: we are registered under {BROKER_IDS} too, where it looks for its controller"
                yield Finding(Level.NOTE, Check.VERSION, known.broker.id, text)


def _protocols(facts: ClusterFacts) -> Iterator[Finding]:
    check = Check.PROTOCOL
    for known in facts.brokers:
        version = known.protocol
        if version is None:
            # Registrations of version 5 are written from 2.7 on.
            if known.broker.registration < 5:
                number = known.broker.registration
                text = f"registration of version {number}: below 2.7, perhaps too old; must be at least 2.6"
                yield Finding(Level.WARNING, check, known.broker.id, text)
            continue
        shown = f"{version[0]}.{version[1]}"
        if version < PROTOCOL_MIN:
            yield Finding(Level.BLOCKER, check, known.broker.id, f"{shown}: must be at least 2.6")
        elif version < PROTOCOL_ALTER_PARTITION:
            text = f"{shown}: leaders write ISRs to ZooKeeper themselves, which the controller only follows"
            yield Finding(Level.NOTE, check, known.broker.id, text)
        elif version < PROTOCOL_PRODUCER_IDS:
            yield Finding(
                Level.NOTE, check, known.broker.id, f"{shown}: brokers take producer ids themselves"
            )
        else:
            yield Finding(Level.OK, check, known.broker.id, shown)
    versions = sorted({known.protocol for known in facts.brokers if known.protocol is not None})
    if len(versions) > 1:
        shown = ", ".join(f"{major}.{minor}" for major, minor in versions)
        yield Finding(Level.WARNING, check, -1, f"brokers differ ({shown}): finish the upgrade first")


def _listeners(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    for known in facts.brokers:
        level, text = _inter_broker_listener(known, wanted.listeners)
        yield Finding(level, Check.LISTENERS, known.broker.id, text)
    kinds = {known.broker.control_protocol for known in facts.brokers}
    if len(kinds) > 1:
        text = (
            "Kafka brokers and brokers led by gRPC: no partition can have replicas on both, such are refused"
        )
        yield Finding(Level.NOTE, Check.LISTENERS, -1, text)
    elif len({tuple(e.listener for e in known.broker.endpoints) for known in facts.brokers}) > 1:
        text = (
            "brokers do not have the same listeners: clients on a listener that a leader lacks do not find it"
        )
        yield Finding(Level.WARNING, Check.LISTENERS, -1, text)
    if unseen := sorted(_unseen(facts, wanted)):
        text = (
            f"administrators' tools on {', '.join(unseen)} will not find their controller: give it an address there"
            " in kafka_listen, or use the brokers' own listener"
        )
        yield Finding(Level.WARNING, Check.LISTENERS, -1, text)


def _unseen(facts: ClusterFacts, wanted: Wanted) -> set[str]:
    """Names of the listeners of Kafka's brokers under which this controller will not be listed."""
    brokers = [k.broker for k in facts.brokers if k.broker.control_protocol is ControlProtocol.KAFKA]
    listed = own_endpoints(brokers, wanted.listeners, dict.fromkeys(wanted.addresses, ("", 0)))
    return {e.listener for broker in brokers for e in broker.endpoints} - {e.listener for e in listed}


def _inter_broker_listener(known: BrokerFacts, listeners: Listeners) -> tuple[Level, str]:
    endpoints = known.broker.endpoints
    if any(endpoint.listener == "GRPC" for endpoint in endpoints):
        return Level.OK, "GRPC: led by gRPC, not by Kafka's protocol"
    listed = "it has " + ", ".join(f"{e.listener} ({e.security_protocol})" for e in endpoints)
    ours = brokers_endpoint(known.broker, listeners)
    # Without a name, Kafka takes the listener that is named like the protocol.
    theirs = (
        known.config("inter.broker.listener.name") or known.config("security.inter.broker.protocol") or ""
    )
    if ours is None:
        what = listeners.inter_broker or f"for {listeners.security_protocol}"
        hint = "set kafka_inter_broker_listener_name and kafka_security_protocol"
        return Level.BLOCKER, f"no listener {what}; {listed}: {hint}"
    if theirs and ours.listener != theirs.upper():
        return (
            Level.BLOCKER,
            f"brokers talk on {theirs}, not on {ours.listener}: set kafka_inter_broker_listener_name",
        )
    if ours.security_protocol != listeners.security_protocol:
        takes = f"{ours.listener} takes {ours.security_protocol}"
        return Level.BLOCKER, f"{takes}, not {listeners.security_protocol}: set kafka_security_protocol"
    return Level.OK, f"brokers talk on {ours.listener}; {listed}"


def _control_plane(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    for known in facts.brokers:
        theirs = (known.config("control.plane.listener.name") or "").upper()
        if known.config("inter.broker.protocol.version") is None and not wanted.listeners.control_plane:
            continue
        ours = wanted.listeners.control_plane.upper()
        has = any(endpoint.listener == ours for endpoint in known.broker.endpoints)
        if theirs and theirs != ours:
            text = f"its control plane is {theirs}: set kafka_control_plane_listener_name to it"
            yield Finding(Level.BLOCKER, Check.CONTROL_PLANE, known.broker.id, text)
        elif ours and not has:
            text = f"has no listener {ours}, which kafka_control_plane_listener_name names"
            yield Finding(Level.BLOCKER, Check.CONTROL_PLANE, known.broker.id, text)
        elif ours:
            yield Finding(Level.OK, Check.CONTROL_PLANE, known.broker.id, ours)


def _migration(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.kraft_epoch >= 0:
        text = f"a KRaft controller (epoch {facts.kraft_epoch}) holds {CONTROLLER}: it is never claimed over"
        yield Finding(Level.BLOCKER, Check.MIGRATION, -1, text)
    if facts.migration:
        text = f"{MIGRATION} exists: a migration to KRaft has begun; finish it, or roll it back and delete the znode"
        yield Finding(Level.BLOCKER, Check.MIGRATION, -1, text)
    enabled = [
        known.broker.id
        for known in facts.brokers
        if (known.config("zookeeper.metadata.migration.enable") or "").lower() == "true"
    ]
    for id_ in enabled:
        text = "zookeeper.metadata.migration.enable = true: it expects a KRaft quorum; must be false"
        yield Finding(Level.BLOCKER, Check.MIGRATION, id_, text)
    if facts.kraft_epoch < 0 and not facts.migration and not enabled:
        yield Finding(Level.OK, Check.MIGRATION, -1, "no sign of a migration to KRaft")


def _features(facts: ClusterFacts) -> Iterator[Finding]:
    for name, level in sorted(facts.features.items()):
        yield Finding(Level.NOTE, Check.FEATURES, -1, f"{name} is finalized at {level}; it is kept")
        for known in facts.brokers:
            if not any(f.name == name and f.min <= level <= f.max for f in known.broker.features):
                text = f"does not support {name} at {level}: a controller leaves it out"
                yield Finding(Level.BLOCKER, Check.FEATURES, known.broker.id, text)


def _controller_id(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    id_, check = wanted.controller_id, Check.CONTROLLER_ID
    reserved = max((_number(known.config("reserved.broker.max.id")) for known in facts.brokers), default=0)
    highest = max((known.broker.id for known in facts.brokers), default=0)
    lowest = max(reserved or RESERVED_ID_MAX, *facts.replica_ids, highest) + 1
    if any(known.broker.id == id_ for known in facts.brokers):
        yield Finding(Level.BLOCKER, check, -1, f"{id_} is a broker's: set controller_id, such as {lowest}")
    elif id_ in facts.replica_ids and id_ not in facts.our_ids:
        text = f"{id_} is an offline broker's, assignments name it: set controller_id, such as {lowest}"
        yield Finding(Level.BLOCKER, check, -1, text)
    elif not (reserved or RESERVED_ID_MAX) < id_ <= CONTROLLER_ID_MAX:
        text = (
            f"{id_}: must be above reserved.broker.max.id ({reserved or RESERVED_ID_MAX}), so that no broker gets it, "
            f"and at most {CONTROLLER_ID_MAX}: set controller_id, such as {lowest}"
        )
        yield Finding(Level.BLOCKER, check, -1, text)
    else:
        yield Finding(Level.OK, check, -1, f"{id_} is free")


def _racks(facts: ClusterFacts) -> Iterator[Finding]:
    without = [known.broker.id for known in facts.brokers if known.broker.rack is None]
    if without and len(without) < len(facts.brokers):
        named = first_few(without, _NAMED_MAX)
        text = f"brokers {named} have none, others do: Kafka refuses to place topics, also internal ones"
        yield Finding(Level.WARNING, Check.RACKS, -1, text)
    elif facts.brokers:
        racks = sorted({known.broker.rack for known in facts.brokers if known.broker.rack is not None})
        yield Finding(
            Level.OK,
            Check.RACKS,
            -1,
            f"racks {first_few(racks, _NAMED_MAX)}" if racks else "no broker has a rack",
        )


def _authorizer(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    for known in facts.brokers:
        name = known.config("authorizer.class.name") or ""
        if name.endswith((".AclAuthorizer", ".SimpleAclAuthorizer")):
            if wanted.authorizer:
                text = f"{name}: our principal needs ClusterAction on Cluster, or super.users must name it"
                yield Finding(Level.NOTE, Check.AUTHORIZER, known.broker.id, text)
            else:
                text = f"{name}, but we would let everybody change everything: set kafka_authorizer to acl"
                yield Finding(Level.BLOCKER, Check.AUTHORIZER, known.broker.id, text)
        elif name:
            text = f"{name} is not Kafka's own: requests to us are judged by /kafka-acl and kafka_super_users alone"
            yield Finding(Level.WARNING, Check.AUTHORIZER, known.broker.id, text)
        elif known.answers is not None and known.answers.configs is not None:
            yield Finding(Level.OK, Check.AUTHORIZER, known.broker.id, "none")


def _zookeeper_acl(facts: ClusterFacts) -> Iterator[Finding]:
    for known in facts.brokers:
        if (known.config("zookeeper.set.acl") or "").lower() == "true":
            text = "znodes belong to the brokers' identity in ZooKeeper: we must log in with the same one"
            yield Finding(Level.WARNING, Check.ZOOKEEPER_ACL, known.broker.id, text)


#: Classes in brokers' JVMs that judge requests, and which of them they will not judge.
_POLICIES = {
    "create.topic.policy.class.name": "CreateTopics and CreatePartitions, which the controller carries out",
    "alter.config.policy.class.name": "changes of configurations by pctl; brokers apply it to all others",
}


def _policies(facts: ClusterFacts) -> Iterator[Finding]:
    for known in facts.brokers:
        for setting, what in _POLICIES.items():
            if name := known.config(setting):
                text = f"{setting} = {name} is not applied to {what}"
                yield Finding(Level.WARNING, Check.POLICIES, known.broker.id, text)


def _controller(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.controller_id < 0:
        yield Finding(Level.NOTE, Check.CONTROLLER, -1, "nobody is controller now")
    elif facts.controller_ours:
        yield Finding(
            Level.NOTE, Check.CONTROLLER, -1, f"{facts.controller_id} of ours is controller already"
        )
    else:
        yield Finding(Level.OK, Check.CONTROLLER, -1, f"broker {facts.controller_id} is controller now")


def _topics(facts: ClusterFacts) -> Iterator[Finding]:
    text = f"{counted(facts.topics, 'topic')}, {counted(facts.partitions, 'partition')}"
    yield Finding(Level.OK, Check.TOPICS, -1, text)


def changes(facts: ClusterFacts, wanted: Wanted) -> list[Change]:
    """What a takeover with these settings would change, in the order in which it happens."""
    kind = (
        "persistent: brokers never elect" if wanted.exclusive else "ephemeral: brokers elect when we are gone"
    )
    holder = f"broker {facts.controller_id}" if facts.controller_id >= 0 else "nobody"
    found = [
        Change(CONTROLLER, holder, f"{wanted.controller_id}, {kind}"),
        Change(CONTROLLER_EPOCH, str(facts.controller_epoch), str(facts.controller_epoch + 1)),
        Change(CONTROLLER_IDS, "ours or absent", "our registrations"),
        Change(
            "live brokers in clients' metadata", str(len(facts.brokers)), f"one more: {wanted.controller_id}"
        ),
    ]
    if facts.without_topic_id and all(known.broker.knows_topic_ids for known in facts.brokers):
        found.append(Change("topics without an id", str(facts.without_topic_id), "0: each gets one"))
    if facts.deleting:
        found.append(Change(DELETE_TOPICS, counted(len(facts.deleting), "topic"), "their deletion goes on"))
    if facts.reassigning:
        found.append(Change("reassignments", counted(facts.reassigning, "partition"), "they go on"))
    if facts.not_preferred:
        text = "returned within minutes, unless auto_leader_rebalance_enable is false"
        found.append(Change("leaders that are not preferred", str(facts.not_preferred), text))
    return found


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 12 else 0
