"""What goes wrong, by the names that plans use, and how all of it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol

from tests.provers.sim.actors.brokers import SimBroker
from tests.provers.sim.actors.controllers import SimController
from tests.provers.sim.checks.ledger import SCRIBBLE
from tests.provers.sim.environment.disk import Disk
from tests.provers.sim.environment.loop import OUTSIDE, Process, VirtualTimeLoop
from tests.provers.sim.plans.abuse import Abuse, AbusedCluster
from tests.provers.sim.plans.plan import ACTIVE
from tests.provers.sim.zookeeper.messages import Data, Delete, Get, Multi, Set
from tests.provers.sim.zookeeper.network import Loss, Network


class FaultyCluster(AbusedCluster, Protocol):
    controllers: dict[int, SimController]
    #: Sessions that ZooKeeper gave up before their time: nobody could know.
    ended_early: set[int]
    #: Somebody edited a state znode, or a broker forgot something.
    tampered: bool

    @property
    def nodes(self) -> list[SimBroker | SimController]: ...

    @property
    def loop(self) -> VirtualTimeLoop: ...

    @property
    def zk(self) -> Network: ...

    @property
    def rng(self) -> Random: ...

    def data_lost(self, broker_id: int, partitions: Iterable[tuple[str, int]]) -> None: ...

    def namesake(self, id_: int) -> SimController: ...


class Faults(Abuse):
    """Each fault by its method. Those that last end by themselves, or by ``end``."""

    def __init__(self, cluster: FaultyCluster) -> None:
        super().__init__(cluster)
        self._cluster = cluster
        self.over = False
        #: Disks that failed, the latest at the end.
        self._failed: list[Disk] = []
        #: What was in the znodes, by path.
        self._scribbled: dict[str, bytes] = {}

    def begin(self, kind: str, arguments: tuple[Any, ...]) -> None:
        getattr(self, kind)(*arguments)

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        def due() -> None:
            if not self.over:
                work()

        self._cluster.loop.call_later(seconds, due, context=OUTSIDE.copy())

    # processes

    def kill_broker(self, id_: int, seconds: float) -> None:
        broker = self._cluster.brokers[id_]
        broker.kill()
        self._start_later(broker, seconds)

    bounce_broker = kill_broker

    def stop_broker(self, id_: int, seconds: float) -> None:
        broker = self._cluster.brokers[id_]
        broker.terminate()
        self._start_later(broker, seconds)

    def pause_broker(self, id_: int, seconds: float) -> None:
        self._pause(self._cluster.brokers[id_].process, seconds)

    def kill_controller(self, who: int, seconds: float) -> None:
        controller = self._controller(who)
        if controller.process is not None:
            self._cluster.loop.kill(controller.process)
        self._start_later(controller, seconds)

    def stop_controller(self, who: int, seconds: float) -> None:
        controller = self._controller(who)
        controller.terminate()
        self._start_later(controller, seconds)

    def pause_controller(self, who: int, seconds: float) -> None:
        self._pause(self._controller(who).process, seconds)

    def _controller(self, who: int) -> SimController:
        return self._cluster.active() if who == ACTIVE else self._cluster.controllers[who]

    def _start_later(self, node: SimBroker | SimController, seconds: float) -> None:
        def start() -> None:
            if not node.alive:
                node.start()
            else:
                self.later(0.5, start)

        self.later(seconds, start)

    def _pause(self, process: Process | None, seconds: float) -> None:
        if process is None or not process.alive:
            return
        self._cluster.loop.pause(process)
        self.later(seconds, lambda: self._cluster.loop.resume(process))

    # ways

    def _name(self, node: str) -> str:
        return self._cluster.active().name if node == f"controller-{ACTIVE}" else node

    def part_from_zookeeper(self, node: str, ways: tuple[bool, bool], seconds: float) -> None:
        name, servers = self._name(node), range(len(self._cluster.zk.ensemble.servers))
        there, back = ways
        self._cluster.zk.block(name, servers, there=there, back=back)
        self.later(seconds, lambda: self._cluster.zk.unblock(name))

    def part(self, node: str, other: str, both: bool, seconds: float) -> None:
        name, rpc = self._name(node), self._cluster.rpc
        for way in [(name, other), (other, name)] if both else [(name, other)]:
            rpc.close(*way)
            self.later(seconds, partial(rpc.open, *way))

    def isolate(self, node: str, seconds: float) -> None:
        """From everybody."""
        name = self._name(node)
        for other in self._cluster.nodes:
            if other.name != name:
                self.part(name, other.name, True, seconds)
        self.part_from_zookeeper(name, (True, True), seconds)

    def drop_connection(self, node: str) -> None:
        self._cluster.zk.drop(self._name(node))

    def lose_commit(self, node: str, what: str) -> None:
        self._cluster.zk.lose(self._name(node), Loss(what), Multi)

    def held_up(self, id_: int, seconds: float) -> None:
        """A broker dies and is back at once, while nothing of it arrives at the others: then everything does."""
        broker = self._cluster.brokers[id_]
        for other in self._cluster.brokers.values():
            if other is not broker:
                self.part(broker.name, other.name, False, seconds)
        self.later(0.1, lambda: self.kill_broker(id_, 0.0))

    # ZooKeeper

    def expire(self, node: str) -> None:
        name, zk = self._name(node), self._cluster.zk
        for session_id, client in sorted(zk.clients.items(), reverse=True):
            if client == name and session_id in zk.ensemble.sessions and zk.ensemble.leader is not None:
                self._cluster.ended_early.add(session_id)
                zk.expire(session_id)
                return

    def stop_zookeeper(self, server: int, seconds: float) -> None:
        zk = self._cluster.zk
        if not zk.ensemble.servers[server].running:
            return
        zk.stop_server(server)
        self.later(seconds, lambda: self._start_zookeeper(server))

    def _start_zookeeper(self, server: int) -> None:
        if not self._cluster.zk.ensemble.servers[server].running:
            self._cluster.zk.start_server(server)

    def stop_zookeeper_leader(self, seconds: float) -> None:
        leader = self._cluster.zk.ensemble.leader
        if leader is not None:
            self.stop_zookeeper(leader, seconds)

    def lag_zookeeper(self, server: int, seconds: float) -> None:
        zk = self._cluster.zk
        zk.ensemble.hold(server)
        self.later(seconds, lambda: zk.release_server(server))

    def cut_off_zookeeper(self, server: int, seconds: float) -> None:
        zk = self._cluster.zk
        if zk.ensemble.leader in (None, server) or not zk.ensemble.servers[server].running:
            return
        zk.ensemble.cut_off(server)
        self.later(seconds, lambda: zk.heal_server(server))

    def depose(self) -> None:
        """Somebody deletes /controller, as operators do to have another elected."""
        self._cluster.ask_zookeeper(Delete("/controller"))

    def namesake(self, id_: int, seconds: float) -> None:
        """A copy of a controller on another machine, with its id and its address."""
        copy = self._cluster.namesake(id_)
        if not copy.alive:
            copy.start()
            self.later(seconds, copy.terminate)

    # clocks and disks

    def jump_clock(self, node: str, seconds: float) -> None:
        name = self._name(node)
        for known in self._cluster.nodes:
            if known.name == name and known.process is not None:
                known.process.wall_clock_skew_s += seconds

    def fail_disk(self, id_: int, topic: str, seconds: float) -> None:
        """All of it, or one topic's logs; it is mended by a new start."""
        broker = self._cluster.brokers[id_]
        if topic:
            for key in sorted(key for key in broker.folders if key[0] == topic):
                for disk in broker.disks:
                    disk.fail_log(key)
        else:
            self._fail(_one_of(broker.disks, seconds))
        self.later(seconds, lambda: self._mend(broker))

    def _mend(self, broker: SimBroker) -> None:
        self._repair(broker)
        self._start_later(broker, 0.1)

    def _repair(self, broker: SimBroker) -> None:
        """What the broker began anew meanwhile goes from the disk that failed, also if the other one failed after it:
        with both, it refuses to start, and asks operators to remove the folder that is not wanted."""
        broker.kill()
        failed = [disk for disk in broker.disks if disk.failing]
        failed.sort(key=lambda disk: self._failed.index(disk) if disk in self._failed else -1)
        begun = {key for disk in broker.disks if disk not in failed for key in disk.folders}
        for disk in reversed(failed):
            disk.repair()
            for key in disk.folders.keys() & begun:
                del disk.folders[key]
            begun |= disk.folders.keys()

    def _fail(self, disk: Disk) -> None:
        if not disk.failing:
            self._failed = [*(other for other in self._failed if other is not disk), disk]
        disk.fail()

    def lose_disk(self, id_: int, seconds: float) -> None:
        """One of them; another, empty one is in its place."""
        broker = self._cluster.brokers[id_]
        broker.kill()
        lost = _one_of(broker.disks, seconds)
        had = list(lost.folders)
        lost.lose()
        self._cluster.data_lost(id_, had)
        self._start_later(broker, seconds)

    def start_without_disk(self, id_: int, seconds: float) -> None:
        """A broker starts again while one of its disks fails; later with that one, as it was."""
        broker = self._cluster.brokers[id_]
        broker.kill()
        self._fail(_one_of(broker.disks, seconds))
        self._start_later(broker, 0.1)
        self.later(seconds, lambda: self._mend(broker))

    def cut_power(self, id_: int, seconds: float) -> None:
        broker = self._cluster.brokers[id_]
        broker.kill()
        had = [
            key for d in broker.disks if d.power_cut(self._cluster.rng) or not d.kept_all for key in d.folders
        ]
        if had or not all(disk.kept_all for disk in broker.disks):
            self._cluster.data_lost(id_, had)
        self._start_later(broker, seconds)

    def blackout(self, power: bool, seconds: float) -> None:
        """All of them at once, controllers too; without power, what was not flushed is gone."""
        for id_ in self._cluster.brokers:
            (self.cut_power if power else self.kill_broker)(id_, seconds)
        for id_ in self._cluster.controllers:
            self.kill_controller(id_, seconds)

    # what the audit has to find

    def edit_state(self, topic: str, number: int, touch: bool, beyond: int = 0) -> None:
        """Somebody writes a state by hand: as it was, or with another leader from the ISR; under the present controller
        epoch, or one so far beyond it."""
        epoch = self._cluster.ask_zookeeper(Get("/controller_epoch"))
        found = self._stored(path := f"/brokers/topics/{topic}/partitions/{number}/state")
        if found is None or not isinstance(epoch, Data):
            return
        data, version = found
        value = {**json.loads(data), "controller_epoch": int(epoch.data or b"0") + beyond}
        others = [id_ for id_ in value["isr"] if id_ != value["leader"]]
        if not touch and others:
            value["leader"], value["leader_epoch"] = others[0], value["leader_epoch"] + 1
        self._cluster.tampered = True
        self._cluster.ask_zookeeper(Set(path, json.dumps(value).encode(), version))

    def scribble(self, topic: str, number: int) -> None:
        """Somebody writes what does not decode; puts it back at the end, if nobody has done so."""
        if self.scribble_over(f"/brokers/topics/{topic}/partitions/{number}/state"):
            self._cluster.tampered = True

    def scribble_over(self, path: str) -> bool:
        """Whether there was something that decodes."""
        found = self._stored(path)
        if found is None:
            return False
        self._scribbled[path], version = found
        self._cluster.ask_zookeeper(Set(path, SCRIBBLE, version))
        return True

    def put_back(self, path: str) -> None:
        found = self._cluster.ask_zookeeper(Get(path))
        if isinstance(found, Data) and found.data == SCRIBBLE:
            self._cluster.ask_zookeeper(Set(path, self._scribbled[path], found.stat.version))

    def _stored(self, path: str) -> tuple[bytes, int] | None:
        """A state and its version, if there is one that decodes."""
        found = self._cluster.ask_zookeeper(Get(path))
        if not isinstance(found, Data) or not found.data or found.data == SCRIBBLE:
            return None
        return found.data, found.stat.version

    def forget_metadata(self, id_: int, topic: str, number: int) -> None:
        """A broker's cache loses a partition."""
        broker = self._cluster.brokers[id_].broker
        if broker is not None:
            self._cluster.tampered = True
            broker._handlers.metadata._remove((topic, number))

    # the end

    def end(self) -> None:
        """Everything is mended, everybody is back."""
        self.over = True
        cluster = self._cluster
        zk = cluster.zk
        for server in range(len(zk.ensemble.servers)):
            self._start_zookeeper(server)
            zk.heal_server(server)
            zk.release_server(server)
        # Without a leader nothing could be deleted, nor written.
        self.end_abuse()
        for path in self._scribbled:
            self.put_back(path)
        cluster.rpc.open_all()
        for node in cluster.nodes:
            zk.unblock(node.name)
            zk.forget_losses(node.name)
            if node.process is not None and node.process.paused:
                cluster.loop.resume(node.process)
        for broker in cluster.brokers.values():
            if any(disk.failing for disk in broker.disks):
                self._repair(broker)


def _one_of(disks: Sequence[Disk], seconds: float) -> Disk:
    """Drawn by a number that was drawn for something else: so a plan for one disk stays as it is."""
    return disks[round(seconds * 1e6) % len(disks)]
