"""Three brokers' replication under everything that may happen to it: what is acknowledged is never lost.

The brokers' own code runs on a clock that the test tells: managers, fetchers, services, ISR proposals. The
network delivers in any order, twice, late or never; brokers crash and restart with their logs; sessions end
while brokers live on. The controller elects from the ISR only.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from broker_stub.control.requests import LeaderAndIsr
from broker_stub.errors import BrokerError
from broker_stub.replication.fetcher import FetchSettings
from broker_stub.replication.ports import IsrProposal, IsrResult, IsrUnanswered
from proto.gen import common_pb2 as codes
from tests.support.broker.memory_log import MemoryLog
from tests.support.broker.replication_fakes import (
    FOO,
    Broker,
    FailingLog,
    MemoryLogs,
    ToldClock,
    batch,
    content,
    fetch_request,
    order,
    produce_request,
    settle,
)

BROKERS = (0, 1, 2)
LAG_MAX_MS = 1000


class Controller:
    """The authoritative state, and what it tells each broker: in order for one broker, in none between them."""

    def __init__(self) -> None:
        self.live = set(BROKERS)
        self.leader, self.leader_epoch = 0, 0
        self.isr: tuple[int, ...] = BROKERS
        self.partition_epoch = 0
        self.queues: dict[int, deque[tuple[frozenset[int], LeaderAndIsr]]] = {b: deque() for b in BROKERS}
        self.tell()

    def tell(self) -> None:
        now = order(self.leader, self.leader_epoch, self.isr, self.partition_epoch)
        for broker in self.live:
            self.queues[broker].append((frozenset(self.live), now))

    def change(self, leader: int, isr: tuple[int, ...]) -> None:
        self.leader, self.isr = leader, isr
        self.leader_epoch += 1
        self.partition_epoch += 1
        self.tell()

    def died(self, broker: int) -> None:
        self.live.discard(broker)
        self.queues[broker].clear()
        alive = tuple(b for b in self.isr if b in self.live)
        leader = self.leader if self.leader in self.live else (alive[0] if alive else -1)
        # The last member stays: it alone may lead again.
        self.change(leader, alive or self.isr)

    def came(self, broker: int) -> None:
        self.live.add(broker)
        self.queues[broker].clear()
        if self.leader == -1 and broker in self.isr:
            self.change(broker, (broker,))
        else:
            self.tell()

    def alter(self, proposal: IsrProposal) -> IsrResult:
        """The checks of section 8.4, in their order."""
        if proposal.partition_epoch > self.partition_epoch or proposal.leader_epoch > self.leader_epoch:
            return IsrResult(FOO, codes.NOT_CONTROLLER)
        if proposal.leader_epoch < self.leader_epoch:
            return IsrResult(FOO, codes.FENCED_LEADER_EPOCH)
        if set(proposal.isr) != set(self.isr):
            if proposal.partition_epoch < self.partition_epoch:
                return IsrResult(FOO, codes.INVALID_UPDATE_VERSION)
            if not self.live.issuperset(proposal.isr):
                return IsrResult(FOO, codes.INELIGIBLE_REPLICA)
            self.isr = proposal.isr
            self.partition_epoch += 1
        return IsrResult(FOO, codes.NONE, self.leader, self.leader_epoch, self.isr, self.partition_epoch)


class Message(NamedTuple):
    """Something on its way. ``deliver`` makes it arrive, ``lose`` tells the sender that it did not."""

    name: str
    parties: frozenset[int]
    deliver: Callable[[], None]
    lose: Callable[[], None]
    again: Callable[[], None] | None = None


class Node:
    """One broker over its lives: the logs stay, the rest goes with each."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.logs = MemoryLogs()
        self.checkpoint = 0
        self.life = 0
        self.broker: Broker | None = None


