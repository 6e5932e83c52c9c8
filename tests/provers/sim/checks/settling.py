"""Liveness: what is still missing once nothing goes wrong any more, in words; and the judgement at the end."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

from broker_stub.control.metadata import MetadataCache
from broker_stub.control.replicas import Role
from broker_stub.daemon import Broker
from broker_stub.data_identity import short_id
from tests.provers.sim.actors.brokers import SimBroker
from tests.provers.sim.actors.poison import TOPIC
from tests.provers.sim.checks.history import FinalPartition
from tests.provers.sim.checks.memory import groups_of_others
from tests.provers.sim.checks.stored import Partition, State
from tests.provers.sim.cluster import SimulatedCluster
from tests.provers.sim.environment.disk import SimLog
from tests.provers.sim.plans.plan import VICTIM


def unsettled(cluster: SimulatedCluster) -> list[str]:
    """Why it is not over yet; empty: every partition is led, every operation done, and all agree with ZooKeeper."""
    leading = [
        c for c in cluster.controllers.values() if c.alive and c.daemon is not None and c.daemon.active
    ]
    if len(leading) != 1:
        return [f"{len(leading)} controllers are active"]
    return [*_operations(cluster), *_partitions(cluster), *_brokers(cluster), *_quarantine(cluster)]


def _quarantine(cluster: SimulatedCluster) -> Iterator[str]:
    """What raises is left out, and nothing else is."""
    (leading,) = [c.daemon for c in cluster.controllers.values() if c.daemon is not None and c.daemon.active]
    assert leading.term is not None
    skipped = [str(suspect.subject) for suspect in leading.term.quarantine.quarantined()]
    expected = [f"topic/{TOPIC}"] if cluster.plan.options.poison else []
    if skipped != expected:
        yield f"in quarantine are {skipped}, not {expected}"


def _operations(cluster: SimulatedCluster) -> Iterator[str]:
    for deleted in cluster.nodes_below("/admin/delete_topics"):
        yield f"topic {deleted} is to be deleted"
    for request in cluster.nodes_below("/admin"):
        if request in ("reassign_partitions", "preferred_replica_election"):
            yield f"/admin/{request} is there"
    for parent in ("/isr_change_notification", "/log_dir_event_notification"):
        for pushed in cluster.nodes_below(parent):
            yield f"{parent}/{pushed} is there"
    for name, topic in sorted(cluster.ledger.topics.items()):
        if cluster.by_hand and name.startswith(VICTIM):
            yield f"{name} is to be deleted, as somebody has removed its znodes by hand"
        for number in sorted(topic.moving):
            yield f"{name}-{number} is being reassigned"
        for number in sorted(topic.queued):
            yield f"{name}-{number} waits to be reassigned"
    # All brokers are back.
    for broker_id in json.loads(cluster.stored("/controllers/forgotten") or b"{}").get("brokers", ()):
        yield f"broker-{broker_id} is still forgotten"


def _partitions(cluster: SimulatedCluster) -> Iterator[str]:
    for name, topic in sorted(cluster.ledger.topics.items()):
        if name == TOPIC or (name.startswith(VICTIM) and cluster.by_hand):
            continue
        if topic.id is None or name in cluster.ledger.misnamed:
            yield f"topic {name} has no id, or not the one by which brokers know it"
        for number, replicas in sorted(topic.partitions.items()):
            state = cluster.ledger.states.get((name, number))
            if state is None:
                yield f"{name}-{number} has no state"
            elif state.leader < 0:
                yield f"{name}-{number} has no leader: {state}"
            elif state.controller_epoch > cluster.ledger.controller_epoch:
                yield f"{name}-{number} names a controller epoch that nobody had: {state}"
            elif set(state.isr) != set(replicas):
                yield f"{name}-{number}: not all of {replicas} are in sync: {state}"
            elif len(ends := {_log_end(cluster, id_, (name, number)) for id_ in replicas}) > 1:
                yield f"{name}-{number}: its logs end at {sorted(ends)}"
    yield from (told for told in cluster.ledger.not_taken_over() if not told.startswith(VICTIM))


def _brokers(cluster: SimulatedCluster) -> Iterator[str]:
    registered = cluster.nodes_below("/brokers/ids")
    for id_, node in cluster.brokers.items():
        if str(id_) not in registered:
            yield f"{node.name} is not registered"
        if node.stopping:
            yield f"{node.name} is stopping"
        yield from differences(cluster, node)
        if node.broker is not None:
            yield from _stray_logs(cluster, node)
            yield from _told_directories(cluster, node)
            for number in groups_of_others(node.broker, cluster.ledger.states):
                yield f"{node.name} has the groups of partition {number} in memory, and does not lead it"


def differences(
    cluster: SimulatedCluster, node: SimBroker, absent: int = -1, unjudged: Collection[str] = ()
) -> Iterator[str]:
    """Between what a broker knows and what is stored. ``absent``: a broker that is gone; ``unjudged``: topics that are
    left out."""
    if node.broker is None:
        yield f"{node.name} is not running"
        return
    if cluster.by_hand:
        unjudged = {*unjudged, *(name for name in _names(cluster, node.broker) if name.startswith(VICTIM))}
    yield from _of_replicas(cluster, node, node.broker, unjudged)
    yield from _of_metadata(cluster, node.name, node.broker._handlers.metadata, absent, unjudged)


def _names(cluster: SimulatedCluster, broker: Broker) -> set[str]:
    """Topics that there are, or that a broker knows."""
    held = {replica.topic for replica in broker._handlers.replicas}
    return {*cluster.ledger.topics, *broker._handlers.metadata.topics(), *held}


def _of_replicas(
    cluster: SimulatedCluster, node: SimBroker, broker: Broker, unjudged: Collection[str]
) -> Iterator[str]:
    replicas = broker._handlers.replicas
    hosted = {(r.topic, r.partition): r for r in replicas if r.role in (Role.LEADER, Role.FOLLOWER)}
    for key, state in sorted(cluster.ledger.states.items()):
        name = f"{node.name}: {key[0]}-{key[1]}"
        if node.id not in cluster.ledger.topics[key[0]].partitions.get(key[1], ()):
            continue
        mine = hosted.pop(key, None)
        if key[0] in unjudged:
            continue
        if mine is None:
            yield f"{name}: it does not know that it has a replica"
        elif (mine.leader, mine.leader_epoch) != (state.leader, state.leader_epoch):
            yield f"{name}: it knows {mine}, stored is {state}"
        elif node.id == state.leader and set(mine.isr) != set(state.isr):
            yield f"{name}: the leader knows ISR {mine.isr}, stored is {state}"
    for topic, number in sorted(hosted):
        if topic not in unjudged:
            yield f"{node.name}: {topic}-{number}: it serves a replica that it should not have"


def _of_metadata(
    cluster: SimulatedCluster, name: str, metadata: MetadataCache, absent: int, unjudged: Collection[str]
) -> Iterator[str]:
    for key, state in sorted(cluster.ledger.states.items()):
        known = metadata.partition(*key)
        if key[0] in unjudged:
            continue
        if known is None or (known.leader, known.leader_epoch, set(known.isr)) != _pushed(state):
            yield f"{name}: {key[0]}-{key[1]}: its metadata has {known}, stored is {state}"
        elif set(known.offline_replicas) - {absent}:
            yield f"{name}: {key[0]}-{key[1]}: its metadata has offline replicas: {known}"
    for topic in metadata.topics():
        if topic not in cluster.ledger.topics and topic not in unjudged:
            yield f"{name}: its metadata has topic {topic}, which is gone"


def _told_directories(cluster: SimulatedCluster, node: SimBroker) -> Iterator[str]:
    """What states tell of where its replicas are, which is what decides who has lost something."""
    for key, state in sorted(cluster.ledger.states.items()):
        if cluster.by_hand and key[0].startswith(VICTIM):
            continue
        told = dict(state.directories).get(node.id)
        where = [short_id(d.directory_id or "") for d in node.disks if key in d.folders]
        if told is not None and where and [told] != where:
            yield f"{node.name}: {key[0]}-{key[1]}: stored is directory {told}, its log is in {where}"


def _stray_logs(cluster: SimulatedCluster, node: SimBroker) -> Iterator[str]:
    for topic, number in sorted(node.folders):
        known = cluster.ledger.topics.get(topic)
        if topic.startswith(VICTIM) and cluster.by_hand:
            continue
        if known is None or node.id not in known.partitions.get(number, ()):
            yield f"{node.name}: {topic}-{number}: its log was not deleted"


def _pushed(state: State) -> tuple[int, int, set[int]]:
    return state.leader, state.leader_epoch, set(state.isr)


def check_clients(cluster: SimulatedCluster) -> None:
    """What clients were told, against the logs of all in-sync replicas."""
    final: list[FinalPartition] = []
    for key, state in sorted(cluster.ledger.states.items()):
        if cluster.by_hand and key[0].startswith(VICTIM):
            continue
        logs = {id_: _log(cluster, id_, key) for id_ in state.isr}
        topic_id = cluster.ledger.topics[key[0]].id or ""
        final.append(FinalPartition(key[0], topic_id, key[1], state.leader, logs))
    cluster.history.check_final(final)
    cluster.check_processes()


def _log_end(cluster: SimulatedCluster, id_: int, key: Partition) -> int:
    folder = cluster.brokers[id_].folders.get(key)
    return folder.content.log_end_offset if folder is not None and folder.content is not None else -1


def _log(cluster: SimulatedCluster, id_: int, key: Partition) -> SimLog:
    content = cluster.brokers[id_].folders[key].content
    assert content is not None
    return content
