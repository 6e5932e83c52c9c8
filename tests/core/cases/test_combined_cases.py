"""Two or three things at once, with the outcome that Kafka 3.9's controller has, or ours where it differs on purpose.

A row: who has t-0 (brokers 1 to 5 are alive), what happens, and how it ends. Steps are separated by bars; what a
request is answered follows a colon. The end is leader, leader epoch and ISR, and what else is said: ``recovering``; a
move's ``replicas``, those it adds (+) and removes (-).
"""

from __future__ import annotations

import pytest

from controller.core.config_keys import UNCLEAN
from controller.core.events import Event, EventKind
from controller.core.model import RECOVERED, RECOVERING
from controller.core.requests.brokers import ControlledShutdown
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.topics import CreatePartitions, CreateTopics, Expansion, NewTopic
from tests.support.core.deletions import check_gone
from tests.support.core.harness import MachineHarness
from tests.support.core.reassignments import active, ask, assigned, copy_all
from tests.support.core.world import World

T = ("t", 0)


def ids(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


class Cluster:
    """One cluster with t-0; a method for each step, which may return what somebody was answered."""

    def __init__(self, replicas: str) -> None:
        self.rig = active(1, 2, 3, 4, 5, t=[ids(replicas)])

    @property
    def world(self) -> World:
        return self.rig.world

    def act(self, step: str) -> None:
        what, _, wanted = step.partition(":")
        verb, *arguments = what.split()
        answer = getattr(self, verb)(*arguments)
        self.rig.run()
        if wanted:
            assert answer == wanted.strip(), step
        else:
            assert answer in (None, "NONE"), f"{step}: {answer}"

    # brokers

    def down(self, brokers: str) -> None:
        self.world.broker_down(*ids(brokers))

    def up(self, brokers: str) -> None:
        for broker in ids(brokers):
            self.world.broker_up(broker)

    def bounce(self, brokers: str) -> None:
        self.world.bounce(*ids(brokers))

    def leave(self, broker: str, newer: str = "0") -> str:
        epoch = self.world.brokers[int(broker)].epoch + int(newer)
        (reply,) = self.rig.ask(ControlledShutdown(int(broker), epoch))
        return " ".join([reply.error.name, *(f"{t}-{n}" for t, n in reply.remaining)])

    def disk(self, broker: str) -> None:
        self.world.lost[int(broker)] = {T}
        self.world.notify_log_dir(int(broker))

    def failover(self) -> None:
        self.world.watches.clear()
        self.world.events.clear()
        self.rig = MachineHarness(self.world, epoch=self.rig.cluster.controller_epoch + 1).failover()

    # the partition

    def propose(self, isr: str, epochs: str = "+0,+0", recovery: str = "") -> str:
        stored = self.world.states[T]
        leader_epoch, partition_epoch = map(int, epochs.split(","))
        proposal = self.rig.proposal(
            ids(isr),
            leader_epoch=stored.leader_epoch + leader_epoch,
            partition_epoch=stored.partition_epoch + partition_epoch,
            recovery=RECOVERED if recovery == "recovered" else stored.recovery,
        )
        (reply,) = self.rig.ask(self.rig.alter(stored.leader, proposal))
        name: str = reply.partitions[0].error.name
        return name

    def isr(self, isr: str) -> None:
        """The leader writes it itself, and says so."""
        self.world.shrink_or_grow("t", 0, ids(isr))
        self.world.notify_isr(T)

    def elect(self, election: str) -> str:
        (reply,) = self.rig.ask(ElectLeaders(ElectionType[election.upper()], [T]))
        name: str = reply.partitions[0].error.name
        return name

    def preferred(self) -> None:
        self.world.ask_preferred(T, T, ("nosuch", 0), ("t", 9))

    def rebalance(self) -> None:
        self.world.events.append(Event(EventKind.LEADER_REBALANCE))

    def unclean(self, value: str) -> None:
        self.world.configure("t", {UNCLEAN: value.replace("_", " ")})
        self.world.notify_config("topics/t")

    def move(self, target: str) -> str:
        return ask(self.rig, {T: ids(target)})["t-0"]

    def list(self, target: str) -> None:
        """In the znode."""
        self.world.ask_reassignment({T: ids(target)})

    def cancel(self) -> str:
        return ask(self.rig, {T: None})["t-0"]

    def copy(self) -> None:
        copy_all(self.rig)

    # the topic

    def delete(self) -> None:
        self.world.mark_for_deletion("t")

    def expand(self, replicas: str, fields: str = "") -> None:
        """By a tool; an old one drops what it does not know."""
        info = self.world.topics["t"]
        dropped = {"adding": {}, "removing": {}, "topic_id": ""} if fields == "alone" else {}
        self.world.edit_topic("t", partitions={**info.partitions, 1: tuple(ids(replicas))}, **dropped)

    def partitions(self, count: str) -> str:
        (reply,) = self.rig.ask(CreatePartitions([Expansion("t", int(count))]))
        name: str = reply.topics[0].error.name
        return name

    def create(self, name: str) -> str:
        (reply,) = self.rig.ask(CreateTopics([NewTopic(name, 1, 1)]))
        error: str = reply.topics[0].error.name
        return error

    # the end

    def end(self) -> str:
        if "t" not in self.world.topics:
            check_gone(self.world, self.rig, "t")
            return "gone"
        stored = self.world.states[T]
        said = [f"{stored.leader} @{stored.leader_epoch} {','.join(map(str, stored.isr))}"]
        if stored.recovery == RECOVERING:
            said.append("recovering")
        replicas, adding, removing = (",".join(map(str, part)) for part in assigned(self.rig))
        said.extend([f"{replicas} +{adding} -{removing}"] if adding or removing else [f"= {replicas}"])
        return " ".join(said)


ROWS = [
    # A move, and a broker that dies, leaves or comes back.
    ("1,2", "move 3,4 | down 1", "2 @2 2 3,4,1,2 +3,4 -1,2"),
    ("1,2", "move 3,4 | propose 1,2,3 | down 1", "3 @2 2,3 3,4,1,2 +3,4 -1,2"),
    ("1,2", "move 3,2 | down 3", "1 @1 1,2 3,2,1 +3 -1"),
    ("1,2", "move 3,2 | down 3 | up 3", "1 @2 1,2 3,2,1 +3 -1"),
    ("1,2", "move 3,4 | propose 1,2,3 | leave 1", "3 @2 2,3 3,4,1,2 +3,4 -1,2"),
    ("1,2", "move 3,2 | leave 2", "1 @2 1 3,2,1 +3 -1"),
    ("1,2", "move 3,2 | leave 3 | propose 1,2,3: INELIGIBLE_REPLICA", "1 @1 1,2 3,2,1 +3 -1"),
    ("1,2", "leave 3 | move 3,2: INVALID_REPLICA_ASSIGNMENT", "1 @0 1,2 = 1,2"),
    ("1", "move 1,2,3 | leave 1: NONE t-0", "1 @1 1 1,2,3 +2,3 -"),
    ("1,2", "down 2 | move 2,1", "1 @2 1 = 2,1"),
    ("1", "down 1 | move 2", "-1 @2 1 2,1 +2 -1"),
    ("1", "down 1 | move 2 | up 1", "1 @3 1 2,1 +2 -1"),
    ("1,2", "move 3,2 | disk 3 | propose 1,2,3: INELIGIBLE_REPLICA", "1 @1 1,2 3,2,1 +3 -1"),
    ("1,2", "move 3 | leave 1 | leave 2: NONE t-0 | propose 2,3", "3 @4 3 = 3"),
    ("1,2", "move 3,1 | down 2 | copy", "1 @3 1,3 = 3,1"),
    ("1,2", "move 3,1 | bounce 1", "2 @3 2 3,1,2 +3 -2"),
    ("1,2", "move 3,1 | bounce 1,2,3", "1 @4 1,2 3,1,2 +3 -2"),
    ("1,2", "move 3,4 | propose 1,2,3 | down 1,2,3,4 | up 3,4", "3 @4 3 3,4,1,2 +3,4 -1,2"),
    ("1,2", "move 3,2 | disk 1 | copy", "2 @3 2,3 = 3,2"),
    ("1,2", "move 3,2 | isr 1,3 | down 1", "3 @2 3 3,2,1 +3 -1"),
    ("1,2,3", "disk 2 | move 1,3", "1 @2 1,3 = 1,3"),
    # A move, and another one.
    ("1,2", "list 3,2 | failover | copy", "3 @4 2,3 = 3,2"),
    ("1,2", "list 3,2 | move 4,2", "1 @2 1,2 4,2,1 +4 -1"),
    ("1,2", "move 4,2 | list 3,2", "1 @2 1,2 3,2,1 +3 -1"),
    ("1,2", "list 9,2 | cancel", "1 @2 1,2 = 1,2"),
    ("1,2", "list 9,2 | up 9 | copy", "9 @4 2,9 = 9,2"),
    # Kafka's makes the first a move to 2, and waits for broker -1.
    ("1,2", "list 2,2 | list -1,2", "1 @0 1,2 = 1,2"),
    # Kafka's deletes 3, the last in sync.
    (
        "1,2",
        "move 3,4 | propose 1,2,3 | down 1,2 | cancel: INVALID_REPLICA_ASSIGNMENT",
        "3 @2 3 3,4,1,2 +3,4 -1,2",
    ),
    ("1,2", "move 3,2 | move 3,2", "1 @2 1,2 3,2,1 +3 -1"),
    ("1,2", "move 3,5 | propose 1,2,3 | move 4,2", "1 @3 1,2 4,2,1 +4 -1"),
    ("1,2", "move 3,4 | down 1 | cancel", "2 @3 2 = 1,2"),
    ("1,2", "move 3,4 | propose 1,2,3 | elect preferred | cancel", "1 @4 1,2 = 1,2"),
    ("1,2", "move 3,4 | propose 1,2,3 | move 1,2", "1 @3 1,2 = 1,2"),
    ("1,2", "move 3,4 | propose 1,2,3 | propose 1,2", "1 @1 1,2 3,4,1,2 +3,4 -1,2"),
    ("1,2", "move 3,2 | failover", "1 @2 1,2 3,2,1 +3 -1"),
    ("1,2", "move 3,2 | isr 1,2,3", "3 @3 2,3 = 3,2"),
    ("1,2,3", "move 1,2", "1 @2 1,2 = 1,2"),
    ("1,2", "move 1,2,3 | propose 1,2,3", "1 @2 1,2,3 = 1,2,3"),
    # A move, and an election.
    ("1,2", "move 3,4 | elect preferred: PREFERRED_LEADER_NOT_AVAILABLE", "1 @1 1,2 3,4,1,2 +3,4 -1,2"),
    ("1,2", "move 3,4 | propose 1,2,3 | elect preferred", "3 @2 1,2,3 3,4,1,2 +3,4 -1,2"),
    ("1,2", "move 3,4 | propose 1,2,3 | preferred", "3 @2 1,2,3 3,4,1,2 +3,4 -1,2"),
    ("1,2", "move 3,4 | propose 1,2,3 | rebalance", "3 @2 1,2,3 3,4,1,2 +3,4 -1,2"),
    ("1,2", "move 3,2 | down 2 | down 1 | unclean true", "3 @4 3 recovering 3,2,1 +3 -1"),
    ("1,2", "move 3,2 | down 1,2 | elect unclean | up 1,2 | copy", "3 @6 3,2 = 3,2"),
    # A move, and the topic.
    ("1,2", "move 3,2 | expand 2,3 | copy", "3 @3 2,3 = 3,2"),
    ("1,2", "move 3,2 | expand 2,3 alone | copy", "3 @3 2,3 = 3,2"),
    ("1,2", "move 3,2 | partitions 2: REASSIGNMENT_IN_PROGRESS", "1 @1 1,2 3,2,1 +3 -1"),
    ("1,2", "move 3,2 | delete | down 3", "1 @1 1,2 3,2,1 +3 -1"),
    ("1,2", "move 3,2 | delete | down 3 | up 3 | copy", "gone"),
    ("1,2", "move 3,2 | delete | cancel", "gone"),
    # Deletion, and a broker that dies or comes back.
    ("1,2", "down 2 | delete | move 3,1: UNKNOWN_TOPIC_OR_PARTITION", "-1 @2 1 = 1,2"),
    ("1,2", "down 2 | delete | list 3,1", "-1 @2 1 = 1,2"),
    ("1,2", "down 2 | delete | create t: TOPIC_ALREADY_EXISTS", "-1 @2 1 = 1,2"),
    ("1,2", "down 2 | delete | elect preferred: INVALID_TOPIC_EXCEPTION", "-1 @2 1 = 1,2"),
    ("1,2", "down 2 | delete | bounce 1", "-1 @2 1 = 1,2"),
    ("1,2", "down 2 | delete | bounce 1 | up 2", "gone"),
    ("1,2", "disk 2 | delete", "-1 @2 1 = 1,2"),
    ("1,2", "disk 2 | delete | bounce 2", "gone"),
    ("1,2", "leave 1 | delete", "gone"),
    ("1,2", "expand 9 | delete", "-1 @1 1,2 = 1,2"),
    ("1,2", "expand 9 | delete | up 9", "gone"),
    # Kafka's does not wait for what a move leaves behind.
    ("1,2,3", "down 2 | move 1,3 | delete", "-1 @3 1,3 = 1,3"),
    ("1,2,3", "down 2 | move 1,3 | delete | up 2", "gone"),
    ("1,2", "delete | create t", "1 @0 1 = 1"),
    # Brokers that leave.
    ("1,2", "leave 1 1", "2 @1 2 = 1,2"),
    ("1,2", "leave 1 -1: STALE_BROKER_EPOCH", "1 @0 1,2 = 1,2"),
    ("1,2", "down 2 | up 2 | leave 1: NONE t-0", "1 @1 1 = 1,2"),
    ("1,2", "down 2 | up 2 | leave 1: NONE t-0 | down 1", "-1 @2 1 = 1,2"),
    ("1,2", "isr 1 | down 1 | leave 2", "-1 @1 1 = 1,2"),
    ("1,2,3", "leave 1 | disk 1", "2 @1 2,3 = 1,2,3"),
    ("1,2,3", "leave 1 | down 2", "3 @2 3 = 1,2,3"),
    ("1,2", "leave 1 | leave 2: NONE t-0", "2 @1 2 = 1,2"),
    ("1,2", "down 2 | leave 1: NONE t-0 | disk 1", "-1 @2 1 = 1,2"),
    ("1,2", "leave 1 | elect preferred: PREFERRED_LEADER_NOT_AVAILABLE", "2 @1 2 = 1,2"),
    ("1,2", "leave 2 | failover | propose 1,2", "1 @1 1,2 = 1,2"),
    # Unclean elections.
    ("1,2", "isr 1 | leave 2 | down 1 | elect unclean: ELIGIBLE_LEADERS_NOT_AVAILABLE", "-1 @1 1 = 1,2"),
    ("1,2", "isr 1 | disk 2 | down 1 | elect unclean: ELIGIBLE_LEADERS_NOT_AVAILABLE", "-1 @1 1 = 1,2"),
    ("1,2", "isr 1 | down 1 | unclean _TRUE_", "2 @2 2 recovering = 1,2"),
    ("1,2", "isr 1 | down 1 | unclean maybe", "-1 @1 1 = 1,2"),
    ("1,2", "isr 1 | down 1 | unclean true | bounce 2", "2 @4 2 recovering = 1,2"),
    ("1,2", "isr 1 | down 1 | unclean true | unclean false | down 2 | up 1", "-1 @3 2 recovering = 1,2"),
    ("1,2", "isr 1 | down 1 | unclean true | up 1 | propose 2,1: INVALID_REQUEST", "2 @2 2 recovering = 1,2"),
    ("1,2", "isr 1 | down 1 | unclean true | up 1 | propose 2,1 +0,+0 recovered", "2 @2 2,1 = 1,2"),
    ("1,2", "isr 1 | unclean true | disk 1", "2 @1 2 recovering = 1,2"),
    ("1,2", "isr 1 | disk 1", "-1 @1 1 = 1,2"),
    ("1,2", "isr 1 | unclean true | down 1,2 | up 2", "2 @2 2 recovering = 1,2"),
    ("1,2", "isr 1 | down 1,2 | unclean true | up 1", "1 @2 1 = 1,2"),
    ("1,2", "unclean true | down 2 | down 1 | failover | up 2", "2 @3 2 recovering = 1,2"),
    ("1,2", "isr 1 | disk 1 | failover", "-1 @3 1 = 1,2"),
    ("1,2,3", "isr 1,2 | down 1,2 | up 3 | elect unclean | up 1 | copy", "3 @2 3,1 = 1,2,3"),
    # Proposals with two errors: the first that Kafka looks for is answered.
    ("1,2", "isr 1 | propose 1,2 -1,+1: NOT_CONTROLLER", "1 @0 1 = 1,2"),
    ("1,2", "isr 1 | propose 1,2 +1,-1: NOT_CONTROLLER", "1 @0 1 = 1,2"),
    ("1,2", "down 2 | propose 1,2 -1,+0: FENCED_LEADER_EPOCH", "1 @1 1 = 1,2"),
    ("1,2,3", "down 2 | propose 1,2,3 +0,-1: INVALID_UPDATE_VERSION", "1 @1 1,3 = 1,2,3"),
    # Notifications that come too late.
    ("1,2,3", "isr 1,3 | down 1", "3 @1 3 = 1,2,3"),
    ("1,2", "down 1 | up 1 | preferred", "2 @1 2 = 1,2"),
    ("1", "down 1 | bounce 2 | up 1", "1 @2 1 = 1"),
]


@pytest.mark.parametrize(("replicas", "happens", "outcome"), ROWS, ids=[row[1] for row in ROWS])
def test_combined(replicas: str, happens: str, outcome: str) -> None:
    cluster = Cluster(replicas)
    for step in happens.split("|"):
        cluster.act(step)
    assert cluster.end() == outcome
