"""One scenario of what operators do and what happens to brokers, for a cluster of three under any controller.

Every step leaves the cluster in rest: what it left in ZooKeeper can be compared with another run's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import ElectionType
from confluent_kafka.cimpl import NewPartitions

from tests.kafka.cluster import KafkaCluster
from tests.kafka.requests import alter_topic, reassign
from tests.kafka.side_by_side import znodes

#: So long nothing may change before a step is over.
REST_S = 1.5
#: No broker that a step ends may be controller: this one is, if any broker is.
FIRST = 1


class Left(NamedTuple):
    """What a step left: znodes by path, as ``znodes.snapshot`` shows them."""

    step: str
    znodes: Mapping[str, str]


def run(cluster: KafkaCluster) -> Iterator[Left]:
    """Do one step after another on a fresh cluster of the brokers 1, 2 and 3."""
    for name, step in STEPS.items():
        step(cluster)
        yield Left(name, rest(cluster))


def rest(cluster: KafkaCluster) -> Mapping[str, str]:
    """The snapshot once it has not changed for a while."""
    last, since = znodes.snapshot(cluster.zk), time.monotonic()
    deadline = since + 60
    while time.monotonic() - since < REST_S:
        time.sleep(0.2)
        now = znodes.snapshot(cluster.zk)
        if now != last:
            last, since = now, time.monotonic()
        assert time.monotonic() < deadline, "the cluster does not come to rest"
    return last


def _created_by_assignment(cluster: KafkaCluster) -> None:
    cluster.create_topic("plain", assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    cluster.create_topic(
        "configured",
        assignment=[[2, 3]],
        config={"retention.ms": "60000", "min.insync.replicas": "1", "cleanup.policy": "compact,delete"},
    )
    cluster.create_topic("moving", assignment=[[1, 2], [2, 1]])
    cluster.create_topic("unclean", assignment=[[2, 3]])


def _created_by_count(cluster: KafkaCluster) -> None:
    cluster.create_topic("placed", 3, 2)


def _partitions_added(cluster: KafkaCluster) -> None:
    wanted = NewPartitions("plain", 5, replica_assignment=[[2, 1, 3], [3, 2, 1]])
    admin = cluster.admin()
    admin.create_partitions([wanted])["plain"].result(60)
    cluster.until("partitions", lambda: len(cluster.assignment("plain")) == 5)
    cluster.until("their ISRs", lambda: cluster.led("plain") and cluster.in_sync("plain"))


def _killed(*ids: int) -> Callable[[KafkaCluster], None]:
    def step(cluster: KafkaCluster) -> None:
        for id_ in ids:
            cluster.brokers[id_].kill()
            cluster.await_gone(id_)
            cluster.until("the leaders", lambda id_=id_: not _leads(cluster, id_))  # type: ignore[misc]

    return step


def _leads(cluster: KafkaCluster, broker_id: int) -> bool:
    return any(state is not None and state.leader == broker_id for state in cluster.states().values())


def _returned(*ids: int) -> Callable[[KafkaCluster], None]:
    def step(cluster: KafkaCluster) -> None:
        cluster.restart(*ids)
        cluster.until("full ISRs", cluster.in_sync)

    return step


def _stopped(id_: int) -> Callable[[KafkaCluster], None]:
    def step(cluster: KafkaCluster) -> None:
        assert cluster.brokers[id_].stop()
        assert (
            "Controlled shutdown request returned successfully" in cluster.brokers[id_].server_log.read_text()
        )
        cluster.await_gone(id_)

    return step


def _preferred(cluster: KafkaCluster) -> None:
    admin = cluster.admin()
    admin.elect_leaders(ElectionType.PREFERRED).result(60)
    cluster.until("preferred leaders", lambda: _all_preferred(cluster))


def _all_preferred(cluster: KafkaCluster) -> bool:
    return all(
        state is not None and state.leader == cluster.assignment(topic)[number][0]
        for (topic, number), state in cluster.states().items()
    )


def _await_assignment(cluster: KafkaCluster, topic: str, wanted: Mapping[int, Sequence[int]]) -> None:
    def reached() -> bool:
        found = cluster.json(f"/brokers/topics/{topic}")
        moving = found["adding_replicas"] or found["removing_replicas"]
        return cluster.assignment(topic) == wanted and not moving

    cluster.until(f"the reassignment of {topic}", reached)
    cluster.until("full ISRs", lambda: cluster.in_sync(topic))


def _reassigned(cluster: KafkaCluster) -> None:
    reassign(cluster, {("moving", 0): [3, 1], ("moving", 1): [2, 1, 3]})
    _await_assignment(cluster, "moving", {0: [3, 1], 1: [2, 1, 3]})


def _replica_removed(cluster: KafkaCluster) -> None:
    reassign(cluster, {("moving", 1): [1, 3]})
    _await_assignment(cluster, "moving", {0: [3, 1], 1: [1, 3]})


def _reassignment_stuck(cluster: KafkaCluster) -> None:
    cluster.brokers[2].freeze()
    reassign(cluster, {("moving", 0): [2, 3], ("moving", 1): [1, 2]})
    cluster.brokers[2].kill()
    cluster.await_gone(2)
    cluster.until("the leaders", lambda: not _leads(cluster, 2))


def _reassignment_cancelled(cluster: KafkaCluster) -> None:
    reassign(cluster, {("moving", 0): None, ("moving", 1): None})
    _await_assignment(cluster, "moving", {0: [3, 1], 1: [1, 3]})


def _deleted(cluster: KafkaCluster) -> None:
    admin = cluster.admin()
    admin.delete_topics(["configured"])["configured"].result(60)
    _await_deletion(cluster, "configured")


def _await_deletion(cluster: KafkaCluster, topic: str) -> None:
    cluster.until("the deletion", lambda: not cluster.zk.exists(f"/brokers/topics/{topic}"))
    cluster.until("the markers", lambda: not cluster.zk.get_children("/admin/delete_topics"))


def _deleted_by_znode(cluster: KafkaCluster) -> None:
    cluster.zk.create("/admin/delete_topics/placed", b"")
    _await_deletion(cluster, "placed")


def _unclean_configured(cluster: KafkaCluster) -> None:
    """Broker 3 is back but was not in sync; only now may it lead."""
    alter_topic(cluster, "unclean", {"unclean.leader.election.enable": "true"})
    cluster.until("an unclean leader", lambda: cluster.led("unclean", without=[2]))


def _out_of_sync_back(cluster: KafkaCluster) -> None:
    cluster.restart(3)
    cluster.until(
        "its other partitions",
        lambda: all(s is not None and 3 in s.isr for s in cluster.states("plain").values()),
    )


def _preferred_by_znode(cluster: KafkaCluster) -> None:
    listed = [{"topic": "plain", "partition": number} for number in (0, 1, 3)]
    _request_by_znode(cluster, "/admin/preferred_replica_election", listed)


def _reassigned_by_znode(cluster: KafkaCluster) -> None:
    listed = [{"topic": "moving", "partition": 0, "replicas": [2, 1]}]
    _request_by_znode(cluster, "/admin/reassign_partitions", listed)
    _await_assignment(cluster, "moving", {0: [2, 1], 1: [1, 3]})


def _request_by_znode(cluster: KafkaCluster, path: str, partitions: Sequence[object]) -> None:
    text = json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))
    cluster.zk.create(path, text.encode())
    cluster.until("the znode's end", lambda: not cluster.zk.exists(path))


STEPS: Mapping[str, Callable[[KafkaCluster], None]] = {
    "topics created by assignment": _created_by_assignment,
    "a topic created by count": _created_by_count,
    "partitions added": _partitions_added,
    "broker 2 killed": _killed(2),
    "broker 2 back": _returned(2),
    "preferred leaders elected": _preferred,
    "broker 3 stopped": _stopped(3),
    "broker 3 back": _returned(3),
    "preferred leaders elected by znode": _preferred_by_znode,
    "partitions reassigned": _reassigned,
    "a replica removed": _replica_removed,
    "reassignment stuck": _reassignment_stuck,
    "reassignment cancelled": _reassignment_cancelled,
    "broker 2 back again": _returned(2),
    "a topic deleted": _deleted,
    "brokers 3 and 2 killed": _killed(3, 2),
    "broker 3 back, out of sync": _out_of_sync_back,
    "unclean election configured": _unclean_configured,
    "broker 2 back, truncated": _returned(2),
    "partitions reassigned by znode": _reassigned_by_znode,
    "a topic deleted by znode": _deleted_by_znode,
}
