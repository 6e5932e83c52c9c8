"""One topic of one broker, partition by partition: what it holds against what it was told. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from controller.core.model import NO_EPOCH, Cluster, LeaderAndIsr, Partition, ReplicaState
from controller.core.znode_paths import topic_path
from proto.gen import broker_control_pb2 as pb


class Side(Enum):
    """Which request told it; the value is the request's name."""

    HOSTED = "LeaderAndIsr"
    METADATA = "UpdateMetadata"


class Remedy(Enum):
    """What mends a difference."""

    TELL = "it is told again"
    RAISE = "it is told again, under a new leader epoch: it has seen this one"
    NEWER = "what it holds is newer than what ZooKeeper has, and is taken over"
    FORGET = "it is told that the partition is deleted"
    NONE = "nothing automatic: replicas are never deleted on suspicion"


@dataclass(frozen=True)
class Difference:
    """``expected`` and ``held`` in words. ``floor``: the leader epoch that the broker has seen, of a RAISE; ``newer``:
    the state that it knows, of a NEWER. Its ISR has those that are known to be in sync; empty: nobody is."""

    topic: str
    partition: int
    side: Side
    expected: str
    held: str
    remedy: Remedy
    floor: int = NO_EPOCH
    #: The leader knows a newer partition epoch: it may have written the state znode itself a moment ago.
    ahead: bool = False
    newer: LeaderAndIsr | None = None

    @property
    def key(self) -> tuple[str, int, Side]:
        return self.topic, self.partition, self.side

    def __str__(self) -> str:
        return f"{self.side.value}: told {self.expected}, holds {self.held}; {self.remedy.value}"


@dataclass
class Held:
    """All pages of one topic that a broker answered."""

    topic_id: str = ""
    hosted: dict[int, pb.HostedReplica] = field(default_factory=dict)
    known: dict[int, pb.KnownPartition] = field(default_factory=dict)

    def add(self, page: pb.DescribeStateResponse) -> None:
        self.topic_id = page.topic_id
        self.hosted.update((r.partition, r) for r in page.hosted)
        self.known.update((k.partition, k) for k in page.known)


_NOTHING = "nothing"


def differences(cluster: Cluster, broker_id: int, topic: str, held: Held) -> list[Difference]:
    """What differs, by partition. Topics under deletion are left out, and replicas that may not have been told yet.

    One whose deletion waits is not: what it waits for, such as the end of a move, may wait for what a broker lacks."""
    known = cluster.topics.get(topic)
    if known is not None and (topic in cluster.topics_to_delete or known.deleted):
        return []
    if known is None and topic_path(topic) in cluster.problems:
        # Nobody knows what it is like: brokers go on as they were told by others.
        return []
    partitions = known.partitions if known is not None else {}
    found: list[Difference] = []
    for number in sorted(partitions.keys() | held.hosted.keys() | held.known.keys()):
        partition = partitions.get(number)
        if partition is None:
            found.extend(_without_partition(topic, number, held))
        elif (state := partition.leadership) is not None:
            if state.controller_epoch > cluster.controller_epoch:
                continue  # a newer controller's, which tells it itself
            found.extend(_metadata(partition, state, held))
            found.extend(_hosted(cluster, broker_id, partition, state, held.hosted.get(number)))
    return found


def _without_partition(topic: str, number: int, held: Held) -> Iterator[Difference]:
    if (item := held.known.get(number)) is not None:
        yield Difference(topic, number, Side.METADATA, _NOTHING, _known_words(item), Remedy.FORGET)
    if (replica := held.hosted.get(number)) is not None and replica.role in _SERVING:
        yield Difference(topic, number, Side.HOSTED, _NOTHING, _held_words(replica), Remedy.NONE)


# --- metadata ------------------------------------------------------------------------------------------------


def _metadata(partition: Partition, state: LeaderAndIsr, held: Held) -> Iterator[Difference]:
    topic, number = partition.topic, partition.number
    item = held.known.get(number)
    expected = pb.KnownPartition(
        partition=number,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        isr=sorted(state.isr),
        replicas=partition.replicas,
    )
    words = _known_words(expected)
    if item is None:
        yield Difference(topic.name, number, Side.METADATA, words, _NOTHING, Remedy.TELL)
    elif _known_words(item) != words:
        yield Difference(topic.name, number, Side.METADATA, words, _known_words(item), Remedy.TELL)
    elif held.topic_id != topic.id and number == min(topic.partitions):
        names = f"topic id {topic.id or 'none'}", f"topic id {held.topic_id or 'none'}"
        yield Difference(topic.name, number, Side.METADATA, *names, Remedy.TELL)


