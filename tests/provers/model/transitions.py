"""One transition of one machine, asked of the product and of the model, from any state whatever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from controller.core.context import EventContext
from controller.core.partitions import partition_state_machine, replica_state_machine
from controller.core.partitions.leader_election import (
    CONTROLLED_SHUTDOWN,
    OFFLINE,
    PREFERRED,
    REASSIGN,
    ElectionKind,
    Strategy,
)
from tests.provers.model import tables
from tests.provers.model.against import KEY, PARTITION_STATES, REPLICA_STATES, differences, stored_form
from tests.provers.model.enumeration import Situation, subsets
from tests.provers.model.machines import NO_LEADER, Ids, Leadership, Model
from tests.support.core.harness import MachineHarness, bare

EPOCH = 5


class Stored(NamedTuple):
    """What memory holds of the leadership and what ZooKeeper holds."""

    name: str
    cached: Leadership | None
    stored: Leadership | None


class ControllerRequest(NamedTuple):
    """A transition: of the partition by a strategy, or of some replicas."""

    machine: str
    source: str
    target: str
    strategy: str = "offline"
    chosen: int | None = None
    unclean: bool = False
    brokers: Ids = ()
    queued: bool = False
    removing: Ids = ()


STRATEGIES: dict[str, ElectionKind] = {
    "offline": OFFLINE,
    "preferred": PREFERRED,
    "reassign": REASSIGN,
    "shutdown": CONTROLLED_SHUTDOWN,
}


#: Where replicas of a topic go that is to be deleted.
_DELETING = (tables.OFFLINE, tables.STARTED, tables.SUCCESSFUL, tables.INELIGIBLE, tables.GONE)


def leaderships(assigned: Ids) -> Iterator[Leadership]:
    for isr in subsets(assigned)[1:]:
        for leader in (NO_LEADER, *isr):
            yield Leadership(leader, 7, isr, 9, 3)


def stores(assigned: Ids) -> Iterator[Stored]:
    """Memory and ZooKeeper agree; the ISR was changed, the state removed or rewritten by a newer controller unseen."""
    yield Stored("nothing", None, None)
    for held in leaderships(assigned):
        yield Stored("agreed", held, held)
        yield Stored("removed", held, None)
        yield Stored("newer controller", held, held._replace(partition_epoch=10, controller_epoch=EPOCH + 1))
        yield Stored("unknown", None, held)
        yield Stored("unknown, newer controller", None, held._replace(controller_epoch=EPOCH + 1))
        if held.leader != NO_LEADER:
            for isr in subsets(assigned)[1:]:
                if held.leader in isr and isr != held.isr:
                    yield Stored("ISR changed", held, held._replace(isr=isr, partition_epoch=10))


def partition_questions(assigned: Ids) -> Iterator[ControllerRequest]:
    states = tuple(PARTITION_STATES)
    for source in states:
        for target in states:
            if target != tables.ONLINE or source == tables.GONE:
                yield ControllerRequest("partition", source, target)
                continue
            for unclean in (False, True):
                yield ControllerRequest("partition", source, target, "offline", unclean=unclean)
            yield from (ControllerRequest("partition", source, target, s) for s in ("preferred", "shutdown"))
            yield from (ControllerRequest("partition", source, target, "chosen", chosen=b) for b in assigned)
            for removing in subsets(assigned)[:-1]:
                yield ControllerRequest("partition", source, target, "reassign", removing=removing)


def replica_questions(assigned: Ids) -> Iterator[ControllerRequest]:
    states = tuple(REPLICA_STATES)
    for source in states:
        for target in states:
            legal = source in next(row.previous for row in tables.REPLICA_LEGAL if row.target == target)
            groups = subsets(assigned)[1:] if legal and target == tables.OFFLINE else [(b,) for b in assigned]
            for brokers in groups:
                for queued in (False, True) if legal and target in _DELETING else (False,):
                    yield ControllerRequest("replica", source, target, brokers=brokers, queued=queued)


def pairs(assigned: Ids) -> Iterator[tuple[Stored, ControllerRequest]]:
    """Every combination that can be meant: a partition whose leadership is known is not New."""
    questions = [*partition_questions(assigned), *replica_questions(assigned)]
    for known in stores(assigned):
        for asked in questions:
            if asked.machine == "replica" or asked.source != tables.NEW or known.cached is None:
                yield known, asked


class TransitionHarness:
    """One product's context, put by hand into one state after the other."""

    def __init__(self, assigned: Ids, situation: Situation) -> None:
        self.assigned, self.situation = assigned, situation
        self.rig: MachineHarness = bare(sorted(situation.registered), {KEY: assigned}, epoch=EPOCH)
        partition = self.rig.partition()
        self.rig.cluster.shutting_down = set(situation.leaving)
        self.rig.cluster.offline_dirs = {b: {partition} for b in situation.failed_disks}

    def compare(self, known: Stored, asked: ControllerRequest) -> list[str]:
        """In what the product differs from the model."""
        self._put(known, asked)
        model = self._model(known, asked)
        if asked.machine == "partition":
            kind = STRATEGIES.get(asked.strategy) or ElectionKind(Strategy.CHOSEN, leader=asked.chosen or 0)
            _move_partition(self.rig, asked.target, kind)
            model.move_partition(asked.target, asked.strategy, asked.chosen)
        else:
            _move_replicas(self.rig, asked.brokers, asked.target)
            model.move_replicas(asked.brokers, asked.target)
        return differences(model, self.rig)

    def _put(self, known: Stored, asked: ControllerRequest) -> None:
        rig, partition = self.rig, self.rig.partition()
        world = rig.world
        world.states.clear()
        world.leaders.clear()
        world.history[KEY] = [stored_form(s) for s in (known.cached, known.stored) if s is not None]
        if known.stored is not None:
            world.states[KEY] = stored_form(known.stored)
        world.configure("t", {"unclean.leader.election.enable": "true" if asked.unclean else "false"})
        partition.leadership = stored_form(known.cached) if known.cached else None
        partition.assign(self.assigned, (), asked.removing)
        partition.state = PARTITION_STATES[asked.source if asked.machine == "partition" else tables.ONLINE]
        others = REPLICA_STATES[tables.ONLINE]
        for broker in self.assigned:
            state = REPLICA_STATES[asked.source] if broker in asked.brokers else others
            partition.set_states([broker], state)
        rig.cluster.topics_to_delete = {"t"} if asked.queued else set()
        for notified in rig.received.values():
            notified.newest.clear()
        rig.forget()
        rig.chronicle.forget()

    def _model(self, known: Stored, asked: ControllerRequest) -> Model:
        model = Model(set(self.situation.registered), controller_epoch=EPOCH, known=True)
        model.leaving, model.failed_disks = set(self.situation.leaving), set(self.situation.failed_disks)
        model.replicas, model.removing = self.assigned, asked.removing
        model.partition = asked.source if asked.machine == "partition" else tables.ONLINE
        model.states = {b: asked.source if b in asked.brokers else tables.ONLINE for b in self.assigned}
        model.cached, model.stored = known.cached, known.stored
        model.queued, model.unclean = asked.queued, asked.unclean
        return model


