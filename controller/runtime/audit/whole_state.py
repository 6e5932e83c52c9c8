"""What of the whole state a broker holds already, so that only the rest is pushed (docs/adr/0018).

A new controller, and a broker that registers, would begin with all there is. Instead the broker is asked for digests.
The request fences earlier controllers before they are read, so from then on only this term's pushes change what the
digests cover. Whoever cannot answer gets everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import structlog

from controller.core.model import Broker, Cluster, ControlProtocol, Topic
from controller.core.outbox import Differing, Outbox
from controller.runtime.audit.expected import Expected, SharedLook
from controller.runtime.audit.transport import StateTransport
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.push.transport import CannotAnswerError, UnreachableError
from proto.gen import broker_control_pb2 as pb
from proto.tasks import end_all, failures_to

log = structlog.get_logger(__name__)

#: Attempts to ask; then the broker gets everything, which is attempted for as long as it is registered.
ATTEMPTS_MAX, RETRY_FIRST_S = 4, 0.1
#: Beyond so many topics that differ, everything is pushed: the snapshot's last request would have to name them all.
TOPICS_MAX = 5000
EQUAL = Differing(frozenset(), frozenset())


class _Digests(NamedTuple):
    """The digests of one topic: what LeaderAndIsr told, what UpdateMetadata told, the offline replicas."""

    hosted: int
    metadata: int
    offline: int


_NOTHING = _Digests(0, 0, 0)


class _EverythingError(Exception):
    """The broker gets everything; the text says why."""


class Comparisons:
    """Compares for every queue of the outbox that begins with the whole state.

    ``loaded`` is set once the failover is done: hashing would only delay it. ``wake`` lets a broker's sender look for
    work again. ``on_bug`` receives an unexpected exception.
    """

    def __init__(
        self,
        cluster: Cluster,
        outbox: Outbox,
        expected: Expected,
        metrics: ControllerMetrics,
        *,
        open_transport: Callable[[], StateTransport],
        loaded: asyncio.Event,
        wake: Callable[[int], None],
        on_bug: Callable[[BaseException], None],
    ) -> None:
        self._cluster, self._outbox, self._expected, self._metrics = cluster, outbox, expected, metrics
        self._open_transport, self._loaded, self._wake, self._on_bug = open_transport, loaded, wake, on_bug
        self._tasks: dict[int, tuple[Broker, asyncio.Task[None]]] = {}
        self._all_topics = SharedLook(expected)
        self._listing = asyncio.Lock()

    def sync(self, deciding: bool) -> None:
        """Begin the comparisons that the outbox waits for, and end those of queues that are gone. ``deciding``: an
        event is being handled, and may not have queued all of a whole state yet."""
        queues = self._outbox.queues
        for id_, (broker, task) in list(self._tasks.items()):
            queue = queues.get(id_)
            if queue is None or queue.broker.epoch != broker.epoch:
                task.cancel()
                del self._tasks[id_]
        for id_, queue in () if deciding else queues.items():
            if queue.comparing and id_ not in self._tasks:
                name = f"comparison-{id_}-{queue.broker.epoch}"
                task = asyncio.create_task(self._compare(queue.broker, queue.opened_by), name=name)
                task.add_done_callback(failures_to(self._on_bug))
                self._tasks[id_] = (queue.broker, task)

    async def stop(self) -> None:
        await end_all(task for _, task in self._tasks.values())
        self._tasks.clear()

    async def _compare(self, broker: Broker, event_id: int) -> None:
        differing: Differing | None = None
        why = ""
        transport = self._open_transport()
        try:
            differing = await self._differing(_Asker(broker, transport, self._cluster, event_id))
        except _EverythingError as error:
            why = str(error)
        finally:
            await transport.close()
        # To list everything would hold a failover up.
        await self._loaded.wait()
        outcome = "everything" if differing is None else "equal" if differing == EQUAL else "differing"
        self._metrics.audit.compared.labels(outcome).inc()
        log.info(
            "whole_state_compared",
            broker_id=broker.id,
            outcome=outcome,
            why=why or None,
            topics=len(differing.leadership | differing.metadata) if differing is not None else None,
        )
        # One after the other: a part for each of a hundred brokers would be long, too.
        async with self._listing:
            while differing is None and self._outbox.list_some(broker):  # noqa: ASYNC110
                await asyncio.sleep(0)
        self._outbox.compared(broker, differing)
        self._wake(broker.id)

    async def _differing(self, asker: _Asker) -> Differing:
        """Raises _EverythingError."""
        if asker.broker.control_protocol is ControlProtocol.KAFKA:
            raise _EverythingError("Kafka's protocol has no such question")
        first = await asker.ask(pb.DescribeStateRequest())
        if not first.digests.hosted and not first.digests.metadata:
            raise _EverythingError("it holds nothing")
        await self._loaded.wait()
        totals = await self._all_topics.totals()
        # What was pushed meanwhile would differ in the first answer.
        held = (await asker.ask(pb.DescribeStateRequest())).digests
        expected = _Digests(totals.hosted.get(asker.broker.id, 0), totals.metadata, totals.offline)
        # Of a topic under deletion brokers must forget what the digests would cover.
        deleting = self._cluster.topics_to_delete or self._cluster.deletions_waiting
        if not deleting and _Digests(held.hosted, held.metadata, held.offline) == expected:
            return EQUAL
        return await self._by_topic(asker)

    async def _by_topic(self, asker: _Asker) -> Differing:
        held = await asker.topics()
        leadership: set[str] = set()
        metadata: set[str] = set()
        for name in held.keys() | self._cluster.topics.keys():
            mine = held.get(name, _NOTHING)
            topic = self._cluster.topics.get(name)
            expected = await self._topic(topic, asker.broker.id) if topic is not None else _NOTHING
            if expected is None or (mine.metadata, mine.offline) != (expected.metadata, expected.offline):
                metadata.add(name)
            if expected is None or mine.hosted != expected.hosted:
                leadership.add(name)
            if len(metadata) > TOPICS_MAX:
                raise _EverythingError(f"more than {TOPICS_MAX} topics differ")
        return Differing(frozenset(leadership), frozenset(metadata))

    async def _topic(self, topic: Topic, broker_id: int) -> _Digests | None:
        """None: whatever is held, it is told."""
        found = await self._expected.topic(topic)
        if self._cluster.deletion_requested(topic.name) or self._cluster.topics.get(topic.name) is not topic:
            return None
        return _Digests(found.hosted.get(broker_id, 0), found.metadata, found.offline)


class _Asker:
    """Asks one broker incarnation. ``event_id``: of the event that opened its queue: late copies of requests to an
    earlier incarnation have lower ones."""

    def __init__(self, broker: Broker, transport: StateTransport, cluster: Cluster, event_id: int) -> None:
        self.broker, self._transport = broker, transport
        self._fence = pb.ControllerHeader(
            controller_id=cluster.controller_id,
            controller_epoch=cluster.controller_epoch,
            broker_epoch=broker.epoch,
            event_id=event_id,
        )

    async def ask(self, request: pb.DescribeStateRequest) -> pb.DescribeStateResponse:
        """An answer under our fence, and of this very incarnation. Raises _EverythingError."""
        request.fence.CopyFrom(self._fence)
        retry_s, why = RETRY_FIRST_S, ""
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                await asyncio.sleep(retry_s)
                retry_s *= 2
            try:
                answer = await self._transport.describe_state(self.broker, request)
            except CannotAnswerError as error:
                raise _EverythingError(str(error)) from None
            except UnreachableError as error:
                why = str(error)
                continue
            if not answer.fenced:
                raise _EverythingError("it does not know how to fence")
            if answer.broker_epoch == self.broker.epoch:
                return answer
            why = f"it answers with broker epoch {answer.broker_epoch}, registered is {self.broker.epoch}"
        raise _EverythingError(why)

    async def topics(self) -> dict[str, _Digests]:
        """The digests of all topics of which the broker holds something. Raises _EverythingError."""
        held: dict[str, _Digests] = {}
        request = pb.DescribeStateRequest(topics=pb.TopicPage())
        while True:
            page = await self.ask(request)
            for topic in page.topics:
                digests = topic.digests
                held[topic.topic] = _Digests(digests.hosted, digests.metadata, digests.offline)
            if not page.more or not page.topics:
                return held
            request.topics.after = page.topics[-1].topic
