"""One run: the cluster, its clients and operators, what is done to them by the plan, and what must hold."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

from controller.runtime.audit.auditor import Verdict
from tests.provers.sim.actors import controllers
from tests.provers.sim.actors.brokers import SimBroker, brokers_on
from tests.provers.sim.actors.clients import SimClient, SimConsumer, SimGroupMember, SimProbe, SimProducer
from tests.provers.sim.actors.controllers import SimController
from tests.provers.sim.actors.kafka_controller import KafkaController
from tests.provers.sim.actors.operators import Operator
from tests.provers.sim.actors.poison import TOPIC, PlantedError, poison
from tests.provers.sim.checks.explanations import unexplained
from tests.provers.sim.checks.history import History
from tests.provers.sim.checks.ledger import Ledger
from tests.provers.sim.checks.memory import Memory
from tests.provers.sim.checks.refusals import Refusals
from tests.provers.sim.checks.stored import Partition, State
from tests.provers.sim.checks.tools import Tools
from tests.provers.sim.environment.loop import BEGINNING_S, Process, VirtualTimeLoop
from tests.provers.sim.environment.rpc import Weather, Wires, grpc_on
from tests.provers.sim.environment.steps import steps_of
from tests.provers.sim.odd.scenarios import Oddities
from tests.provers.sim.plans.abuse import WIDE
from tests.provers.sim.plans.aims import Aims
from tests.provers.sim.plans.conflicts import Conflicts
from tests.provers.sim.plans.faults import Faults
from tests.provers.sim.plans.plan import AIM, APART, FAULTS, TAMPERING, VICTIM, Action, Options, Plan
from tests.provers.sim.zookeeper.ensemble import Backup, Ensemble
from tests.provers.sim.zookeeper.ensemble import Options as Zookeeper
from tests.provers.sim.zookeeper.messages import Code, Create, Multi, Operation, Reply, Value
from tests.provers.sim.zookeeper.network import Network
from tests.provers.sim.zookeeper.session import sessions_on
from tests.provers.sim.zookeeper.tree import Node, Transaction

#: How long all may take to come to rest once nothing goes wrong any more, virtual seconds.
SETTLE_S = 60.0
LOOK_S = 0.25
_QUIET = 60
#: Of who may do what, where it takes a certificate.
RULES = Path(__file__).parent / "environment" / "rules.toml"


class Violated(Exception):  # noqa: N818
    """Something did not hold: the run ends."""


class SimulatedCluster:
    """Made within the loop. Brokers and controllers by id."""

    def __init__(self, plan: Plan, loop: VirtualTimeLoop, stack: ExitStack, *, telling: bool) -> None:
        options = plan.options
        self.plan, self.loop = plan, loop
        self.rng = Random(f"{plan.seed}:run")
        self.violations: list[str] = []
        self.story: list[str] = []
        self._telling = telling
        self.ended_early: set[int] = set()
        #: Somebody edited a state znode, or a broker forgot something: the audit has something to find.
        self.tampered = False
        #: The victim's znodes were removed by hand: brokers were told nothing of it, and keep what they hold.
        self.by_hand = False
        #: An operator had a broker stay that was about to be let go.
        self.shutdown_undone = any(action.kind == "cancel_shutdown" for action in plan.actions)
        self._trace = blake2b(digest_size=16)
        self.ended = asyncio.Event()
        self.history = History(lambda: round(loop.time() * 1e6), self._topic_id)
        self.ledger = Ledger(self.violated, self._writer, self.history.excuse)
        permits = {"elect_unclean", "set_unclean"}
        self.ledger.unclean_possible = options.unclean or any(
            not permits.isdisjoint((a.kind, *a.arguments)) for a in plan.actions
        )
        self.ledger.disks = options.disks
        ensemble = Ensemble(options.zookeepers, Zookeeper(multi_read=options.multi_read))
        ensemble.on_agreed = self._agreed
        self.zk = Network(ensemble, self._zk_delay_s)
        self.ledger.is_live = lambda session_id: session_id in ensemble.sessions
        kafka_rng = Random(f"{plan.seed}:kafka")
        self.kafka = KafkaController(ensemble, self.ask_zookeeper, kafka_rng) if options.takeover else None
        self.rpc = Wires(loop, Random(f"{plan.seed}:wires"), _weather(options))
        self.rpc.on_request += [self._requested, self.ledger.control_request]
        self.rpc.on_send.append(self._sent)
        for context in (
            sessions_on(self.zk),
            grpc_on(self.rpc, secured=options.secured),
            controllers.controllers(),
            brokers_on(self),
            steps_of(options.step),
        ):
            stack.enter_context(context)
        if options.poison:
            stack.enter_context(poison())
        self.rpc.on_request.append(self.history.request_arrived)
        self.controllers = {
            id_: SimController(self, id_, self._audited, _controller_settings(options))
            for id_ in range(1, options.controllers + 1)
        }
        #: Copies of controllers, by id.
        self.namesakes: dict[int, SimController] = {}
        self.brokers = {
            id_: SimBroker(self, id_, _broker_settings(options, id_), options.disks)
            for id_ in range(1, options.brokers + 1)
        }
        for broker in self.brokers.values():
            for disk in broker.disks:
                disk.on_append = self.history.appended
            broker.on_leaving = partial(self._leaving, broker)
        self.memory = Memory(self, self.violated)
        self.refusals = Refusals(self.violated)
        self.tools = Tools(self, self.violated)
        self.rpc.on_request.append(self.memory.requested)
        self.rpc.on_answer.append(self.memory.answered)
        self.bootstrap = [broker.address for broker in self.brokers.values()]
        self.clients = self._make_clients(options)
        self.operator = Operator(self)
        self.oddities = Oddities(self)
        self.faults = Faults(self)
        self.aims = Aims(loop, self._strike)
        self.conflicts = Conflicts(self)
        self._tell_of_moments()

    def _tell_of_moments(self) -> None:
        """To those who wait for one, or look into brokers at one."""
        self.ledger.forgotten.process_of = lambda id_: (
            self.brokers[id_].incarnations if id_ in self.brokers else 0
        )
        self.ledger.forgotten.remembered = lambda id_, key: self.brokers[id_].remembered(key)
        self.ledger.forgotten.is_running = lambda id_: self.brokers[id_].alive
        self.ledger.forgotten.is_registered = lambda id_: self.node(f"/brokers/ids/{id_}") is not None
        self.ledger.forgotten.may_know = lambda writer: writer in self.zk.ahead
        self.zk.on_arrival, self.zk.on_served = self.conflicts.arrives, self.conflicts.served
        self.rpc.on_request.append(
            lambda caller, server, method, _: self.aims.taken(caller, server, _name(method))
        )
        self.rpc.on_send.append(
            lambda caller, server, method: self.aims.sent(caller.name, server, _name(method))
        )

    def _make_clients(self, options: Options) -> list[SimClient]:
        clients: list[SimClient] = [SimProducer(self, 1, interval_s=options.write_interval_s)]
        if options.acks_one:
            clients.append(SimProducer(self, 2, acks=1, interval_s=options.write_interval_s))
        clients += [SimConsumer(self, number) for number in range(1, options.consumers + 1)]
        clients += [
            SimGroupMember(self, number, "group", ("t0", "t1"), interval_s=2.5 * options.write_interval_s)
            for number in range(1, options.members + 1)
        ]
        return clients

    # what others look at

    @property
    def nodes(self) -> list[SimBroker | SimController]:
        return [*self.controllers.values(), *self.brokers.values()]

    def namesake(self, id_: int) -> SimController:
        if id_ not in self.namesakes:
            settings = _controller_settings(self.plan.options)
            self.namesakes[id_] = SimController(self, id_, self._audited, settings, name=f"namesake-{id_}")
        return self.namesakes[id_]

    def topics(self) -> Sequence[str]:
        deleted = set(self.nodes_below("/admin/delete_topics"))
        return sorted(
            name
            for name in self.ledger.topics
            if not name.startswith("__") and name not in deleted and not name.startswith(VICTIM)
        )

    def _topic_id(self, name: str) -> str | None:
        topic = self.ledger.topics.get(name)
        return topic.id if topic else None

    def nodes_below(self, path: str) -> list[str]:
        """Names, as the ensemble's leader has them, or would."""
        node = self.node(path)
        return sorted(node.children) if node is not None else []

    def stored(self, path: str) -> bytes | None:
        """As the ensemble's leader has it, or would."""
        node = self.node(path)
        return node.data if node is not None else None

    def node(self, path: str) -> Node | None:
        ensemble = self.zk.ensemble
        return ensemble.servers[ensemble.leader or 0].tree.node(path)

    def active(self) -> SimController:
        """Who leads; before anybody does, or while nobody, the first."""
        leading = [
            c for c in self.controllers.values() if c.alive and c.daemon is not None and c.daemon.active
        ]
        return leading[-1] if leading else self.controllers[1]

    def ask_zookeeper(self, op: Operation) -> Value:
        """By a session of its own, at the ensemble's leader; None when there is none, or it refuses."""
        ensemble = self.zk.ensemble
        if ensemble.leader is None:
            return None
        connection = ensemble.connect(ensemble.leader, 10_000, self.zk.now_ms, 0, b"", 0)
        if connection is None:
            return None
        self.zk.clients[connection.session_id] = "operator"
        ensemble.request(connection, op, self.zk.now_ms)
        reply = connection.outbox.popleft()
        ensemble.end_session(connection.session_id)
        self.zk.deliver_answers()
        assert isinstance(reply, Reply)
        return reply.value if reply.code is Code.OK else None

    def restore_zookeeper(self, backup: Backup) -> None:
        """All servers, which are stopped, are started with what was there before. Sessions that a backup does not have
        are over."""
        ensemble = self.zk.ensemble
        self.tampered = self.by_hand = True
        self.ended_early |= ensemble.sessions.keys() - backup.sessions.keys()
        self.ledger.went_back(backup.tree.nodes())
        self.zk.restore(backup)
        self.memory.went_back(self.ledger.states)
        self.tools.went_back()
        self.history.went_back()
        self.operator.went_back()

    @property
    def over(self) -> bool:
        """Whether nothing goes wrong any more."""
        return self.faults.over

    def kill_broker(self, id_: int, seconds: float) -> None:
        self.faults.kill_broker(id_, seconds)

    def data_lost(self, broker_id: int, partitions: Iterable[tuple[str, int]]) -> None:
        """A fault took some of what this broker had written of these."""
        self.ledger.data_lost(broker_id, partitions)

    # what must hold

    def violated(self, what: str) -> None:
        self.violations.append(f"{self.loop.time() - BEGINNING_S:.3f} s: {what}")
        self.trace_line(f"VIOLATED: {what}")
        self.ended.set()

    def _writer(self) -> str:
        serving = self.zk.ensemble.serving
        return self.zk.clients.get(serving.session_id, "?") if serving is not None else "ensemble"

    def _sent(self, caller: Process, server: str, method: str) -> None:
        """A controller that pushes must hold a session: else there may be another one."""
        if "BrokerControl" not in method:
            return
        kind, _, number = caller.name.rpartition("-")
        controller = (self.namesakes if kind == "namesake" else self.controllers)[int(number)]
        session = controller.daemon.session if controller.daemon is not None else None
        known = self.zk.ensemble.sessions.keys() | self.ended_early
        if session is None or session.id not in known:
            self.violated(f"{caller.name} sent {method} to {server} after its session was over")

    def _leaving(self, broker: SimBroker) -> Callable[[], None]:
        """A broker asks to be let go: when it may, it leads nothing that others could lead."""
        asked = self._standing(broker)

        def let_go() -> None:
            if self.shutdown_undone or asked is None or asked != self._standing(broker):
                return
            deleted = self.nodes_below("/admin/delete_topics")
            for (name, number), state in self.ledger.states.items():
                replicas = self.ledger.topics[name].partitions.get(number, ())
                if name in deleted or (name, number) in self.ledger.scribbled:
                    continue
                mended = (name, number) in self.ledger.put_back or name in self.ledger.illegible
                if mended and not self._known((name, number), state):
                    continue
                if state.leader == broker.id and len(replicas) > 1:
                    self.violated(f"{broker.name} was let go and leads {name}-{number}: {state}")

        return let_go

    def _known(self, key: Partition, state: State) -> bool:
        """Whether the controller has read this state: it reads again now and then what did not decode."""
        daemon = self.active().daemon
        term = daemon.term if daemon is not None else None
        partition = term.machine.cluster.partition(*key) if term is not None else None
        known = partition.leadership if partition is not None else None
        return known is not None and known.partition_epoch >= state.version

    def _standing(self, broker: SimBroker) -> tuple[int, int] | None:
        """Its registration, and the term in which a controller knows that it leaves."""
        node = self.node(f"/brokers/ids/{broker.id}")
        return (node.czxid, self.ledger.controller_epoch) if node is not None else None

    def check_processes(self) -> None:
        copies = self.namesakes.values()
        watched: list[SimBroker | SimController | SimClient] = [*self.nodes, *copies, *self.clients]
        for node in watched:
            for bug in node.bugs:
                if isinstance(bug, PlantedError):
                    continue
                self.violated(
                    f"{node.name} ended by {type(bug).__name__}: {bug}\n{''.join(traceback.format_exception(bug))}"
                )
        for controller in self.controllers.values():
            standby = controller.daemon.standby if controller.daemon is not None else None
            if standby is not None and standby.bug is not None:
                self.violated(f"{controller.name}: following as a standby ended by {standby.bug!r}")
            if standby is not None and standby.mirror.proved_wrong:
                self.violated(f"{controller.name} had wrong states in memory")
        for finding in self.history.findings:
            self.violated(f"a client found: {finding}")
        self.history.findings.clear()

    def _audited(self, controller: str, found: Mapping[str, Any]) -> None:
        """Judged at once: a moment later it may have been told of what its audit has found."""
        self.trace_line(f"{controller} audits {sorted(found.items())}")
        if self.tampered or (self.by_hand and str(found["topic"]).startswith(VICTIM)):
            return
        if found["kind"] != "audit":
            self.ledger.found_late(controller, found)
        elif found["to"] in ("differs", "taken_over", "put_right") and not (
            self._reply_lost(found) or self._copy_came(found)
        ):
            self.violated(f"the audit of {controller} found {found}")

    def _copy_came(self, found: Mapping[str, Any]) -> bool:
        """A late copy of an UpdateMetadata has put a broker's metadata back: the audit is there for that."""
        older = self.ledger.told_older.get(f"broker-{found['replica']}", ())
        of_metadata = str(found["reason"]).startswith("UpdateMetadata")
        return of_metadata and found["to"] == "differs" and (found["topic"], found["partition"]) in older

    def _reply_lost(self, found: Mapping[str, Any]) -> bool:
        """Whatever a controller must tell, it tells when it happens. But where replies get lost, or come when a frozen
        broker has given up, a leader has its former ISR until it asks again."""
        options = self.plan.options
        state = self.ledger.states.get((found["topic"], found["partition"]))
        leads = state is not None and state.leader == found["replica"]
        of_leadership = str(found["reason"]).startswith("LeaderAndIsr")
        touched = (found["topic"], found["partition"]) in self.ledger.touched
        late = touched or options.lost > 0 or not {"pause_broker", "isolate"}.isdisjoint(options.faults)
        return late and found["to"] == "differs" and leads and of_leadership

    # the trace

    def trace_line(self, what: str) -> None:
        line = f"{self.loop.time() - BEGINNING_S:9.4f} {what}"
        self._trace.update(line.encode())
        if self._telling:
            self.story.append(line)

    def trace(self) -> str:
        return self._trace.hexdigest()

    def _agreed(self, transaction: Transaction) -> None:
        if transaction.changes:
            self.trace_line(f"{self._writer()} {transaction.zxid:x} {transaction.changes}")
        self.ledger.agreed(transaction)
        self.memory.agreed(transaction, self._writer(), self.ledger.states)
        self.refusals.agreed(transaction, self._writer())
        self.tools.agreed(transaction, self._writer())
        self.history.agreed(transaction)
        if self.kafka is not None:
            self.kafka.agreed(transaction)
        self.aims.agreed(transaction.changes, self._writer(), self.zk.clients)
        for change in transaction.changes:
            of_wide = getattr(change, "path", "").startswith(f"/brokers/topics/{WIDE}")
            if of_wide and self._writer() != "operator":
                self.violated(f"{self._writer()} handled a topic that is far too large: {change}"[:300])

    def _requested(self, caller: str, server: str, method: str, request: bytes) -> None:
        # Protobuf writes maps in an order that changes from process to process.
        digest = blake2b(bytes(sorted(request)), digest_size=6).hexdigest()
        self.trace_line(f"{caller} > {server} {_name(method)} {digest}")

    def _zk_delay_s(self, _client: str) -> float:
        return self.plan.options.zk_delay_s * self.rng.uniform(0.5, 1.5)

    # life

    async def run_plan(self) -> None:
        """Through the plan, and then until all is well. Raises Violated."""
        self._create_topics()
        for node in self.nodes:
            node.start()
        for client in self.clients:
            client.start()
        for action in self.plan.actions:
            await self._until(BEGINNING_S + action.at_s)
            self.trace_line(f"--- {action}")
            self._begin(action)
        await self._until(BEGINNING_S + self.plan.options.duration_s)

    def _create_topics(self) -> None:
        ids = list(self.brokers)
        if self.plan.options.poison:
            self._create_topic(TOPIC, {0: [ids[0]]})
        for number, (partitions, factor) in enumerate(self.plan.options.initial):
            first = {p: [ids[(p + number + k) % len(ids)] for k in range(factor)] for p in range(partitions)}
            self._create_topic(f"t{number}", first)

    def _create_topic(self, name: str, assignment: dict[int, list[int]]) -> None:
        value = {"version": 2, "partitions": {str(p): replicas for p, replicas in assignment.items()}}
        parents = [Create(path) for path in ("/brokers", "/brokers/topics")]
        for parent in parents:
            self.ask_zookeeper(parent)
        self.ask_zookeeper(Multi((Create(f"/brokers/topics/{name}", json.dumps(value).encode()),)))

    def _begin(self, action: Action) -> None:
        if action.kind == AIM:
            self.aims.take(*action.arguments)
        elif action.kind in ("conflict", "thwarted"):
            self.conflicts.begin(*action.arguments)
        elif action.kind == "restored":
            self.conflicts.restore(*action.arguments)
        elif action.kind == "odd":
            self.oddities.begin(*action.arguments)
        elif action.kind in FAULTS or action.kind in APART or action.kind in TAMPERING:
            self.faults.begin(action.kind, action.arguments)
        else:
            self.operator.begin(action.kind, action.arguments)

    def _strike(self, fault: str, arguments: tuple[Any, ...]) -> None:
        if not self.faults.over:
            self.trace_line(f"--- now: {fault}{arguments!r}")
            self.faults.begin(fault, arguments)

    async def _until(self, moment_s: float) -> None:
        """Raises Violated as soon as something does not hold."""
        while (now_s := self.loop.time()) < moment_s:
            try:
                async with asyncio.timeout(min(moment_s - now_s, LOOK_S)):
                    await self.ended.wait()
            except TimeoutError:
                pass
            self.check_processes()
            for what in unexplained(self.controllers.values()):
                self.violated(what)
            if self.violations:
                raise Violated

    async def pass_s(self, seconds: float) -> None:
        """Let so much virtual time pass. Raises Violated."""
        await self._until(self.loop.time() + seconds)

    async def audited(self, limit_s: float) -> None:
        """The active controller's audit finds that every broker holds what it was told. Raises Violated."""
        end_s = self.loop.time() + limit_s
        while True:
            found = [f"{broker_id}: {why}" async for broker_id, why in self._audit()]
            if not found:
                return
            if self.loop.time() > end_s:
                self.violated(f"after {limit_s:g} s the audit still finds: {'; '.join(found)}")
                raise Violated
            await self._until(self.loop.time() + LOOK_S)

    async def _audit(self) -> AsyncIterator[tuple[int, str]]:
        controller = self.active()
        term = controller.daemon.term if controller.daemon is not None else None
        if term is None or controller.process is None:
            yield 0, "nobody leads"
            return
        for broker_id in self.brokers:
            task = self.loop.spawn(controller.process, term.auditor.look(broker_id))
            while not task.done():
                await self._until(self.loop.time() + LOOK_S / 10)
            audit = task.result()
            of_victim = (
                self.by_hand and audit is not None and all(key[0].startswith(VICTIM) for key in audit.known)
            )
            if audit is None or (audit.verdict is not Verdict.EQUAL and not of_victim):
                yield broker_id, f"{audit}"

    async def probe(self, limit_s: float) -> None:
        """Every partition takes a record, unless it has too few replicas for that. Raises Violated."""
        probe = SimProbe(self, len(self.clients) + 1)
        self.clients.append(probe)
        await self.until_ended([probe.start()], limit_s)
        for (topic, number), why in sorted(probe.refused.items()):
            if "NOT_ENOUGH_REPLICAS" not in why or len(self.ledger.topics[topic].partitions[number]) > 1:
                self.violated(f"{topic}-{number} takes no record: {why}")

    def _delete_victims(self) -> None:
        """As whoever has removed a state by hand is told to do. A move that cannot end is taken back first."""
        for name, topic in sorted(self.ledger.topics.items(), key=lambda item: item[0]):
            if name.startswith(VICTIM):
                self.ask_zookeeper(Create(f"/admin/delete_topics/{name}"))
                for number in sorted(topic.moving):
                    self.loop.spawn(self.operator.process, self.operator.cancel_reassignment(name, number))

    def _give_up_the_lost(self) -> None:
        """Where every in-sync member has lost data, an operator permits an unclean election: nothing else helps."""
        for partition in self.ledger.lost():
            if partition not in self.ledger.given_up or self.rng.random() < 0.1:
                self.ledger.given_up.add(partition)
                self.loop.spawn(self.operator.process, self.operator.elect_unclean(*partition))

    async def until_ended(self, processes: Sequence[Process], limit_s: float) -> None:
        """All of them have nothing more to do. Raises Violated."""
        end_s = self.loop.time() + limit_s
        while busy := [process.name for process in processes if process.alive]:
            await self._until(self.loop.time() + LOOK_S)
            if self.loop.time() > end_s:
                self.violated(f"{', '.join(busy)} did not end within {limit_s:g} s")
                raise Violated

    async def wait_until_settled(self, unsettled: Callable[[], list[str]]) -> float:
        """Everything is mended; how long it takes until nothing is ``unsettled`` any more. Raises Violated."""
        self.trace_line("--- everything is mended")
        began_s = self.loop.time()
        self.aims.forget()
        # Whatever comes in between from now on would stay.
        self.conflicts.forget()
        self.faults.end()
        for copy in self.namesakes.values():
            copy.terminate()
        self.rpc.weather = Weather()
        # Now and then those controllers that are up have to do: whoever waits takes over by itself.
        all_back = Random(f"{self.plan.seed}:back").random() < 0.5
        undone: asyncio.Task[bool] | None = None
        while True:
            some_back = not all_back and any(c.alive for c in self.controllers.values())
            for node in self.brokers.values() if some_back else self.nodes:
                if not node.alive:
                    node.start()
            # Again until ZooKeeper has a leader.
            self.conflicts.forget()
            if self.plan.options.oversized:
                self.faults.end_abuse()
            if self.by_hand:
                self._delete_victims()
            if undone is None or (undone.done() and not undone.result()):
                undone = self.loop.spawn(self.operator.process, self.operator.undo())
            await self._until(self.loop.time() + LOOK_S)
            self._give_up_the_lost()
            missing = unsettled() if undone.done() and undone.result() else ["operators undo what they set"]
            if not missing:
                return self.loop.time() - began_s
            if self.loop.time() > began_s + SETTLE_S:
                self.violated(
                    f"not settled {SETTLE_S:g} s after everything was mended: " + "; ".join(missing[:20])
                )
                raise Violated