class World:
    """Brokers, network, controller, and what clients were told."""

    def __init__(self) -> None:
        self.loop = ToldClock()
        self.controller = Controller()
        self.nodes = [Node(b) for b in BROKERS]
        self.messages: list[Message] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self.produced = 0
        #: By offset: what some high watermark has passed.
        self.committed: list[tuple[int, str]] = []
        self.acknowledged: list[tuple[int, str]] = []
        self.consumed: dict[int, tuple[int, str]] = {}

    def begin(self, least: int, on_fetch: bool) -> None:
        self.least = least
        self.fetch = FetchSettings(truncation_on_fetch=on_fetch, backoff_ms=200)
        for node in self.nodes:
            self._run(self._start, node)
        self.calm()

    # the loop

    def _run(self, work: Callable[..., Any], *arguments: Any) -> None:
        async def step() -> None:
            result = work(*arguments)
            if asyncio.iscoroutine(result):
                await result
            await settle()

        self.loop.run_until_complete(step())

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def _spawn_in_passing(self, work: Callable[[bool], Any], wanted: bool) -> None:
        self._spawn(work(wanted))

    def close(self) -> None:
        self.loop.run_until_complete(self._end())
        self.loop.close()

    async def _end(self) -> None:
        for node in self.nodes:
            if node.broker is not None:
                await node.broker.manager.stop()
        for task in list(self.tasks):
            task.cancel()
        await settle()

    # brokers

    def _start(self, node: Node) -> None:
        node.life += 1
        node.broker = Broker(
            node.broker_id,
            respond=lambda method, to, request: self._call(node, method, to, request),
            writer=_Asking(self, node),
            logs=node.logs,
            least=self.least,
            live=(),
            high_watermarks={FOO: node.checkpoint},
            fetch=self.fetch,
            lag_max_ms=LAG_MAX_MS,
        )
        node.broker.manager.start()

    async def _call(self, node: Node, method: str, to: int, request: object) -> object:
        answer: asyncio.Future[object] = self.loop.create_future()
        name = f"{node.broker_id} to {to}: {method}"
        self.send(name, {node.broker_id, to}, lambda: self._serve(to, method, request), answer)
        return await answer

    async def _serve(self, to: int, method: str, request: object) -> object:
        broker = self.nodes[to].broker
        if broker is None:
            raise BrokerError("down")
        life = self.nodes[to].life
        answer = await getattr(broker.service, method)(request)
        if self.nodes[to].life != life or self.nodes[to].broker is None:
            raise BrokerError("went down")
        return answer

    def send(
        self, name: str, parties: Iterable[int], serve: Callable[[], Any], answer: asyncio.Future[Any]
    ) -> None:
        """Put a request on its way; its answer will be on its own way back."""

        involved = frozenset(parties)

        async def arrive(wanted: bool) -> None:
            try:
                result = await serve()
            except BrokerError as error:
                if wanted and not answer.done():
                    answer.set_exception(error)
                return
            if wanted and not answer.done():
                back = Message(f"answer of {name}", involved, lambda: _set(answer, result), lose)
                self.messages.append(back)

        def lose() -> None:
            if not answer.done():
                answer.set_exception(BrokerError(f"{name}: lost"))

        once, again = (
            partial(self._spawn_in_passing, arrive, True),
            partial(self._spawn_in_passing, arrive, False),
        )
        self.messages.append(Message(name, involved, once, lose, again))

    # what happens to messages

    def deliver(self, pick: int) -> None:
        self._run(self.messages.pop(pick % len(self.messages)).deliver)

    def deliver_again_later(self, pick: int) -> None:
        """It arrives, and once more some time afterwards."""
        message = self.messages[pick % len(self.messages)]
        if message.again is not None:
            self._run(message.again)

    def lose(self, pick: int, noticed: bool) -> None:
        message = self.messages.pop(pick % len(self.messages))
        if noticed:
            self._run(message.lose)

    def control(self, node: int) -> None:
        self._run(self._control, node)

    async def _control(self, node: int) -> None:
        broker, queue = self.nodes[node].broker, self.controller.queues[node]
        if broker is not None and queue:
            live, item = queue.popleft()
            broker.know(live)
            await broker.notified(item)

    def calm(self, rounds: int = 4, apart: int | None = None, orders: bool = True) -> None:
        """Everything arrives, in order, for a while; nothing from or for who stands ``apart``."""
        for _ in range(rounds):
            for node in BROKERS:
                for _ in range(len(self.controller.queues[node]) if orders and node != apart else 0):
                    self._run(self._control, node)
            going = [message for message in self.messages if apart not in message.parties]
            self.messages = [message for message in self.messages if apart in message.parties]
            for message in going:
                self._run(message.deliver)

    def time_passes(self, pause_ms: int) -> None:
        self._pass(pause_ms)

    def _pass(self, pause_ms: int) -> None:
        self.loop.now += pause_ms / 1000
        self._run(lambda: None)

    # what clients do

    def produce(self, node: int) -> None:
        self._run(self._produce, node)

    def produce_to_the_leader(self, count: int) -> None:
        for _ in range(count):
            self._run(self._produce, max(self.controller.leader, 0))

    def _produce(self, node: int) -> None:
        broker = self.nodes[node].broker
        if broker is not None:
            value = f"v{self.produced}"
            self.produced += 1
            self._spawn(self._await_acknowledgement(broker, value))

    async def _await_acknowledgement(self, broker: Broker, value: str) -> None:
        response = await broker.service.produce(produce_request(batch(value), timeout_ms=60_000))
        answer = response.partitions[0]
        if answer.error_code == codes.NONE:
            self.acknowledged.append((answer.base_offset, value))

    def consume(self, node: int) -> None:
        self._run(self._consume, node)

    async def _consume(self, node: int) -> None:
        broker = self.nodes[node].broker
        if broker is None:
            return
        response = await broker.service.fetch(fetch_request())
        for answer in response.partitions:
            if answer.error_code == codes.NONE:
                log = MemoryLog()
                log.append_as_follower(answer.records)
                for offset, record in enumerate(content(log)):
                    assert self.consumed.setdefault(offset, record) == record, "a consumer saw another record"

    # what happens to brokers

    def crash(self, node: int, checkpointed: bool) -> None:
        """All of its memory goes; the checkpoint may be an old one."""
        self._run(self._crash, self.nodes[node], checkpointed)

    async def _crash(self, node: Node, checkpointed: bool) -> None:
        broker = node.broker
        if broker is None:
            return
        node.broker = None
        if checkpointed and (partition := broker.manager.get(FOO)) is not None:
            node.checkpoint = partition.high_watermark
        # Nobody learns of the end of what a dead broker was doing.
        broker.manager.ack_waiters = type(broker.manager.ack_waiters)()
        await broker.manager.stop()
        old = node.logs.by_key.get(FOO)
        if old is not None:
            # An epoch that has no records is not on the disk.
            fresh = node.logs.by_key[FOO] = FailingLog()
            fresh.append_as_follower(old.read(0, 2**31, old.log_end_offset))

    def restart(self, node: int) -> None:
        self._restart(node)

    def _restart(self, node: int) -> None:
        if self.nodes[node].broker is None:
            if node in self.controller.live:
                self.controller.died(node)
            self._run(self._start, self.nodes[node])
            self.controller.came(node)

    def session_ends(self, node: int) -> None:
        """The controller takes it for dead, which it may be or not."""
        if node in self.controller.live:
            self.controller.died(node)

    def registers(self, node: int) -> None:
        if node not in self.controller.live and self.nodes[node].broker is not None:
            self.controller.came(node)

    def elect_another(self, pick: int) -> None:
        able = [b for b in self.controller.isr if b in self.controller.live]
        if able:
            self.controller.change(able[pick % len(able)], self.controller.isr)

    # what must hold

    def nothing_committed_is_lost(self) -> None:
        for node in self.nodes:
            log = node.logs.by_key.get(FOO)
            partition = node.broker.manager.get(FOO) if node.broker is not None else None
            if log is None or partition is None:
                continue
            below = content(log)[: partition.high_watermark]
            assert len(below) == partition.high_watermark, f"{node.broker_id}: high watermark above the end"
            known = self.committed[: len(below)]
            assert below[: len(known)] == known, f"{node.broker_id} differs below its high watermark"
            self.committed.extend(below[len(known) :])
        for offset, value in self.acknowledged:
            found = self.committed[offset : offset + 1]
            assert [v for _, v in found] == [value], (
                f"{value} at {offset} was acknowledged and is not committed"
            )
        for offset, record in self.consumed.items():
            assert self.committed[offset : offset + 1] == [record], (
                f"offset {offset} was seen before it was safe"
            )

    def whoever_may_be_elected_has_it_all(self) -> None:
        for broker_id in self.controller.isr:
            log = self.nodes[broker_id].logs.by_key.get(FOO)
            has = content(log) if log is not None else []
            assert has[: len(self.committed)] == self.committed, (
                f"{broker_id} is in the ISR without all records"
            )

    def nothing_broke(self) -> None:
        for node in self.nodes:
            if node.broker is not None:
                assert not node.broker.failures
                assert not node.broker.bugs

    def check(self) -> None:
        self.nothing_committed_is_lost()
        self.whoever_may_be_elected_has_it_all()
        self.nothing_broke()

    def heal(self) -> None:
        """Once everything works again, every replica is in the ISR and has the same records: nobody is stuck."""
        for broker_id in BROKERS:
            self._restart(broker_id)
            self.registers(broker_id)
        self._pass(11_000)  # whoever waits for an answer that was lost gives up
        for _ in range(40):
            self.calm(2)
            self._pass(100)
        self.check()
        contents = [content(node.logs.by_key[FOO]) for node in self.nodes]
        assert set(self.controller.isr) == set(BROKERS), f"{self.controller.isr}: a follower is stuck"
        assert contents[0] == contents[1] == contents[2]
        for node in self.nodes:
            assert node.broker is not None
            partition = node.broker.manager.get(FOO)
            assert partition is not None
            assert partition.high_watermark == partition.log.log_end_offset, repr(partition)