def _move_partition(rig: MachineHarness, target: str, kind: ElectionKind) -> None:
    partitions = [rig.partition()]
    if target == tables.ONLINE:
        rig.drive(lambda context: partition_state_machine.to_online(context, partitions, kind))
        return
    transitions: dict[str, Callable[[EventContext], None]] = {
        tables.NEW: lambda context: partition_state_machine.to_new(context, partitions),
        tables.OFFLINE: lambda context: partition_state_machine.to_offline(context, partitions, "asked"),
        tables.GONE: lambda context: partition_state_machine.to_non_existent(context, partitions),
    }
    rig.do(transitions[target])


def _move_replicas(rig: MachineHarness, brokers: Ids, target: str) -> None:
    replicas = [(rig.partition(), b) for b in brokers]
    if target == tables.OFFLINE:
        rig.drive(lambda context: replica_state_machine.to_offline(context, replicas, "asked"))
        return
    transitions: dict[str, Callable[[EventContext], None]] = {
        tables.NEW: lambda context: replica_state_machine.to_new(context, replicas),
        tables.ONLINE: lambda context: replica_state_machine.to_online(context, replicas, "asked"),
        tables.STARTED: lambda context: replica_state_machine.to_deletion_started(context, replicas),
        tables.SUCCESSFUL: lambda context: replica_state_machine.to_deletion_successful(context, replicas),
        tables.INELIGIBLE: lambda context: replica_state_machine.to_deletion_ineligible(
            context, replicas, "asked"
        ),
        tables.GONE: lambda context: replica_state_machine.to_non_existent(context, replicas),
    }
    rig.do(transitions[target])