def _name(method: str) -> str:
    return method.rpartition("/")[2]


def _weather(options: Options) -> Weather:
    return Weather(slow=options.slow, lost=options.lost, twice=options.twice)


def _controller_settings(options: Options) -> Any:
    return replace(
        controllers.SETTINGS,
        session_timeout_ms=options.session_timeout_ms,
        unclean_leader_election_enable=options.unclean,
        leader_imbalance_check_interval_seconds=options.rebalance_s,
        allow_everyone=not options.secured,
        authorizer_file=RULES if options.secured else Path(),
        leader_imbalance_per_broker_percentage=0 if options.rebalance_s < _QUIET else 10,
        reassignment_concurrent_moves_max=options.moves_max,
        message_bytes_max=options.message_bytes_max,
        maintenance_offline_brokers_min=options.maintenance_min,
        maintenance_healthy_seconds=1,
        kafka_takeover="fallback" if options.takeover else "off",
    )


def _broker_settings(options: Options, id_: int) -> dict[str, str]:
    return {
        "session_timeout_ms": str(options.session_timeout_ms),
        "min_insync_replicas": str(options.min_isr),
        "supported_features": "sim=1-3",
        "inter_broker_protocol_version": "2.6" if id_ <= options.old_brokers else "3.9",
        "log_flush_interval_messages": str(options.flush_messages),
        **({"allow_everyone": "false", "authorizer_file": str(RULES)} if options.secured else {}),
    }