class _Asking:
    """A broker's way to the controller, over the same network."""

    def __init__(self, world: World, node: Node) -> None:
        self._world, self._node = world, node

    async def propose(self, proposals: Sequence[IsrProposal]) -> Sequence[IsrResult]:
        world = self._world
        answer: asyncio.Future[Sequence[IsrResult]] = world.loop.create_future()

        async def decide() -> Sequence[IsrResult]:
            return [world.controller.alter(proposal) for proposal in proposals]

        name = f"{self._node.broker_id}: ISR {[p.isr for p in proposals]}"
        world.send(name, {self._node.broker_id}, decide, answer)
        try:
            async with asyncio.timeout(10.0):
                return await answer
        except (BrokerError, TimeoutError) as error:
            raise IsrUnanswered(str(error)) from None


def _set(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def moves(world: World, draw: random.Random) -> list[tuple[float, Callable[[], None]]]:
    """What may happen next, and how likely."""

    def node() -> int:
        return draw.choice(BROKERS)

    def pick() -> int:
        return draw.randrange(8)

    def on_message(act: Callable[[], None]) -> Callable[[], None]:
        return lambda: act() if world.messages else None

    return [
        (8.0, on_message(lambda: world.deliver(pick()))),
        (2.0, on_message(lambda: world.deliver_again_later(pick()))),
        (2.0, on_message(lambda: world.lose(pick(), draw.random() < 0.7))),
        (4.0, lambda: world.control(node())),
        (3.0, lambda: world.calm(draw.randint(1, 4), draw.choice([None, *BROKERS]), draw.random() < 0.6)),
        (3.0, lambda: world.time_passes(draw.choice([20, 100, 500, 600]))),
        (1.0, lambda: world.time_passes(draw.choice([1100, 11_000]))),
        (5.0, lambda: world.produce_to_the_leader(1)),
        (1.0, lambda: world.produce(node())),
        (1.0, lambda: world.consume(node())),
        (1.0, lambda: world.crash(node(), draw.random() < 0.5)),
        (1.5, lambda: world.restart(node())),
        (0.7, lambda: world.session_ends(node())),
        (1.5, lambda: world.registers(node())),
        (1.0, lambda: world.elect_another(pick())),
    ]


def walk(seed: int, steps: int = 200) -> World:
    """Raises AssertionError when something was lost on the way or somebody is stuck in the end."""
    draw = random.Random(seed)
    world = World()
    try:
        world.begin(draw.choice([1, 2]), draw.random() < 0.5)
        weights, acts = zip(*moves(world, draw), strict=True)
        for _ in range(steps):
            draw.choices(acts, weights)[0]()
            world.check()
        world.heal()
    finally:
        world.close()
    return world
