"""Everything that operators, brokers and fate do to a controller, mixed, and what must hold all the same.

A walk is a list of operations, each with the number of steps that the controller takes before the next one. Operations
that make no sense at that moment do nothing, so any part of a walk is a walk. ``Everything.end`` stops the faults, ends
what holds the controller, brings every broker back and lets followers copy: then everything asked for must be done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controller.core.backoff import RETRY_MAX_US
from controller.core.context import CoreSettings
from controller.core.effects import Commit, SetState
from controller.core.events import Event, EventKind
from controller.core.explain.brokers import explain_broker
from controller.core.explain.partitions import explain_partition
from controller.core.explain.work import explain_reassignment, explain_topic_deletion
from controller.core.model import NO_LEADER, RECOVERED, Maintenance, StopApproval
from controller.core.reassignment.topic_znode import entry_of
from controller.core.requests.brokers import AllocateProducerIds, ControlledShutdown, Proposal
from controller.core.requests.configs import (
    AlterConfigs,
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ConfigScope,
    DescribeConfigs,
)
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.operator import (
    ApproveStop,
    CancelShutdown,
    ForgetBroker,
    SetDrain,
    SetFreeze,
    SetMaintenance,
    SetPause,
    WithdrawStopApproval,
)
from controller.core.requests.reassignment import (
    AlterPartitionReassignments,
    ListPartitionReassignments,
    PartitionReassignment,
)
from controller.core.requests.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Expansion,
    NewTopic,
    TopicRef,
)
from controller.core.topics.deletion_status import deletions
from controller.core.znode_paths import MAINTENANCE, topic_path
from tests.support.core.harness import Fate, MachineHarness, check_told
from tests.support.core.reassignments import copy_all
from tests.support.core.world import Key, World

Operation = tuple[Any, ...]
#: An operation, and how many steps the controller takes before the next (None: until it is quiet).
Move = tuple[Operation, int | None]

BROKERS = (1, 2, 3, 4, 5)
TOPICS = ("a", "b", "c")
UNCLEAN, MIN_ISR = "unclean.leader.election.enable", "min.insync.replicas"
SIGNED = ("why", "who")
#: Events in which a leader may change while the controller is paused: somebody asked for it.
ASKED_FOR = {
    EventKind.SET_PAUSE,
    EventKind.SET_DRAIN,
    EventKind.PREFERRED_ELECTION,
    EventKind.ELECT_LEADERS,
    EventKind.CONTROLLED_SHUTDOWN,
}


class Everything:
    """One walk: the world, its present controller, and the faults still to come."""

    def __init__(
        self,
        settings: CoreSettings,
        faults: Sequence[Fate],
        order: Sequence[int],
        outside: Sequence[int] = (),
    ) -> None:
        self.settings, self.faults, self.order = settings, list(faults), list(order)
        #: Per commit: which bits of an assignment are the ISR that its leader has written meanwhile; 0: it has not.
        self.outside = list(outside)
        self.world = World(1, 2, 3, 4)
        self.world.create_topic("a", {0: [1, 2, 3], 1: [2, 3, 1]})
        self.world.create_topic("b", {0: [2, 1], 1: [4]})
        self.refusing: set[int] = set()
        #: ISRs that were written, and told nobody.
        self.untold: set[Key] = set()
        #: Requests to the present controller, which must all be answered.
        self.asked: list[int] = []
        #: Topics that may have had permission for unclean elections at some time.
        self.permitted: set[str] = set(TOPICS) if settings.unclean_leader_election_enable else set()
        #: Somebody wiped a topic by hand: what brokers keep of it nobody can know.
        self.wiped = False
        self.epoch = 0
        self._take_over()
        self.rig.run()

    def _take_over(self) -> None:
        self.epoch += 1
        self.world.events.clear()
        self.world.watches.clear()
        self.asked.clear()
        # Every second controller has kept everything ready.
        self.world.warm = None if self.epoch % 2 else lambda _: False
        self.rig = rig = MachineHarness(self.world, epoch=self.epoch, settings=self.settings)
        rig.reconnects = True
        rig.fate = self._fate
        rig.pick = lambda n: self.order.pop(0) % n if self.order else 0
        rig.stop_error = lambda broker, _: "UNKNOWN_SERVER_ERROR" if broker in self.refusing else ""
        self.world.events.append(Event(EventKind.FAILOVER))

    def apply(self, move: Move) -> None:
        (name, *arguments), steps = move
        getattr(self, f"do_{name}")(*arguments)
        if steps is None:
            self.rig.run()
            self.check_explained()
        for _ in range(steps or 0):
            self.rig.advance()

    def _ask(self, request: Any) -> None:
        self.asked.append(self.rig.send(request))

    # what must hold at every write

    def _fate(self, commit: Commit) -> Fate:
        event = self.rig.machine.current_event
        assert event is not None
        for write in commit.writes:
            if isinstance(write, SetState):
                self._check_write(event.kind, write)
        bits, first = self.outside.pop(0) if self.outside else 0, commit.writes[0]
        if bits and isinstance(first, SetState):
            self.do_write(first.partition.topic.name, first.partition.number, bits)
        return self.faults.pop(0) if self.faults else Fate.ANSWERED

    def _check_write(self, kind: EventKind, write: SetState) -> None:
        cluster, partition, new = self.rig.cluster, write.partition, write.new
        held, old = cluster.maintenance, self.world.states.get((partition.topic.name, partition.number))
        if old is None or old.partition_epoch != new.partition_epoch - 1:
            return
        what = f"{kind.value}: {partition.name}: {old} -> {new}"
        unclean = new.leader not in (*old.isr, NO_LEADER)
        if not unclean:
            added = set(new.isr) - set(old.isr)
            assert not added or kind is EventKind.ALTER_PARTITION, f"{added} join the ISR unasked: {what}"
            assert set(new.isr) & set(old.isr), f"nobody is left who has all: {what}"
        if unclean:
            asked = kind is EventKind.ELECT_LEADERS or partition.topic.name in self.permitted
            assert asked, f"elected uncleanly without permission: {what}"
            assert new.isr == (new.leader,), f"elected uncleanly with followers in sync: {what}"
            assert kind is EventKind.ELECT_LEADERS or held.entered is None, f"in maintenance: {what}"
            assert not any(cluster.is_online(partition, b) for b in old.isr), (
                f"somebody in sync was there: {what}"
            )
        if new.leader in (old.leader, NO_LEADER):
            return
        assert new.leader in cluster.brokers, f"elected though gone: {what}"
        assert new.leader not in cluster.shutting_down, f"elected though leaving: {what}"
        # A move that takes the leader's replica away again was asked for, too.
        moved = old.leader not in (NO_LEADER, *partition.replicas)
        key = (partition.topic.name, partition.number)
        asked = moved or kind in ASKED_FOR or key in (self.world.preferred or ())
        assert held.paused is None or asked, f"elected while paused: {what}"
        others = [
            b
            for b in partition.replicas
            if b in old.isr and b not in held.drained and cluster.is_online(partition, b)
        ]
        assert new.leader not in held.drained or not others, f"drained, though {others} could: {what}"

    def check_explained(self) -> None:
        """Nothing is ever a bare code, and nothing that is asked about makes the controller fall."""
        cluster = self.rig.cluster
        for partition in cluster.partitions():
            assert explain_partition(cluster, partition, unclean_allowed=False).words()
            assert explain_reassignment(cluster, self.settings, partition).words()
        for status in deletions(cluster):
            found = explain_topic_deletion(cluster, self.settings, status.topic)
            assert found is not None
            assert found.words()
        for broker_id in BROKERS:
            assert explain_broker(cluster, broker_id).summary
        self._check_assignments()

    def check_metadata(self) -> None:
        """All brokers have what the controller knows, where no topic is being deleted."""
        cluster = self.rig.cluster
        for partition in cluster.partitions():
            known, key = partition.leadership, (partition.topic.name, partition.number)
            if known is None or cluster.deletion_requested(partition.topic.name):
                continue
            for broker in self.world.brokers.keys() & cluster.brokers.keys():
                check_told(
                    self.rig.received[broker].metadata.get(key), known, f"broker {broker}, {partition}"
                )

    def _check_assignments(self) -> None:
        """What is believed of assignments is what topic znodes say, save what is deleted, or could not be written."""
        cluster = self.rig.cluster
        for name, info in self.world.topics.items():
            topic = cluster.topics.get(name)
            if topic is None or topic.czxid != info.czxid or name in cluster.topics_to_delete:
                continue
            if topic_path(name) in self.world.unreadable:
                continue
            for number, partition in topic.partitions.items():
                if partition in cluster.reassignments.problems or number not in info.partitions:
                    continue
                stored = tuple(
                    tuple(field.get(number, ()))
                    for field in (
                        info.partitions, info.adding, info.removing, info.original, info.queued,
                    )
                )  # fmt: skip
                assert stored == tuple(entry_of(cluster, partition))[:5], partition

    # brokers

    def do_up(self, broker: int) -> None:
        if broker not in self.world.brokers:
            self.world.broker_up(broker)

    def do_down(self, *brokers: int) -> None:
        """All at once."""
        if gone := [b for b in dict.fromkeys(brokers) if b in self.world.brokers]:
            self.world.broker_down(*gone)

    def do_bounce(self, *brokers: int) -> None:
        if back := [b for b in dict.fromkeys(brokers) if b in self.world.brokers]:
            self.world.bounce(*back)

    def do_leave(self, broker: int) -> None:
        self._ask(ControlledShutdown(broker, None))

    def do_stay(self, broker: int) -> None:
        self._ask(CancelShutdown(broker, -1))

    def do_slow(self, broker: int) -> None:
        self.rig.slow.add(broker)

    def do_fast(self, broker: int) -> None:
        self.rig.slow.discard(broker)
        self.rig.drain()

    def do_disk(self, broker: int, topic: str, number: int) -> None:
        if broker in self.world.brokers:
            self.world.lost.setdefault(broker, set()).add((topic, number))
            self.world.notify_log_dir(broker)

    def do_mend_disk(self, broker: int) -> None:
        if broker in self.world.brokers and self.world.lost.get(broker):
            del self.world.lost[broker]
            self.world.notify_log_dir(broker)

    def do_refuse(self, broker: int, on: bool) -> None:
        (self.refusing.add if on else self.refusing.discard)(broker)

    def do_hold_stops(self, on: bool) -> None:
        self.rig.hold_stops = on
        if not on:
            self.rig.answer_stops()

    def do_alter(self, topic: str, number: int, bits: int) -> None:
        """Whoever believes to lead proposes, from what it was told last: perhaps long ago."""
        for broker in self.world.brokers:
            notified = self.rig.received.get(broker)
            entry = notified.metadata.get((topic, number)) if notified else None
            if notified and entry is not None and entry.leader == broker:
                isr = [b for i, b in enumerate(entry.replicas) if bits >> i & 1 or b == broker]
                proposal = self._proposal(topic, number, entry, isr)
                self._ask(self.rig.alter(broker, proposal, broker_epoch=notified.epoch))

    def _proposal(self, topic: str, number: int, entry: Any, isr: Sequence[int]) -> Proposal:
        return Proposal(topic, "", number, entry.leader_epoch, tuple(isr), RECOVERED, entry.partition_epoch)

    def do_notify(self, topic: str, number: int, bits: int) -> None:
        """A leader in notification mode writes its ISR, and tells."""
        if self._write_isr(topic, number, bits):
            self.world.notify_isr((topic, number))

    def do_write(self, topic: str, number: int, bits: int) -> None:
        """One that tells later."""
        if self._write_isr(topic, number, bits):
            self.untold.add((topic, number))

    def _write_isr(self, topic: str, number: int, bits: int) -> bool:
        stored, info = self.world.states.get((topic, number)), self.world.topics.get(topic)
        if stored is None or info is None or stored.leader not in self.world.brokers:
            return False
        isr = [
            b
            for i, b in enumerate(info.partitions.get(number, ()))
            if (bits >> i & 1 and b in self.world.brokers) or b == stored.leader
        ]
        if stored.leader in isr:
            self.world.shrink_or_grow(topic, number, isr)
        return stored.leader in isr

    def do_join(self) -> None:
        """Followers have caught up: leaders take in every assigned replica that is up."""
        for partition in list(self.rig.cluster.partitions()):
            known = partition.leadership
            if known is None or known.leader not in self.world.brokers:
                continue
            up = [b for b in partition.replicas if self.rig.cluster.is_online(partition, b)]
            isr = list(dict.fromkeys([known.leader, *up]))
            key = (partition.topic.name, partition.number)
            self._ask(self.rig.alter(known.leader, self.rig.proposal(isr, *key, recovery=RECOVERED)))

    def do_ids(self, broker: int) -> None:
        if broker in self.world.brokers:
            self._ask(AllocateProducerIds(broker, self.world.brokers[broker].epoch))

    # topics

    def do_create(self, topic: str, lists: Sequence[Sequence[int]]) -> None:
        assignment = {n: tuple(ids) for n, ids in enumerate(lists)}
        self._ask(CreateTopics([NewTopic(topic, assignment=assignment, configs={MIN_ISR: "1"})]))

    def do_place(self, topic: str, partitions: int, factor: int) -> None:
        self._ask(CreateTopics([NewTopic(topic, partitions, factor)]))

    def do_create_znode(self, topic: str, lists: Sequence[Sequence[int]]) -> None:
        if topic not in self.world.topics:
            self.world.create_topic(topic, dict(enumerate(lists)), "" if len(lists) == 1 else None)

    def do_expand(self, topic: str, more: int) -> None:
        if topic in self.world.topics and (count := len(self.world.topics[topic].partitions)) < 5:
            self._ask(CreatePartitions([Expansion(topic, count + more)]))

    def do_expand_znode(self, topic: str, lists: Sequence[Sequence[int]]) -> None:
        if topic in self.world.topics and (count := len(self.world.topics[topic].partitions)) < 5:
            self.world.expand_topic(topic, {count + n: ids for n, ids in enumerate(lists)})

    def do_delete(self, topic: str) -> None:
        self._ask(DeleteTopics([TopicRef(topic)]))

    def do_mark(self, topic: str) -> None:
        if topic not in self.world.deletions:
            self.world.mark_for_deletion(topic)

    def do_unmark(self, topic: str) -> None:
        """An operator changes their mind."""
        if topic in self.world.deletions:
            self.world._delete(f"/admin/delete_topics/{topic}")

    def do_wipe(self, topic: str) -> None:
        """By hand, recursively."""
        if topic in self.world.topics:
            self.world.delete_topic(topic)
            self.world.unreadable.pop(topic_path(topic), None)
            self.wiped = True

    # moves and elections

    def do_move(self, targets: Mapping[Key, Sequence[int] | None]) -> None:
        asked = [
            PartitionReassignment(t, n, None if ids is None else tuple(ids))
            for (t, n), ids in targets.items()
        ]
        self._ask(AlterPartitionReassignments(asked))

    def do_cancel(self) -> None:
        known = self.rig.cluster.reassignments
        self.do_move({(p.topic.name, p.number): None for p in (*known.ongoing, *known.queued)})

    def do_move_znode(self, targets: Mapping[Key, Sequence[int]]) -> None:
        if self.world.reassignment is None:
            self.world.ask_reassignment(targets)

    def do_list(self) -> None:
        self._ask(ListPartitionReassignments())

    def do_elect(self, kind: str, keys: Sequence[Key] | None, leader: int) -> None:
        election = ElectionType(kind)
        chosen = election is ElectionType.CHOSEN
        self._ask(ElectLeaders(election, keys or (() if chosen else None), leader if chosen else None))

    def do_elect_znode(self, keys: Sequence[Key]) -> None:
        if self.world.preferred is None:
            self.world.ask_preferred(*keys)

    # configuration and maintenance

    def do_config(self, topic: str, key: str, value: str | None) -> None:
        resource = ConfigResource(ConfigScope.TOPIC, topic)
        self._permit(topic, key, value)
        self._ask(AlterConfigs([ConfigAlteration(resource, [ConfigChange(key, value)])]))
        self._ask(DescribeConfigs([resource]))

    def do_default(self, value: str | None) -> None:
        for topic in TOPICS:
            self._permit(topic, UNCLEAN, value)
        change = ConfigChange(UNCLEAN, value)
        self._ask(AlterConfigs([ConfigAlteration(ConfigResource(ConfigScope.BROKER), [change])]))

    def do_config_znode(self, topic: str, value: str) -> None:
        self._permit(topic, UNCLEAN, value)
        self.world.put_node(f"/config/topics/{topic}", {UNCLEAN: value})
        self.world.notify_config(f"topics/{topic}")

    def _permit(self, topic: str, key: str, value: str | None) -> None:
        if key == UNCLEAN and value == "true":
            self.permitted.add(topic)

    def do_drain(self, broker: int, on: bool) -> None:
        self._ask(SetDrain(broker, on, *SIGNED, force=True))

    def do_pause(self, on: bool) -> None:
        self._ask(SetPause(on, *SIGNED))

    def do_mode(self, on: bool) -> None:
        self._ask(SetMaintenance(on, *SIGNED))

    def do_freeze(self, on: bool) -> None:
        self._ask(SetFreeze(on, *SIGNED, until_ms=1))

    def do_forget(self, broker: int) -> None:
        self._ask(ForgetBroker(broker, *SIGNED, at_ms=1))

    def do_approve(self, broker: int) -> None:
        if broker in self.rig.cluster.brokers:
            standing: Mapping[int, StopApproval] = self.rig.cluster.approvals
            counted = frozenset(
                (b, a.broker_epoch)
                for b, a in standing.items()
                if b in self.rig.cluster.brokers and self.rig.cluster.brokers[b].epoch == a.broker_epoch
            )
            epoch = self.rig.cluster.brokers[broker].epoch
            self._ask(ApproveStop({broker: epoch}, counted, *SIGNED, 0))

    def do_withdraw(self, broker: int) -> None:
        self._ask(WithdrawStopApproval([broker], *SIGNED))

    # fate

    def do_tick(self, kind: str, seconds: int) -> None:
        self.rig.now_us += seconds * 1_000_000
        self.world.events.append(Event(EventKind[kind]))

    def do_reconnect(self) -> None:
        self.world.lose_watches()

    def do_damage(self, path: str) -> None:
        there = (*map(topic_path, self.world.topics), "/config/topics/", "/brokers/ids/")
        if path.startswith(there) and path not in self.world.unreadable:
            self.world.damage(path)

    def do_mend(self) -> None:
        for path in list(self.world.unreadable):
            self.world.mend(path)
            if path.startswith("/config/"):
                self.world.notify_config(path.removeprefix("/config/"))

    def do_failover(self, landing: int) -> None:
        """The controller ends; so many of its requests still reach ZooKeeper."""
        for request in self.rig.outstanding[:landing]:
            if isinstance(request, Commit):
                self.rig.perform(request)
        self._take_over()

    # the end

    def end(self) -> None:
        """Faults stop, holds end, everybody is back: then everything is done, and stays done."""
        self.faults.clear()
        self.outside.clear()
        self.order.clear()
        self.refusing.clear()
        self.rig.slow.clear()
        self._quiet()
        for serial in self.asked:
            assert serial in self.rig.replies, f"request {serial} was never answered"
        stored = self.world.nodes.get(MAINTENANCE)
        assert self.rig.cluster.maintenance == (stored.value if stored else Maintenance())
        self.check_explained()
        self.check_metadata()
        for broker in BROKERS:
            self.do_up(broker)
            if self.world.lost.get(broker) or self.rig.cluster.offline_dirs.get(broker):
                # A disk comes back with its broker.
                self.do_bounce(broker)
            self.do_stay(broker)
            self.do_drain(broker, False)
        self.do_hold_stops(False)
        self.do_mend()
        if self.untold:
            self.world.notify_isr(*sorted(self.untold))
        self.do_mode(False)
        self.do_freeze(False)
        self.do_pause(False)
        self._quiet()
        for broker in [b for b, waiting in self.rig.cluster.leftovers.items() if waiting]:
            # It refused to delete these: it is asked again when it registers again.
            self.do_bounce(broker)
        self._quiet()
        for _ in range(4):
            copy_all(self.rig)
            self.do_tick("TOPIC_DELETION_RETRY", RETRY_MAX_US // 1_000_000)
            self.do_tick("LEADER_REBALANCE", 300)
            self._quiet()
        self.check_done()
        successor = MachineHarness(self.world, epoch=self.epoch + 1, settings=self.settings).failover()
        successor.check_converged()
        self._delete_all(successor)

    def _delete_all(self, rig: MachineHarness) -> None:
        """Then every topic is deleted, and nothing is left of any."""
        world, cluster = self.world, rig.cluster
        for topic in world.topics:
            world.mark_for_deletion(topic)
        rig.run()
        assert (world.topics, world.states, world.deletions) == ({}, {}, [])
        assert not cluster.topics
        assert not (
            cluster.topics_to_delete | cluster.topics_deletion_started | cluster.deletions_ineligible.keys()
        )
        assert not cluster.deletions_waiting
        assert not cluster.deletions_ineligible_count
        assert not any(told.metadata or told.replicas for told in rig.received.values())
        if not self.wiped:
            assert not any(world.folders.values()), world.folders
        world.create_topic("a", {0: [1, 2], 1: [3]})
        rig.run()
        rig.check_converged()
        assert rig.stored("a") == (1, 0, [1, 2])

    def _quiet(self) -> None:
        self.rig.run()
        self.rig.drain()
        self.rig.run()

    def check_done(self) -> None:
        world, cluster = self.world, self.rig.cluster
        reassignments = cluster.reassignments
        assert cluster.maintenance.suspension is None
        assert not cluster.maintenance.drained
        assert not world.deletions, f"still marked: {world.deletions}"
        assert not (
            cluster.topics_to_delete | cluster.deletions_waiting.keys() | cluster.deletions_ineligible.keys()
        )
        assert not cluster.topics_deletion_started
        assert cluster.deletions_ineligible_count.keys() <= cluster.topics.keys()
        assert world.reassignment is None
        assert world.preferred is None
        assert not [p for p in world.notifications if not p.startswith("/config/changes")]
        for name in ("ongoing", "queued", "problems", "strays", "refusals"):
            assert not getattr(reassignments, name), f"{name}: {getattr(reassignments, name)}"
        for info in world.topics.values():
            assert not any((info.adding, info.removing, info.original, info.queued, info.stray)), info
        assert not any(cluster.offline_dirs.values())
        assert not cluster.shutting_down
        assert not cluster.leftovers, cluster.leftovers
        odd = {f"/config/topics/{t}" for t, config in world.configs.items() if config.get(UNCLEAN) == "maybe"}
        assert cluster.problems.keys() <= odd, cluster.problems
        for partition in cluster.partitions():
            assert not partition.departing, partition
            known = partition.leadership
            assert known is not None, f"{partition} is not initialised"
            assert known.leader in world.brokers, f"{partition} has no leader"
            assert set(known.isr) == set(partition.replicas), partition
        self.rig.check_converged()
        if not self.wiped:
            self._check_folders()

    def _check_folders(self) -> None:
        for broker, keys in self.world.folders.items():
            for topic, number in keys:
                info = self.world.topics.get(topic)
                assert info is not None, f"broker {broker} keeps {topic}-{number}, deleted"
                assert broker in info.partitions[number], (
                    f"broker {broker} keeps {topic}-{number}, moved away"
                )
