"""What a Kafka broker holds, against what it was told. It keeps no digests: it is asked by requests that any client may
send (docs/adr/0016).

Metadata shows its cache, which UpdateMetadata filled. OffsetForLeaderEpoch under the leader epoch that we know tells
of each replica whether it leads, does not, or knows another leader epoch; DescribeLogDirs, which are on its disks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from controller.core.model import NO_LEADER, Broker, Cluster, LeaderAndIsr, Partition, Topic
from controller.errors import ControllerError
from controller.runtime.audit.differences import Difference, Remedy, Side, was_told
from controller.runtime.kafka.topic_ids import uuid_text
from controller.runtime.push.transport import UnreachableError
from proto.gen import common_pb2 as codes
from proto.gen.kafka.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from proto.gen.kafka.describe_log_dirs_response import DescribeLogDirsResponse
from proto.gen.kafka.metadata_request import MetadataRequest, MetadataRequestTopic
from proto.gen.kafka.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from proto.gen.kafka.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from proto.gen.kafka.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse
from proto.kafka.apis import Message

#: Partitions in one request, whose answer is decoded in some 25 ms, and in one look. The next look goes on with the
#: next topics.
PAGE_MAX, LOOK_MAX = 2000, 20_000
#: A client, and no replica.
_CONSUMER = -1
#: The leader has no listener of this name.
_LISTENER_NOT_FOUND = 72
_NOTHING = "nothing"

AskKafka = Callable[[Broker, Message], Awaitable[Message]]
M = TypeVar("M", bound=Message)


class _Page(NamedTuple):
    """What a broker answered of some topics. ``errors``: of OffsetForLeaderEpoch; ``on_disk`` None: it does not say."""

    metadata: Mapping[str, MetadataResponseTopic]
    errors: Mapping[tuple[str, int], int]
    on_disk: Collection[tuple[str, int]] | None


class KafkaLook:
    """One comparison of one broker. ``after``: the topic with which the last look ended, empty: none.

    ``examined``: the topics that were compared, None: all. ``partial``: what could not be asked, and why, or empty.
    ``last``: for the next look's ``after``.
    """

    def __init__(
        self,
        cluster: Cluster,
        broker: Broker,
        ask: AskKafka,
        until_settled: Callable[[int], Awaitable[None]],
        after: str,
    ) -> None:
        self._cluster, self._broker, self._ask, self._until_settled = cluster, broker, ask, until_settled
        self._after = after
        self.examined: set[str] | None = None
        self.partial = self.last = ""

    async def differences(self, topics: Collection[str]) -> list[Difference]:
        """Of these topics, or of as many as one look compares. Raises UnreachableError, and what ``until_settled``
        raises."""
        pages, everything = self._pages(topics)
        found: list[Difference] = []
        if everything:
            await self._until_settled(self._broker.id)
            cached = await self._metadata(None)
            await self._until_settled(self._broker.id)
            found += self._strangers(cached)
        for page in pages:
            await self._until_settled(self._broker.id)
            held = await self._asked(page)
            await self._until_settled(self._broker.id)
            for topic in page:
                if self._cluster.topics.get(topic.name) is topic and not self._going(topic.name):
                    found += self._of_topic(topic, held)
        if not everything:
            self.examined = {topic.name for page in pages for topic in page}
        return found

    def _pages(self, names: Collection[str]) -> tuple[list[list[Topic]], bool]:
        """The topics to compare, in pages, and whether they are all that there are."""
        known = self._cluster.topics
        chosen = sorted(names) if names else sorted(known)
        if not names and self._after:
            chosen = [n for n in chosen if n > self._after] + [n for n in chosen if n <= self._after]
        pages: list[list[Topic]] = []
        size = total = 0
        for name in chosen:
            topic = known.get(name)
            if topic is None or self._going(name):
                continue
            count = len(topic.partitions)
            if not names and total and total + count > LOOK_MAX:
                self.last = pages[-1][-1].name
                return pages, False
            if not pages or size + count > PAGE_MAX:
                pages.append([])
                size = 0
            pages[-1].append(topic)
            size, total = size + count, total + count
        return pages, not names

    def _going(self, name: str) -> bool:
        return name in self._cluster.topics_to_delete

    # asking

    async def _asked(self, topics: Sequence[Topic]) -> _Page:
        metadata = await self._metadata([topic.name for topic in topics])
        if any(t.error_code == codes.TOPIC_AUTHORIZATION_FAILED for t in metadata.topics):
            self.partial = "topics are hidden: our user needs Describe on topics there"
        epochs = OffsetForLeaderEpochRequest(
            _CONSUMER,
            [
                OffsetForLeaderTopic(
                    topic.name,
                    [
                        OffsetForLeaderPartition(p.number, state.leader_epoch, state.leader_epoch)
                        for p, state in self._told(topic)
                    ],
                )
                for topic in topics
            ],
        )
        answer = await self._further(epochs, OffsetForLeaderEpochResponse)
        errors = {
            (topic.topic, p.partition): p.error_code
            for topic in (answer.topics if answer is not None else ())
            for p in topic.partitions
        }
        return _Page({t.name or "": t for t in metadata.topics}, errors, await self._on_disk(topics))

    async def _metadata(self, names: Sequence[str] | None) -> MetadataResponse:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        try:
            answer = await self._ask(self._broker, MetadataRequest(topics, allow_auto_topic_creation=False))
        except ControllerError as error:
            raise UnreachableError(str(error)) from None
        assert isinstance(answer, MetadataResponse)
        return answer

    async def _on_disk(self, topics: Sequence[Topic]) -> Collection[tuple[str, int]] | None:
        asked = DescribeLogDirsRequest([DescribableLogDirTopic(t.name, sorted(t.partitions)) for t in topics])
        answer = await self._further(asked, DescribeLogDirsResponse)
        if answer is None:
            return None
        # A denial is an empty list up to version 2.
        if answer.error_code or not answer.results:
            self.partial = "metadata and leader epochs only: our user needs Describe on the cluster there"
            return None
        return {
            (topic.name, p.partition_index)
            for directory in answer.results
            for topic in directory.topics
            for p in topic.partitions
            if not p.is_future_key
        }

    async def _further(self, request: Message, kind: type[M]) -> M | None:
        """An answer without which metadata can still be compared."""
        try:
            answer = await self._ask(self._broker, request)
        except ControllerError as error:
            self.partial = f"metadata only: {error}"
            return None
        assert isinstance(answer, kind)
        return answer

    # comparing

    def _told(self, topic: Topic) -> Iterator[tuple[Partition, LeaderAndIsr]]:
        """The replicas that LeaderAndIsr must have told the broker of."""
        for partition in topic.partitions.values():
            state = partition.leadership
            if state is None or self._broker.id not in partition.replicas or not self._ours(state):
                continue
            if was_told(self._cluster, self._broker.id, partition, state):
                yield partition, state

    def _ours(self, state: LeaderAndIsr) -> bool:
        """Whether this controller tells a state: a newer controller tells its own."""
        return state.controller_epoch <= self._cluster.controller_epoch

    def _strangers(self, metadata: MetadataResponse) -> Iterator[Difference]:
        for topic in metadata.topics:
            name = topic.name or ""
            if name not in self._cluster.topics and not self._going(name):
                for item in topic.partitions:
                    yield Difference(
                        name, item.partition_index, Side.METADATA, _NOTHING, _words(item), Remedy.FORGET
                    )

    def _of_topic(self, topic: Topic, held: _Page) -> Iterator[Difference]:
        shown = held.metadata.get(topic.name)
        if shown is not None and shown.error_code != codes.TOPIC_AUTHORIZATION_FAILED:
            yield from self._cached(topic, shown)
        told = dict(self._told(topic))
        for number, partition in sorted(topic.partitions.items()):
            if (state := told.get(partition)) is not None:
                yield from self._replica(partition, state, held)
            elif held.on_disk and (topic.name, number) in held.on_disk and self._stranger(partition):
                words = "a replica on its disk"
                yield Difference(topic.name, number, Side.HOSTED, _NOTHING, words, Remedy.NONE)

    def _stranger(self, partition: Partition) -> bool:
        """Whether the broker is not meant to have this partition, and it is not on its way out either."""
        strays = self._cluster.reassignments.strays_of(partition)
        return self._broker.id not in (*partition.replicas, *partition.departing, *strays)

    def _cached(self, topic: Topic, shown: MetadataResponseTopic) -> Iterator[Difference]:
        items = {item.partition_index: item for item in shown.partitions}
        for number, partition in sorted(topic.partitions.items()):
            state = partition.leadership
            if state is None or not self._ours(state):
                continue
            words, item = _expected_words(partition, state), items.get(number)
            held = (
                _NOTHING if item is None else _words(item, state.leader if self._hides(item, state) else None)
            )
            if held != words:
                yield Difference(topic.name, number, Side.METADATA, words, held, Remedy.TELL)
        held_id = uuid_text(shown.topic_id)
        if items and held_id and held_id != topic.id:
            first = min(topic.partitions)
            ids = f"topic id {topic.id or 'none'}", f"topic id {held_id}"
            yield Difference(topic.name, first, Side.METADATA, *ids, Remedy.TELL)

    def _hides(self, item: MetadataResponsePartition, state: LeaderAndIsr) -> bool:
        """Metadata names no leader that is not alive, or that lacks the listener of the connection."""
        gone = state.leader not in self._cluster.brokers
        return item.leader_id == NO_LEADER and (gone or item.error_code == _LISTENER_NOT_FOUND)

    def _replica(self, partition: Partition, state: LeaderAndIsr, held: _Page) -> Iterator[Difference]:
        key = partition.topic.name, partition.number
        error = held.errors.get(key)
        if error is None:
            return
        leads, epoch = state.leader == self._broker.id, state.leader_epoch
        absent = held.on_disk is not None and key not in held.on_disk
        remedy, floor = Remedy.TELL, -1
        if error == codes.FENCED_LEADER_EPOCH:
            words, remedy, floor = f"a leader epoch above {epoch}", Remedy.RAISE, epoch + 1
        elif error == codes.UNKNOWN_LEADER_EPOCH:
            words = f"a leader epoch below {epoch}"
        elif error == codes.KAFKA_STORAGE_ERROR:
            words = "a replica on a failed disk"
        elif error == codes.UNKNOWN_TOPIC_OR_PARTITION or (error == codes.NOT_LEADER_OR_FOLLOWER and absent):
            words = _NOTHING
        elif error == codes.NOT_LEADER_OR_FOLLOWER and leads:
            words, remedy, floor = f"no leader at leader epoch {epoch}", Remedy.RAISE, epoch
        elif error == codes.NONE and not leads:
            words, remedy, floor = f"leader at leader epoch {epoch}", Remedy.RAISE, epoch
        else:
            return
        expected = f"{'leader' if leads else 'follower'} (leader {state.leader}, leader epoch {epoch})"
        yield Difference(*key, Side.HOSTED, expected, words, remedy, floor)


def _expected_words(partition: Partition, state: LeaderAndIsr) -> str:
    return _all_words(state.leader, state.leader_epoch, state.isr, partition.replicas)


def _words(item: MetadataResponsePartition, leader: int | None = None) -> str:
    """``leader``: one that the answer hides."""
    shown = item.leader_id if leader is None else leader
    return _all_words(shown, item.leader_epoch, item.isr_nodes, item.replica_nodes)


def _all_words(leader: int, leader_epoch: int, isr: Sequence[int], replicas: Sequence[int]) -> str:
    return f"leader {leader}, leader epoch {leader_epoch}, ISR {sorted(isr)}, replicas {list(replicas)}"