def _known_words(item: pb.KnownPartition) -> str:
    return (
        f"leader {item.leader}, leader epoch {item.leader_epoch}, partition epoch {item.partition_epoch},"
        f" ISR {sorted(item.isr)}, replicas {list(item.replicas)}"
    )


# --- replicas ------------------------------------------------------------------------------------------------

_SERVING = ("leader", "follower")
#: Of a replica that was not told anything since its broker was started. Its epochs are those from before: it refuses
#: a lower leader epoch.
_NO_ROLE = "none"


def _hosted(
    cluster: Cluster,
    broker_id: int,
    partition: Partition,
    state: LeaderAndIsr,
    replica: pb.HostedReplica | None,
) -> Iterator[Difference]:
    name, number = partition.topic.name, partition.number
    if broker_id not in partition.replicas:
        # Strays and departing replicas are on their way out.
        strays = cluster.reassignments.strays_of(partition)
        if replica is None or replica.role not in _SERVING:
            return
        if broker_id not in strays and broker_id not in partition.departing:
            yield Difference(name, number, Side.HOSTED, _NOTHING, _held_words(replica), Remedy.NONE)
        return
    if not was_told(cluster, broker_id, partition, state):
        return
    expected = pb.HostedReplica(
        partition=number,
        role="leader" if broker_id == state.leader else "follower",
        topic_id=partition.topic.id,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        isr=state.isr,
    )
    words = _held_words(expected)
    if replica is None:
        yield Difference(name, number, Side.HOSTED, words, _NOTHING, Remedy.TELL)
    elif _held_words(replica) != words:
        remedy, floor = _remedy(expected, replica)
        same = (replica.role, replica.leader_epoch) == ("leader", expected.leader_epoch)
        ahead = same and replica.partition_epoch > expected.partition_epoch
        newer = _newer(broker_id, partition.replicas, replica) if remedy is Remedy.NEWER else None
        yield Difference(name, number, Side.HOSTED, words, _held_words(replica), remedy, floor, ahead, newer)


def was_told(cluster: Cluster, broker_id: int, partition: Partition, state: LeaderAndIsr) -> bool:
    """Whether LeaderAndIsr of the present state must have reached a broker, and been carried out."""
    if broker_id in cluster.shutting_down or partition in cluster.offline_dirs.get(broker_id, ()):
        return False
    # Brokers keep what they had where the leader that they are told of is not live.
    if state.leader not in cluster.brokers:
        return False
    return partition.replica_state(broker_id) in (ReplicaState.ONLINE, ReplicaState.NEW)


def _remedy(expected: pb.HostedReplica, replica: pb.HostedReplica) -> tuple[Remedy, int]:
    """A broker refuses a leader epoch that it has seen, and answers for a failed disk or another topic id anyway."""
    if replica.role == "offline" or replica.topic_id not in ("", expected.topic_id):
        return Remedy.TELL, NO_EPOCH
    told = replica.role != _NO_ROLE
    same = replica.leader_epoch == expected.leader_epoch
    # A leader epoch has one leader, and partition epochs grow, unless ZooKeeper has forgotten.
    forgotten = same and replica.leader != expected.leader
    skips = told and replica.partition_epoch > expected.partition_epoch
    if replica.leader_epoch > expected.leader_epoch or forgotten or skips:
        return Remedy.NEWER, NO_EPOCH
    return (Remedy.RAISE, replica.leader_epoch) if same and told else (Remedy.TELL, NO_EPOCH)


def _newer(broker_id: int, assigned: Sequence[int], replica: pb.HostedReplica) -> LeaderAndIsr:
    """The state that a broker was told, as far as it tells who is in sync: a leader, which knows its ISR; else whom it
    followed; and where that one is not assigned, itself."""
    leader = replica.leader if replica.leader in assigned else broker_id
    known = replica.isr if replica.role == "leader" else ()
    isr = tuple(b for b in assigned if b == leader or b in known) if replica.leader >= 0 else ()
    return LeaderAndIsr(leader, replica.leader_epoch, isr, replica.partition_epoch, 0)


def _held_words(replica: pb.HostedReplica) -> str:
    words = f"{replica.role} (leader {replica.leader}, leader epoch {replica.leader_epoch}"
    if replica.role == "leader":
        words += f", partition epoch {replica.partition_epoch}, ISR {sorted(replica.isr)}"
    return f"{words}, topic id {replica.topic_id or 'none'})"
