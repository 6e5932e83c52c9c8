"""An outbox with brokers behind it."""

from __future__ import annotations

from typing import Any

from controller.core.model import Cluster, Partition, Topic
from controller.core.outbox import Differing, Outbox, Push, PushKind
from controller.runtime.push.messages import MessageBuilder
from proto.gen import broker_control_pb2 as pb
from tests.support.core.world import a_broker, state

LISR, UMR, SR = PushKind.LEADER_AND_ISR, PushKind.UPDATE_METADATA, PushKind.STOP_REPLICA


class Net:
    """An outbox with brokers 1.. and partitions t-0.., and what each broker makes of what it receives."""

    def __init__(
        self, brokers: int = 2, partitions: int = 3, bytes_max: int = 10**6, small_max: int = 100
    ) -> None:
        self.cluster = Cluster(100, 1)
        self.outbox = Outbox(small_max)
        #: Of small changes.
        self.stream = self.outbox.metadata[0]
        self.builder = MessageBuilder(self.cluster, bytes_max)
        topic = Topic("t", "id-t")
        self.cluster.add_topic(topic)
        self.partitions = [Partition(topic, n, (1, 2)) for n in range(partitions)]
        for partition in self.partitions:
            topic.partitions[partition.number] = partition
            partition.leadership = state(1, (1, 2))
        self.metadata: dict[int, dict[int, int]] = {}
        self.live: dict[int, set[int]] = {}
        #: Partitions that a broker knew when a picture ended.
        self.pictures: dict[int, list[set[int]]] = {}
        self.replicas: dict[int, dict[int, tuple[str, int]]] = {}
        #: Delivery number at which a broker's present data of a partition came to be.
        self.born: dict[tuple[int, int], int] = {}
        self.clock = 0
        for broker_id in range(1, brokers + 1):
            self.add_broker(broker_id)
        for broker_id in range(1, brokers + 1):
            self.drain(broker_id)

    def add_broker(self, broker_id: int) -> None:
        self.clock += 1
        broker = a_broker(broker_id, self.clock)
        self.cluster.brokers[broker_id] = broker
        self.outbox.add_broker(broker, 1, "Test")
        self.metadata[broker_id], self.live[broker_id], self.replicas[broker_id] = {}, set(), {}
        self.pictures[broker_id] = []
        self.born = {key: at for key, at in self.born.items() if key[0] != broker_id}
        self.outbox.brokers_changed(1, "test")
        self.outbox.snapshot_to([broker_id], self.cluster.topics, ())
        self.outbox.compared(broker, None)

    def begin_again(self, broker_id: int) -> None:
        """The whole state, for a broker that has registered again and keeps what it knows."""
        self.clock += 1
        broker = self.cluster.brokers[broker_id] = a_broker(broker_id, self.clock)
        self.outbox.add_broker(broker, 1, "Test")
        self.outbox.whole_leadership(
            broker_id,
            [p for p in self.partitions if self.replicas[broker_id].get(p.number, ("",))[0] == "led"],
        )
        self.outbox.snapshot_to([broker_id], self.cluster.topics, ())

    def everything(self, broker_id: int) -> None:
        """The whole state, from a new controller."""
        self.clock += 1
        broker = self.cluster.brokers[broker_id] = a_broker(broker_id, self.clock)
        self.outbox.add_broker(broker, 1, "Test")
        self.outbox.everything_to([broker_id], self.cluster.topics, ())

    def compare(self, broker_id: int) -> bool:
        """As the controller does, by the newest values; whether nothing differs."""
        held = (
            self.metadata[broker_id],
            {number: epoch for number, (what, epoch) in self.replicas[broker_id].items() if what == "led"},
        )
        metadata = {p.number: p.leadership.partition_epoch for p in self.partitions if p.leadership}
        replicas = {p.number: metadata[p.number] for p in self.partitions if broker_id in p.replicas}
        differing = Differing(
            frozenset({"t"} if held[1] != replicas else ()), frozenset({"t"} if held[0] != metadata else ())
        )
        self.outbox.compared(self.cluster.brokers[broker_id], differing)
        return differing == (frozenset(), frozenset())

    def end_snapshots(self, *broker_ids: int) -> None:
        self.outbox.snapshotting.update(broker_ids)
        self.outbox.end_snapshots()

    def remove_broker(self, broker_id: int) -> None:
        del self.cluster.brokers[broker_id]
        self.outbox.remove_broker(broker_id)
        self.outbox.brokers_changed(1, "test")

    def change(self, *numbers: int) -> None:
        """New leadership, told to all as metadata."""
        for number in numbers:
            old = self.partitions[number].leadership
            assert old is not None
            self.partitions[number].leadership = old.successor(1, (1, 2), 1, 0)
        self.outbox.update_metadata([self.partitions[n] for n in numbers], 1, "test")

    def lead(self, broker_id: int, number: int, is_new: bool = False) -> None:
        self.outbox.leader_and_isr([([broker_id], self.partitions[number])], is_new, 1, "test")

    def stop(self, broker_id: int, number: int, delete: bool = False) -> None:
        self.outbox.stop_replica([(self.partitions[number], broker_id)], delete, 1, "test")

    def take(self, broker_id: int, count_max: int = 1000) -> Push | None:
        queue = self.outbox.queues.get(broker_id)
        due = queue is not None and queue.is_due(self.outbox.ends)
        urgent = self.outbox.is_urgent(broker_id)
        push = self.outbox.take(broker_id, count_max)
        assert due or push is None
        assert urgent or push is None or not push.urgent
        if push is not None:
            assert push.broker.epoch == self.cluster.brokers[broker_id].epoch
            assert len(push.partitions) <= count_max
            for message, _ in self.builder.build(push):
                self._receive(broker_id, push.kind, message)
        return push

    def _receive(self, broker_id: int, kind: PushKind, data: bytes) -> None:
        self.clock += 1
        message: Any
        if kind is UMR:
            message = pb.UpdateMetadataRequest.FromString(data)
            self.live[broker_id] = {b.broker_id for b in message.live_brokers}
            self.metadata[broker_id].update(
                {e.partition: e.partition_epoch for e in message.partition_states}
            )
            if message.ends_snapshot:
                self.pictures[broker_id].append(set(self.metadata[broker_id]))
        elif kind is LISR:
            message = pb.LeaderAndIsrRequest.FromString(data)
            for entry in message.partition_states:
                self.replicas[broker_id][entry.partition] = ("led", entry.partition_epoch)
                self.born.setdefault((broker_id, entry.partition), self.clock)
        else:
            message = pb.StopReplicaRequest.FromString(data)
            for entry in message.partition_states:
                self.replicas[broker_id][entry.partition] = ("stopped", entry.delete_partition)
                if entry.delete_partition:
                    self.born.pop((broker_id, entry.partition), None)

    def drain(self, broker_id: int, count_max: int = 1000) -> list[Push]:
        taken = []
        while (push := self.take(broker_id, count_max)) is not None:
            taken.append(push)
        return taken


def shape(pushes: list[Push]) -> list[tuple[str, list[int]]]:
    return [(p.kind.value, [q.number for q in p.partitions]) for p in pushes]


def led_topic(name: str, count: int) -> dict[str, Topic]:
    """A topic of which broker 1 leads every partition, 2 follows."""
    topic = Topic(name)
    for number in range(count):
        partition = topic.partitions[number] = Partition(topic, number, (1, 2))
        partition.leadership = state(1, (1, 2))
    return {name: topic}
