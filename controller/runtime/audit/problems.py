"""Replicas whose broker is known not to hold what it was told: what is wrong, and what would mend it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum
from typing import NamedTuple

from controller.core.model import Cluster, Partition
from controller.core.znode_paths import topic_path
from controller.runtime.audit.auditor import Auditor
from controller.runtime.audit.differences import Difference, Remedy, Side
from controller.runtime.push.sender import Senders


class ProblemKind(Enum):
    """How it is known."""

    REFUSED = "refused"  #: the broker answered LeaderAndIsr of this partition with an error
    #: The audit found that it holds something else than LeaderAndIsr, or UpdateMetadata, told.
    REPLICA_DIFFERS = "replica differs"
    METADATA_DIFFERS = "metadata differs"


class ReplicaProblem(NamedTuple):
    """``what`` and ``mend`` are texts."""

    topic: str
    partition: int
    broker_id: int
    kind: ProblemKind
    what: str
    mend: str

    def __str__(self) -> str:
        return f"broker {self.broker_id} {self.what}"


#: By the error's name: what mends a refusal. {broker} is the broker's id.
_MENDS = {
    "INCONSISTENT_TOPIC_ID": (
        "broker {broker} still has the replica of a former topic of this name: stop it, move that replica's folder"
        " away, and start it; the records in it are of the former topic. If all of the topic's brokers refuse it,"
        " somebody changed its id in ZooKeeper: write back the one that their partition.metadata has"
    ),
    "KAFKA_STORAGE_ERROR": "the disk of broker {broker} is repaired or replaced, and the broker restarted",
    "UNKNOWN_TOPIC_OR_PARTITION": "broker {broker} does not count itself among the replicas: restart it",
    "INVALID_REQUEST": "broker {broker} does not understand the request: bring it to the controller's version",
    "CLUSTER_AUTHORIZATION_FAILED": "broker {broker} lets this controller do nothing: correct its authorizer",
}


def mend_of(error: str, broker_id: int) -> str:
    """What would mend a broker's refusal of one partition."""
    known = _MENDS.get(error, "the log of broker {broker} says why it refused ({error})")
    return known.format(broker=broker_id, error=error)


def problems_of(
    cluster: Cluster, senders: Senders, auditor: Auditor, partition: Partition
) -> list[ReplicaProblem]:
    """The problems of one partition, by broker."""
    name, number = partition.topic.name, partition.number
    known = auditor.known_of(name, number)
    involved = {*partition.replicas, *(broker_id for broker_id, _ in known)} & cluster.brokers.keys()
    refused = [
        _refused(partition, broker_id, error)
        for broker_id in sorted(involved)
        if (error := senders.refusal(broker_id, partition))
    ]
    return [*refused, *(_differs(cluster, broker_id, d) for broker_id, d in known)]


def all_problems(
    cluster: Cluster, senders: Senders, auditor: Auditor, topics: Collection[str] = ()
) -> Iterator[ReplicaProblem]:
    """The problems of all partitions, or of some topics'."""
    for broker_id, partition, error in senders.refusals():
        name = partition.topic.name
        present = cluster.partition(name, partition.number) is partition
        if present and (not topics or name in topics):
            yield _refused(partition, broker_id, error)
    for broker_id, audit in sorted(auditor.brokers.items()):
        for held in audit.known.values():
            found = held.difference
            if not topics or found.topic in topics:
                yield _differs(cluster, broker_id, found)


def _refused(partition: Partition, broker_id: int, error: str) -> ReplicaProblem:
    what, mend = f"refuses LeaderAndIsr: {error}", mend_of(error, broker_id)
    return ReplicaProblem(partition.topic.name, partition.number, broker_id, ProblemKind.REFUSED, what, mend)


def _differs(cluster: Cluster, broker_id: int, found: Difference) -> ReplicaProblem:
    mend = f"the controller: {found.remedy.value}"
    if found.remedy is Remedy.NONE:
        mend = (
            f"if its records are needed, {_recovery(cluster, broker_id, found)}, before anything is written to the"
            " topic (runbook 'ZooKeeper was restored from a backup');"
            f" if not, stop broker {broker_id}, move the folder away, and start it"
        )
    kind = ProblemKind.REPLICA_DIFFERS if found.side is Side.HOSTED else ProblemKind.METADATA_DIFFERS
    what = f"holds something else: {found}"
    return ReplicaProblem(found.topic, found.partition, broker_id, kind, what, mend)


def _recovery(cluster: Cluster, broker_id: int, found: Difference) -> str:
    """How the records of a replica that ZooKeeper does not know are kept."""
    topic = cluster.topics.get(found.topic)
    if topic is None:
        return f"create {topic_path(found.topic)} again, with its topic id and replicas"
    if found.partition not in topic.partitions:
        return f"add partition {found.partition} again, on the brokers that have it"
    return f"move the partition to broker {broker_id}, too"
