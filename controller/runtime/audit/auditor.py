"""Asks brokers, a tenth of them at a time, what they hold, and has them told again what differs.

A difference counts once two looks found the same one while nothing was pending for the broker. It is recorded, told
again at once, and from then on with growing delay until it is gone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import structlog

from controller.core.audit.newer_states import is_newer, newest
from controller.core.events import TellAgain
from controller.core.model import Broker, Cluster, ControlProtocol, LeaderAndIsr, Partition, Topic
from controller.core.records import AuditFinding
from controller.runtime.audit.differences import Difference, Held, Remedy, Side, differences
from controller.runtime.audit.expected import Expected, SharedLook, Totals
from controller.runtime.audit.kafka_look import AskKafka, KafkaLook
from controller.runtime.audit.transport import StateTransport
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.push.transport import UnreachableError
from proto.gen import broker_control_pb2 as pb
from proto.tasks import end_all

log = structlog.get_logger(__name__)

#: Between two looks of which both must find a difference: longer than an answer and what it changes take.
CONFIRM_S = 1.0
#: How long a look waits for pending pushes.
PENDING_S = 2.0
#: Between two slices of the digests of all partitions, while decisions are made or told.
BUSY_S = 0.05
#: Parts in which a round asks all brokers: what those of one part should hold is looked up once.
PARTS = 10
#: Topics that one look compares partition by partition, and differences kept of one broker.
TOPICS_MAX, KNOWN_MAX = 100, 1000
#: Delay from one telling to the next: doubled each time.
TELL_FIRST_S, TELL_MAX_S = 5.0, 600.0
Key = tuple[str, int, Side]


class Verdict(Enum):
    """What the last look at a broker found."""

    NOT_YET = "not asked yet"
    EQUAL = "equal"
    DIFFERENT = "different"
    PENDING = "pending"
    UNREACHABLE = "not reached"
    PARTIAL = "partly compared"


@dataclass
class Known:
    """A confirmed difference: how often it was told again, and when it is next."""

    difference: Difference
    told: int = 0
    next_s: float = 0.0


@dataclass
class BrokerAudit:
    """The audit of one broker incarnation. ``why`` explains the verdict; ``asked_s``: when, by the
    monotonic clock."""

    broker_epoch: int
    verdict: Verdict = Verdict.NOT_YET
    why: str = ""
    asked_s: float | None = None
    known: dict[Key, Known] = field(default_factory=dict)
    #: Leaders that knew a newer partition epoch at the last look: their state znodes were read again since.
    ahead: set[Difference] = field(default_factory=set)
    #: States that it was told and that were newer than ZooKeeper's at the last look, by topic and partition, and why
    #: they are not taken over yet.
    newer: dict[tuple[str, int], LeaderAndIsr] = field(default_factory=dict)
    newer_wait: str = ""
    #: Topics that differ and were not compared yet, because there are too many.
    left: int = 0
    #: The last topic that was compared, while there are too many for one look.
    last: str = ""

    def ended(self, verdict: Verdict, why: str = "") -> None:
        self.verdict, self.why = verdict, why
        if verdict in (Verdict.EQUAL, Verdict.DIFFERENT, Verdict.PARTIAL):
            self.asked_s = time.monotonic()

    @property
    def age_s(self) -> float | None:
        """Seconds since it was compared; None: it was not."""
        return time.monotonic() - self.asked_s if self.asked_s is not None else None


class _NotNowError(Exception):
    """The look ends here, with this verdict."""

    def __init__(self, verdict: Verdict, why: str) -> None:
        super().__init__(why)
        self.verdict, self.why = verdict, why


class Auditor:
    """``settled``: whether a broker has acknowledged all that was to be sent. ``open_transport``: a new one to some
    broker; ``ask_kafka``: one question to a Kafka broker. ``tell`` and ``record`` take what was found; ``heard`` is
    called with a broker's id at each answer. One round over all brokers takes about ``interval_s``. ``version`` is as
    for ``SharedLook``."""

    def __init__(
        self,
        cluster: Cluster,
        expected: Expected,
        metrics: ControllerMetrics,
        interval_s: float,
        *,
        settled: Callable[[int], bool],
        open_transport: Callable[[], StateTransport],
        ask_kafka: AskKafka,
        tell: Callable[[TellAgain], None],
        record: Callable[[Sequence[AuditFinding]], None],
        heard: Callable[[int], None],
        version: Callable[[], int | None],
    ) -> None:
        self._cluster, self._expected, self._metrics = cluster, expected, metrics
        self._interval_s = interval_s
        self._settled, self._open_transport, self._ask_kafka = settled, open_transport, ask_kafka
        self._tell, self._record, self._heard = tell, record, heard
        self._all_topics = SharedLook(expected, self._turn, version)
        #: Brokers whose looks wait for it.
        self._waiting: set[int] = set()
        #: One broker lists its topics at a time: the lists of many would be large.
        self._listing = asyncio.Lock()
        self._locks: dict[int, asyncio.Lock] = {}
        self.brokers: dict[int, BrokerAudit] = {}

    async def run(self) -> None:
        """Round after round, until cancelled; the first asks all brokers at once."""
        parts = 1
        while True:
            began_s = time.monotonic()
            ids = sorted(self._cluster.brokers)
            self._forget(ids)
            size = max(-(-len(ids) // parts), 1)
            for part in (ids[start : start + size] for start in range(0, len(ids), size)):
                await self._look_at_all(part)
                await self._look_at_the_rest(part)
                await asyncio.sleep(self._interval_s * len(part) / len(ids) / 2)
            parts = PARTS
            await asyncio.sleep(max(self._interval_s - (time.monotonic() - began_s), 0.1))

    async def _look_at_the_rest(self, ids: Collection[int]) -> None:
        """Of brokers with too many topics that differ, once each."""
        known = {id_: audit for id_ in ids if (audit := self.brokers.get(id_)) is not None}
        looks = {id_: -(-audit.left // TOPICS_MAX) for id_, audit in known.items()}
        for done in range(max(looks.values(), default=0)):
            await self._look_at_all([id_ for id_, count in looks.items() if count > done])

    async def _look_at_all(self, ids: Collection[int]) -> None:
        looks = [asyncio.create_task(self.look(id_), name=f"audit-of-broker-{id_}") for id_ in ids]
        try:
            await asyncio.gather(*looks)
        finally:
            await end_all(looks)

    def _forget(self, ids: Collection[int]) -> None:
        for gone in self.brokers.keys() - set(ids):
            del self.brokers[gone]
            self._locks.pop(gone, None)

    def known_of(self, topic: str, number: int) -> list[tuple[int, Difference]]:
        """The confirmed differences about one partition, by broker."""
        return [
            (broker_id, held.difference)
            for broker_id, audit in sorted(self.brokers.items())
            for side in Side
            if (held := audit.known.get((topic, number, side))) is not None
        ]

    async def look(self, broker_id: int, topics: Collection[str] = ()) -> BrokerAudit | None:
        """Compare one broker now; only some topics, if named. None: it is not registered."""
        async with self._locks.setdefault(broker_id, asyncio.Lock()):
            broker = self._cluster.brokers.get(broker_id)
            if broker is None:
                return None
            audit = self.brokers.get(broker_id)
            if audit is None or audit.broker_epoch != broker.epoch:
                audit = self.brokers[broker_id] = BrokerAudit(broker.epoch)
            try:
                if broker.control_protocol is ControlProtocol.KAFKA:
                    await self._look_at_kafka(broker, audit, topics)
                else:
                    read_again = await self._look_at(broker, audit, topics)
                    # What is newer still, ZooKeeper has forgotten.
                    if read_again:
                        await self._look_at(broker, audit, read_again)
                self._heard(broker_id)
            except _NotNowError as end:
                audit.ended(end.verdict, end.why)
            except UnreachableError as error:
                audit.ended(Verdict.UNREACHABLE, str(error))
            return audit

    async def _look_at(self, broker: Broker, audit: BrokerAudit, topics: Collection[str]) -> Collection[str]:
        """Topics of which states are read again now, because their leaders know newer ones."""
        transport = self._open_transport()
        try:
            look = self._new_look(broker, transport)
            found = await look.confirmed(topics, audit.last)
            newer = {d.key[:2]: d.newer for d in found if d.newer is not None}
            examined = look.examined
            # What was not looked at stays.
            others = {
                k: told for k, told in audit.newer.items() if examined is not None and k[0] not in examined
            }
            audit.newer = others | newer
            found = await self._outdone(broker, audit, transport, found)
        finally:
            await transport.close()
        read_again = self._keep(broker, audit, found, look.examined)
        if not topics:
            audit.left, audit.last = look.left, look.last
        audit.ended(Verdict.DIFFERENT if audit.known or audit.left else Verdict.EQUAL)
        return read_again

    def _new_look(self, broker: Broker, transport: StateTransport) -> _Look:
        return _Look(
            self._cluster, self._expected, broker, transport, self._totals, self._listing, self._until_settled
        )

    async def _totals(self, broker_id: int) -> Totals:
        """What all brokers should hold, for a look at one of them."""
        self._waiting.add(broker_id)
        try:
            return await self._all_topics.totals()
        finally:
            self._waiting.discard(broker_id)

    async def _turn(self) -> None:
        # What is decided just now waits for nothing of this.
        await asyncio.sleep(0 if all(map(self._settled, self._waiting)) else BUSY_S)

    def newer_states(self, broker_id: int) -> tuple[int, str]:
        """Of how many partitions a broker was told newer states than ZooKeeper has now, and why these cannot be
        taken over yet; empty: they can."""
        audit = self.brokers.get(broker_id)
        if audit is None or not audit.newer:
            return 0, ""
        known = ((self._cluster.partition(*key), told) for key, told in audit.newer.items())
        count = sum(
            p is not None and p.leadership is not None and is_newer(told, p.leadership) for p, told in known
        )
        return count, audit.newer_wait if count else ""

    @property
    def newer_somewhere(self) -> bool:
        """Whether a broker is known to have been told newer states than ZooKeeper has now."""
        return any(self.newer_states(id_)[0] for id_ in self._cluster.brokers)

    @property
    def uncompared(self) -> frozenset[int]:
        """The epochs of brokers that may answer and were not compared, or not in whole, since they registered."""
        return frozenset(b.epoch for b in self._cluster.brokers.values() if not self._is_compared(b))

    def _is_compared(self, broker: Broker) -> bool:
        """Or does not answer."""
        audit = self.brokers.get(broker.id)
        if audit is None or audit.broker_epoch != broker.epoch or audit.left:
            return False
        return audit.asked_s is not None or audit.verdict is Verdict.UNREACHABLE

    @property
    def round_s(self) -> float:
        """Within so long each broker that is registered is asked, even one that has just missed its part of a round."""
        return 1.5 * self._interval_s + CONFIRM_S + PENDING_S

    async def _outdone(
        self, broker: Broker, audit: BrokerAudit, transport: StateTransport, found: Sequence[Difference]
    ) -> list[Difference]:
        """With the newest of the states that brokers were told, where ZooKeeper has an older one: another broker may
        know a still newer one. Raises _NotNowError while one does not answer."""
        newer = {d.key: d.newer for d in found if d.newer is not None}
        topics = list(dict.fromkeys(topic for topic, _, _ in newer))
        for other in list(self._cluster.brokers.values()) if newer else ():
            if other.id == broker.id or other.control_protocol is ControlProtocol.KAFKA:
                continue
            try:
                held = await self._new_look(other, transport).differences(topics)
            except (_NotNowError, UnreachableError) as why:
                audit.newer_wait = f"broker {other.id} may know newer ones: {why}"
                who = f"it was told newer states than ZooKeeper has, perhaps broker {other.id}, too"
                raise _NotNowError(Verdict.PENDING, f"{who}: {why}") from None
            for difference in held:
                if difference.key in newer and difference.newer is not None:
                    newer[difference.key] = newest(difference.newer, newer[difference.key])
        if newer:
            audit.newer_wait = ""
        return [dataclasses.replace(d, newer=newer[d.key]) if d.key in newer else d for d in found]

    async def _look_at_kafka(self, broker: Broker, audit: BrokerAudit, topics: Collection[str]) -> None:
        look = KafkaLook(self._cluster, broker, self._ask_kafka, self._until_settled, audit.last)
        found = await look.differences(topics)
        if found:
            await asyncio.sleep(CONFIRM_S)
            names = {difference.topic for difference in found}
            # Of a topic that does not exist only a look at everything tells.
            chosen = names if names <= self._cluster.topics.keys() else topics
            second = KafkaLook(self._cluster, broker, self._ask_kafka, self._until_settled, audit.last)
            again = set(await second.differences(chosen))
            found = [difference for difference in found if difference in again]
        self._keep(broker, audit, found, look.examined)
        if not topics:
            audit.last = look.last
        why = look.partial
        if look.last and not topics:
            why = ", ".join(filter(None, (why, f"topics after {look.last} follow in the next look")))
        verdict = Verdict.PARTIAL if look.partial else Verdict.EQUAL
        audit.ended(Verdict.DIFFERENT if audit.known else verdict, why)

    async def _until_settled(self, broker_id: int) -> None:
        end_s = time.monotonic() + PENDING_S
        while not self._settled(broker_id):
            if time.monotonic() > end_s:
                raise _NotNowError(Verdict.PENDING, "it has not acknowledged all pushes")
            await asyncio.sleep(0.1)

    # what becomes of it

    def _keep(
        self,
        broker: Broker,
        audit: BrokerAudit,
        found: Iterable[Difference],
        examined: Collection[str] | None,
    ) -> Collection[str]:
        """Differences of ``examined`` topics (None: all) are those found; others stay. Topics of which states are read
        again."""
        now_s = time.monotonic()
        fresh = {difference.key: difference for difference in found}
        ahead = {difference for difference in fresh.values() if difference.ahead}
        if unread := ahead - audit.ahead:
            named = sorted((d.topic, d.partition) for d in unread)
            known = [self._cluster.partition(*key) for key in named]
            self._tell(TellAgain(broker.id, broker.epoch, read=[p for p in known if p is not None]))
            fresh = {key: difference for key, difference in fresh.items() if difference not in unread}
        audit.ahead = ahead
        findings: list[AuditFinding] = []
        for key in [k for k in audit.known if k not in fresh and (examined is None or k[0] in examined)]:
            gone = audit.known.pop(key).difference
            findings.append(self._finding(broker, gone, "agrees", gone.side.value))
        for key, difference in fresh.items():
            held = audit.known.get(key)
            if held is None:
                if len(audit.known) >= KNOWN_MAX and difference.remedy is not Remedy.NEWER:
                    continue
                held = audit.known[key] = Known(difference)
                findings.append(self._finding(broker, difference, "differs", str(difference)))
            held.difference = difference
        due = [
            h for h in audit.known.values() if h.difference.remedy is not Remedy.NONE and h.next_s <= now_s
        ]
        for held in due:
            held.next_s = now_s + min(TELL_FIRST_S * 2**held.told, TELL_MAX_S)
            held.told += 1
            findings.append(
                self._finding(broker, held.difference, "told_again", f"{held.difference}; time {held.told}")
            )
        if findings:
            self._record(findings)
        if due:
            self._metrics.audit.told_again.labels(broker.id).inc(len(due))
            log.warning("broker_told_again", broker_id=broker.id, differences=len(due))
            self._tell(self._report(broker, [h.difference for h in due]))
        return sorted({difference.topic for difference in unread})

    def _finding(self, broker: Broker, difference: Difference, to: str, reason: str) -> AuditFinding:
        known = self._cluster.partition(difference.topic, difference.partition)
        partition = known or Partition(Topic(difference.topic), difference.partition, ())
        return AuditFinding(partition, broker.id, to, reason)

    def _report(self, broker: Broker, due: Sequence[Difference]) -> TellAgain:
        def present(side: Side, remedy: Remedy) -> list[tuple[Partition, Difference]]:
            chosen = [d for d in due if d.side is side and d.remedy is remedy]
            found = [(self._cluster.partition(d.topic, d.partition), d) for d in chosen]
            return [(partition, d) for partition, d in found if partition is not None]

        return TellAgain(
            broker.id,
            broker.epoch,
            [partition for partition, _ in present(Side.HOSTED, Remedy.TELL)],
            [(partition, d.floor) for partition, d in present(Side.HOSTED, Remedy.RAISE)],
            [partition for partition, _ in present(Side.METADATA, Remedy.TELL)],
            [(d.topic, d.partition) for d in due if d.remedy is Remedy.FORGET],
            newer=[(p, d.newer) for p, d in present(Side.HOSTED, Remedy.NEWER) if d.newer is not None],
        )


class _Look:
    """One comparison of one broker."""

    def __init__(
        self,
        cluster: Cluster,
        expected: Expected,
        broker: Broker,
        transport: StateTransport,
        totals: Callable[[int], Awaitable[Totals]],
        listing: asyncio.Lock,
        until_settled: Callable[[int], Awaitable[None]],
    ) -> None:
        self._cluster, self._expected, self._broker, self._transport = cluster, expected, broker, transport
        self._totals, self._listing, self._until_settled = totals, listing, until_settled
        #: The topics that were compared partition by partition; None: all agree but those with differences.
        self.examined: set[str] | None = None
        self.left, self.last = 0, ""

    async def confirmed(self, topics: Collection[str], after: str) -> list[Difference]:
        """The differences that two looks found; of too many topics beginning with that after ``after``. Raises
        _NotNowError and UnreachableError."""
        suspects = list(topics) or await self._suspects(after)
        if topics or self.left:
            self.examined = set(suspects)
        first = await self.differences(suspects)
        if not first:
            return []
        await asyncio.sleep(CONFIRM_S)
        again = await self.differences(list(dict.fromkeys(d.topic for d in first)))
        known = set(first)
        return [difference for difference in again if difference in known]

    async def _suspects(self, after: str) -> list[str]:
        """Topics whose digests differ from what they should be; at most ``TOPICS_MAX``, up to ``last``, and ``left``
        more."""
        await self._until_settled(self._broker.id)
        expected = await self._totals(self._broker.id)
        answer = await self._ask(pb.DescribeStateRequest())
        hosted = expected.hosted.get(self._broker.id, 0)
        if (answer.digests.hosted, answer.digests.metadata) == (hosted, expected.metadata):
            return []
        async with self._listing:
            return await self._unequal_topics(after)

    async def _unequal_topics(self, after: str) -> list[str]:
        held: dict[str, tuple[int, int]] = {}
        request = pb.DescribeStateRequest(topics=pb.TopicPage())
        while True:
            page = await self._ask(request)
            held.update((t.topic, (t.digests.hosted, t.digests.metadata)) for t in page.topics)
            if not page.more or not page.topics:
                break
            request.topics.after = page.topics[-1].topic
        suspects = [
            name
            for name in sorted(held.keys() | self._cluster.topics.keys())
            if await self._differs(name, held)
        ]
        if len(suspects) <= TOPICS_MAX:
            return suspects
        begin = bisect_right(suspects, after)
        chosen = (suspects[begin:] + suspects[:begin])[:TOPICS_MAX]
        self.left, self.last = len(suspects) - TOPICS_MAX, chosen[-1]
        return chosen

    async def _differs(self, name: str, held: dict[str, tuple[int, int]]) -> bool:
        topic = self._cluster.topics.get(name)
        if topic is None:
            return held.get(name, (0, 0)) != (0, 0)
        if name in self._cluster.topics_to_delete:
            return False
        expected = await self._expected.topic(topic)
        return held.get(name, (0, 0)) != (expected.hosted.get(self._broker.id, 0), expected.metadata)

    async def differences(self, topics: Iterable[str]) -> list[Difference]:
        found: list[Difference] = []
        for topic in topics:
            held = Held()
            request = pb.DescribeStateRequest(partitions=pb.PartitionPage(topic=topic))
            more = True
            while more:
                page = await self._ask(request)
                held.add(page)
                more = page.more
                numbers = [*(r.partition for r in page.hosted), *(k.partition for k in page.known)]
                request.partitions.first = max(numbers, default=-1) + 1
            found.extend(differences(self._cluster, self._broker.id, topic, held))
        return found

    async def _ask(self, request: pb.DescribeStateRequest) -> pb.DescribeStateResponse:
        """An answer from which nothing is missing that is on its way. Raises _NotNowError and UnreachableError."""
        await self._until_settled(self._broker.id)
        answer = await self._transport.describe_state(self._broker, request)
        await self._until_settled(self._broker.id)
        registered = self._cluster.brokers.get(self._broker.id)
        if registered is None or registered.epoch != self._broker.epoch:
            # Nothing is pending for a broker that is gone.
            raise _NotNowError(Verdict.UNREACHABLE, "its registration has ended")
        if answer.broker_epoch != self._broker.epoch:
            why = f"it answers with broker epoch {answer.broker_epoch}, registered is {self._broker.epoch}"
            raise _NotNowError(Verdict.PENDING, why)
        if answer.controller_epoch != self._cluster.controller_epoch:
            why = f"it has seen controller epoch {answer.controller_epoch}, ours is {self._cluster.controller_epoch}"
            raise _NotNowError(Verdict.PENDING, why)
        return answer
