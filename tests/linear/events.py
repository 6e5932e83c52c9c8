"""Inputs of each core event that can be large, one row for each way in which it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from controller.core.context import CoreSettings
from controller.core.events import Body, DiskReport, Event, EventKind, StatesCheck, StopReport, TellAgain
from controller.core.handlers import event_of
from controller.core.model import LeaderAndIsr, Partition
from controller.core.requests.api import ControllerRequest
from controller.core.requests.brokers import AllocateProducerIds, ControlledShutdown
from controller.core.requests.configs import (
    AlterConfigs,
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ConfigScope,
    DescribeConfigs,
)
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.features import DescribeFeatures, FeatureUpdate, UpdateFeatures, UpgradeType
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
from controller.core.requests.scram_credentials import (
    AlterScramCredentials,
    ScramAlteration,
    ScramCredential,
)
from controller.core.requests.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Expansion,
    NewTopic,
    TopicRef,
)
from controller.core.znode_paths import topic_path
from tests.linear.steps import Make, Steps, ids
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World

Lists = Iterable[Sequence[int]]
FEW = (1, 2, 3)


def narrow(n: int) -> Lists:
    """Many partitions."""
    return ([1, 2] if number % 2 else [2, 3] for number in range(n))


def wide(n: int) -> Lists:
    """One partition with many replicas, the first two on brokers."""
    return ([1, 2, *range(100, 98 + n)],)


def world_of(lists: Lists = (), topics: int = 1) -> World:
    world = World(*FEW)
    lists = [ids(each) for each in lists]
    for number in range(topics if lists else 0):
        world.create_topic(f"t{number}" if topics > 1 else "t", dict(enumerate(lists)))
    return world


def active(lists: Lists = (), topics: int = 1, **kwargs: Any) -> MachineHarness:
    rig = MachineHarness.active(world_of(lists, topics), **kwargs)
    rig.run()
    return rig


def counted(rig: MachineHarness, act: Callable[[], object]) -> Callable[[], int]:
    """Only what the machine does: what the rig itself does, and looks at, is no work of ours."""
    total = Steps()
    step = rig.machine.step

    def traced(*arguments: Any) -> Any:
        with total:
            return step(*arguments)

    def work() -> int:
        rig.machine.step = traced  # type: ignore[method-assign, assignment]
        act()
        return total.count

    return work


def looked(prepare: Callable[[int], MachineHarness], kind: EventKind) -> Make:
    """The event is the only one."""

    def make(n: int) -> Callable[[], int]:
        rig = prepare(n)
        rig.world.events.clear()
        rig.world.events.append(Event(kind))
        return counted(rig, rig.run)

    return make


def changed(
    prepare: Callable[[int], MachineHarness], change: Callable[[MachineHarness, int], object]
) -> Make:
    """The events that a change of the world brings."""

    def make(n: int) -> Callable[[], int]:
        rig = prepare(n)
        change(rig, n)
        return counted(rig, rig.run)

    return make


def asked(
    prepare: Callable[[int], MachineHarness], request: Callable[[MachineHarness, int], ControllerRequest]
) -> Make:
    def make(n: int) -> Callable[[], int]:
        rig = prepare(n)
        body = request(rig, n)
        return counted(rig, lambda: rig.ask(body))

    return make


def with_partitions(n: int) -> MachineHarness:
    return active(narrow(n))


def with_replicas(n: int) -> MachineHarness:
    return active(wide(n))


def with_topics(n: int) -> MachineHarness:
    return active([[1, 2]], topics=max(n, 2))


def without(_: int) -> MachineHarness:
    return active()


def moving(n: int, settings: CoreSettings | None = None) -> MachineHarness:
    """A reassignment of each partition."""
    rig = active(narrow(n), settings=settings)
    rig.world.broker_up(4)
    rig.run()
    rig.ask(AlterPartitionReassignments([PartitionReassignment("t", k, ids([4, 3])) for k in range(n)]))
    return rig


def waiting(n: int) -> MachineHarness:
    return moving(n, CoreSettings(reassignment_concurrent_moves_max=max(n // 2, 1)))


def moving_wide(n: int) -> MachineHarness:
    rig = active([[1, 2]])
    rig.world.ask_reassignment({("t", 0): ids([1, 3, *range(100, 100 + n)])})
    rig.run()
    return rig


def caught_up(rig: MachineHarness, n: int) -> None:
    for number in range(n):
        rig.world.shrink_or_grow("t", number, ids([1, 2, 3, 4]))
    rig.world.notify_isr(*[("t", number) for number in range(n)])


def deleting(n: int) -> MachineHarness:
    """Topics whose replicas are told to go, by brokers that have not answered."""
    rig = with_topics(n)
    rig.hold_stops = True
    rig.world.mark_for_deletion(*rig.world.topics)
    rig.run()
    return rig


def stopped(prepare: Callable[[int], MachineHarness]) -> Make:
    def make(n: int) -> Callable[[], int]:
        rig = prepare(n)
        partitions = list(rig.cluster.partitions())
        report = StopReport(1, rig.cluster.brokers[1].epoch, partitions)
        rig.world.events.append(event_of(report, 1))
        return counted(rig, rig.run)

    return make


def disks(prepare: Callable[[int], MachineHarness]) -> Make:
    def make(n: int) -> Callable[[], int]:
        rig = prepare(n)
        report = DiskReport(1, rig.cluster.brokers[1].epoch, list(rig.cluster.partitions()))
        rig.world.events.append(event_of(report, 1))
        return counted(rig, rig.run)

    return make


def reported(
    prepare: Callable[[int], MachineHarness], report: Callable[[MachineHarness, list[Partition]], Body]
) -> Make:
    """What the audit found about all partitions."""

    def make(n: int) -> Callable[[], int]:
        rig = prepare(n)
        rig.world.events.append(event_of(report(rig, list(rig.cluster.partitions())), 1))
        return counted(rig, rig.run)

    return make


def untold(rig: MachineHarness, partitions: list[Partition]) -> TellAgain:
    epoch = rig.cluster.brokers[1].epoch
    unknown = [("x", number) for number in range(len(partitions))]
    floors = [(p, 0) for p in partitions]
    newer = [(p, LeaderAndIsr(p.replicas[0], 100, p.replicas[:1], 0, 0)) for p in partitions]
    rig.world.forgotten |= {(p.topic.name, p.number) for p in partitions}
    return TellAgain(1, epoch, partitions, floors, partitions, unknown, partitions, newer)


def proposals(repeated: bool) -> Callable[[MachineHarness, int], ControllerRequest]:
    def request(rig: MachineHarness, n: int) -> ControllerRequest:
        numbers = [0 if repeated else number for number in range(0, 2 * n, 2)]
        return rig.alter(2, *[rig.proposal(ids([2]), number=number) for number in numbers])

    return request


def create_topics(rig: MachineHarness, topics: dict[str, list[int]]) -> None:
    for name, replicas in topics.items():
        rig.world.create_topic(name, {0: ids(replicas)})


def expand_topics(rig: MachineHarness) -> None:
    for name in list(rig.world.topics):
        rig.world.expand_topic(name, {1: ids([1, 2])})


def unreadable(rig: MachineHarness, n: int) -> None:
    for name in [f"bad{k}" for k in range(n)]:
        rig.world.create_topic(name, {0: [1]})
        rig.world.damage(topic_path(name))
    rig.run()
    for k in range(n):
        rig.world.unreadable.pop(topic_path(f"bad{k}"))
        del rig.world.topics[f"bad{k}"]
    rig.world.events.append(Event(EventKind.TOPIC_CHANGE))


def one_of_many_rig(n: int) -> MachineHarness:
    rig = active()
    for k in range(n):
        rig.world.create_topic(f"t{k}", {0: ids([1, 2])}, topic_id="same")
    rig.run()
    return rig


def configs(n: int) -> list[ConfigResource]:
    return [ConfigResource(ConfigScope.TOPIC, f"t{k}") for k in range(n)]


def register(rig: MachineHarness, n: int) -> None:
    for broker_id in range(1000, 1000 + n):
        rig.world.broker_up(broker_id)


def unregister(rig: MachineHarness, _: int) -> None:
    rig.world.broker_down(*[b for b in rig.world.brokers if b >= 1000])


def many_brokers(n: int) -> MachineHarness:
    rig = with_partitions(2)
    register(rig, n)
    rig.run()
    return rig


def shutdown(rig: MachineHarness, _: int) -> ControllerRequest:
    return ControlledShutdown(2, rig.cluster.brokers[2].epoch)


def shut(n: int) -> MachineHarness:
    rig = with_partitions(n)
    rig.ask(shutdown(rig, n))
    return rig


def failover(prepare: Callable[[int], World]) -> Make:
    def make(n: int) -> Callable[[], int]:
        rig = MachineHarness(prepare(n), epoch=2)
        rig.world.events.append(Event(EventKind.FAILOVER))
        return counted(rig, rig.run)

    return make


def _pairs(n: int) -> list[tuple[str, int]]:
    return [("t", number) for number in range(n)]


#: By event: what is large, and the work.
ROWS: dict[EventKind, dict[str, Make]] = {
    EventKind.FAILOVER: {
        "partitions": failover(lambda n: world_of(narrow(n))),
        "replicas": failover(lambda n: world_of(wide(n))),
        "topics": failover(lambda n: world_of([[1, 2]], max(n, 2))),
        "one id": failover(lambda n: one_of_many_rig(n).world),
    },
    EventKind.BROKER_CHANGE: {
        "brokers that come": changed(lambda _: with_partitions(2), register),
        "brokers that go": changed(many_brokers, unregister),
        "partitions of one that goes": changed(with_partitions, lambda rig, _: rig.world.broker_down(2)),
        "replicas of a partition of one that goes": changed(
            with_replicas, lambda rig, _: rig.world.broker_down(2)
        ),
        "reassignments that wait for one that comes": changed(moving, lambda rig, _: rig.world.bounce(4)),
    },
    EventKind.TOPIC_CHANGE: {
        "partitions": changed(
            without, lambda rig, n: rig.world.create_topic("n", dict(enumerate(narrow(n))))
        ),
        "replicas": changed(
            without, lambda rig, n: rig.world.create_topic("n", {0: ids(next(iter(wide(n))))})
        ),
        "topics": changed(without, lambda rig, n: create_topics(rig, {f"n{k}": [1, 2] for k in range(n)})),
        "unreadable topics that vanish": changed(without, unreadable),
        "one id": looked(one_of_many_rig, EventKind.TOPIC_CHANGE),
    },
    EventKind.PARTITION_MODIFICATIONS: {
        "partitions": changed(
            with_partitions,
            lambda rig, n: rig.world.expand_topic("t", {n + k: ids([1, 2]) for k in range(n)}),
        ),
        "topics": changed(with_topics, lambda rig, _: expand_topics(rig)),
    },
    EventKind.PREFERRED_ELECTION: {
        "partitions": changed(with_partitions, lambda rig, n: rig.world.ask_preferred(*_pairs(n))),
        "one partition": changed(with_partitions, lambda rig, n: rig.world.ask_preferred(*[("t", 0)] * n)),
    },
    EventKind.RECONNECTED: {
        "partitions": looked(with_partitions, EventKind.RECONNECTED),
        "topics": looked(with_topics, EventKind.RECONNECTED),
        "replicas": looked(with_replicas, EventKind.RECONNECTED),
    },
    EventKind.CONTROLLED_SHUTDOWN: {
        "partitions": asked(with_partitions, shutdown),
        "replicas": asked(with_replicas, shutdown),
    },
    EventKind.ALTER_PARTITION: {
        "partitions": asked(lambda n: active([[2, 1]] * (2 * n)), proposals(repeated=False)),
        "one partition": asked(lambda n: active([[2, 1]] * (2 * n)), proposals(repeated=True)),
        "members of the ISR": asked(
            with_replicas, lambda rig, n: rig.alter(1, rig.proposal(ids([1, *range(100, 98 + n)])))
        ),
    },
    EventKind.ISR_CHANGE: {
        "partitions": changed(with_partitions, lambda rig, n: rig.world.notify_isr(*_pairs(n))),
        "notifications": changed(
            with_partitions, lambda rig, n: [rig.world.notify_isr(("t", 0)) for _ in range(n)]
        ),
    },
    EventKind.LOG_DIR: {
        "partitions": changed(with_partitions, lambda rig, _: rig.world.notify_log_dir(2)),
        "notifications": changed(
            lambda _: with_partitions(2), lambda rig, n: [rig.world.notify_log_dir(77) for _ in range(n)]
        ),
    },
    EventKind.LEADER_AND_ISR_RESPONSE: {
        "partitions": disks(with_partitions),
        "replicas": disks(with_replicas),
    },
    EventKind.STATE_DIFFERENCE: {
        "partitions": reported(with_partitions, untold),
        "replicas": reported(with_replicas, untold),
    },
    EventKind.STORED_STATES: {
        "partitions": reported(with_partitions, lambda _, found: StatesCheck(found)),
        "replicas": reported(with_replicas, lambda _, found: StatesCheck(found)),
    },
    EventKind.TOPIC_DELETION: {
        "topics": changed(with_topics, lambda rig, _: rig.world.mark_for_deletion(*rig.world.topics)),
        "partitions": changed(with_partitions, lambda rig, _: rig.world.mark_for_deletion("t")),
        "replicas": changed(with_replicas, lambda rig, _: rig.world.mark_for_deletion("t")),
        "topics that are unknown": changed(
            without, lambda rig, n: rig.world.mark_for_deletion(*[f"x{k}" for k in range(n)])
        ),
    },
    EventKind.TOPIC_DELETION_RETRY: {"topics": looked(deleting, EventKind.TOPIC_DELETION_RETRY)},
    EventKind.STOP_REPLICA_RESPONSE: {"topics": stopped(deleting)},
    EventKind.DELETION_PROGRESS: {"topics": looked(deleting, EventKind.DELETION_PROGRESS)},
    EventKind.CREATE_TOPICS: {
        "topics": asked(without, lambda _, n: CreateTopics([NewTopic(f"n{k}", 1, 2) for k in range(n)])),
        "topics that are only validated": asked(
            without, lambda _, n: CreateTopics([NewTopic(f"n{k}", 1, 2) for k in range(n)], True)
        ),
        "partitions": asked(without, lambda _, n: CreateTopics([NewTopic("n", n, 2)])),
        "replicas": asked(
            without, lambda _, n: CreateTopics([NewTopic("n", assignment={0: ids(next(iter(wide(n))))})])
        ),
        "settings": asked(
            without,
            lambda _, n: CreateTopics([NewTopic("n", 1, 1, configs={f"k{k}": "v" for k in range(n)})]),
        ),
        "one name": asked(without, lambda _, n: CreateTopics([NewTopic("n", 1, 1)] * n)),
    },
    EventKind.CREATE_PARTITIONS: {
        "topics": asked(
            with_topics, lambda rig, _: CreatePartitions([Expansion(name, 2) for name in rig.world.topics])
        ),
        "partitions": asked(with_partitions, lambda _, n: CreatePartitions([Expansion("t", 2 * n)])),
    },
    EventKind.DELETE_TOPICS: {
        "topics": asked(with_topics, lambda rig, _: DeleteTopics([TopicRef(n) for n in rig.world.topics])),
        "one name": asked(with_topics, lambda _, n: DeleteTopics([TopicRef("t0")] * n)),
    },
    EventKind.REASSIGNMENT: {
        "partitions": changed(
            with_partitions,
            lambda rig, n: rig.world.ask_reassignment({key: ids([3, 1]) for key in _pairs(n)}),
        ),
        "replicas": changed(
            lambda _: active([[1, 2]]),
            lambda rig, n: rig.world.ask_reassignment({("t", 0): ids([1, 3, *range(100, 100 + n)])}),
        ),
        "partitions that there are not": changed(
            lambda _: active([[1, 2]]),
            lambda rig, n: rig.world.ask_reassignment({("x", k): ids([1]) for k in range(n)}),
        ),
    },
    EventKind.REASSIGNMENT_IN_SYNC: {"partitions": changed(moving, caught_up)},
    EventKind.ALTER_REASSIGNMENTS: {
        "partitions": asked(
            with_partitions,
            lambda _, n: AlterPartitionReassignments(
                [PartitionReassignment("t", k, ids([3, 1])) for k in range(n)]
            ),
        ),
        "cancelled partitions": asked(
            moving,
            lambda _, n: AlterPartitionReassignments([PartitionReassignment("t", k, None) for k in range(n)]),
        ),
        "replicas of a cancelled partition": asked(
            moving_wide, lambda *_: AlterPartitionReassignments([PartitionReassignment("t", 0, None)])
        ),
        "replicas that there are not": asked(
            lambda _: active([[1, 2]]),
            lambda _, n: AlterPartitionReassignments([PartitionReassignment("t", 0, ids(range(n)))]),
        ),
        "one partition": asked(
            with_partitions,
            lambda _, n: AlterPartitionReassignments([PartitionReassignment("t", 0, ids([3, 1]))] * n),
        ),
    },
    EventKind.LIST_REASSIGNMENTS: {
        "partitions": asked(moving, lambda *_: ListPartitionReassignments()),
        "partitions that wait": asked(waiting, lambda *_: ListPartitionReassignments()),
        "replicas": asked(moving_wide, lambda *_: ListPartitionReassignments()),
        "one partition": asked(moving, lambda _, n: ListPartitionReassignments([("t", 0)] * n)),
    },
    EventKind.ELECT_LEADERS: {
        "partitions": asked(with_partitions, lambda *_: ElectLeaders(ElectionType.PREFERRED, None)),
        "one partition": asked(
            with_partitions, lambda _, n: ElectLeaders(ElectionType.UNCLEAN, [("t", 0)] * n)
        ),
    },
    EventKind.CONFIG_CHANGE: {
        "notifications": changed(
            with_topics, lambda rig, n: [rig.world.notify_config(f"topics/t{k}") for k in range(n)]
        ),
    },
    EventKind.SETTINGS_CHANGE: {
        "settings": looked(without, EventKind.SETTINGS_CHANGE),
        "reassignments": looked(moving, EventKind.SETTINGS_CHANGE),
    },
    EventKind.ALLOCATE_PRODUCER_IDS: {
        "partitions": asked(
            with_partitions, lambda rig, _: AllocateProducerIds(1, rig.cluster.brokers[1].epoch)
        ),
    },
    EventKind.ALTER_CONFIGS: {
        "resources": asked(
            with_topics,
            lambda _, n: AlterConfigs(
                [ConfigAlteration(r, [ConfigChange("retention.ms", "1")]) for r in configs(n)]
            ),
        ),
        "settings": asked(
            with_topics,
            lambda _, n: AlterConfigs(
                [ConfigAlteration(configs(1)[0], [ConfigChange(f"k{k}", "1") for k in range(n)])]
            ),
        ),
    },
    EventKind.DESCRIBE_CONFIGS: {"resources": asked(with_topics, lambda _, n: DescribeConfigs(configs(n)))},
    EventKind.ALTER_SCRAM_CREDENTIALS: {
        "users": asked(
            without,
            lambda _, n: AlterScramCredentials(
                [ScramAlteration(f"u{k}", "SCRAM-SHA-256", ScramCredential(4096, "text")) for k in range(n)]
            ),
        ),
        "one user": asked(
            without,
            lambda _, n: AlterScramCredentials(
                [ScramAlteration("u", "SCRAM-SHA-256", ScramCredential(4096, "text"))] * n
            ),
        ),
    },
    EventKind.DESCRIBE_FEATURES: {"brokers": asked(many_brokers, lambda *_: DescribeFeatures())},
    EventKind.UPDATE_FEATURES: {
        "features": asked(
            without,
            lambda _, n: UpdateFeatures([FeatureUpdate(f"f{k}", 1, UpgradeType.UPGRADE) for k in range(n)]),
        ),
        "one feature": asked(
            without, lambda _, n: UpdateFeatures([FeatureUpdate("f", 1, UpgradeType.UPGRADE)] * n)
        ),
    },
    EventKind.SET_DRAIN: {"partitions": asked(with_partitions, lambda *_: SetDrain(2, True, "why", "ann"))},
    EventKind.SET_PAUSE: {
        "partitions": asked(with_partitions, lambda *_: SetPause(True, "why", "ann")),
        "reassignments": asked(moving, lambda *_: SetPause(True, "why", "ann")),
    },
    EventKind.SET_MAINTENANCE: {
        "partitions": asked(with_partitions, lambda *_: SetMaintenance(True, "why", "ann")),
    },
    EventKind.SET_FREEZE: {
        "partitions": asked(with_partitions, lambda *_: SetFreeze(True, "why", "ann", 1)),
        "reassignments": asked(moving, lambda *_: SetFreeze(True, "why", "ann", 1)),
    },
    EventKind.FORGET_BROKER: {
        "partitions": asked(with_partitions, lambda *_: ForgetBroker(99, "why", "ann", 1)),
    },
    EventKind.MAINTENANCE_CHECK: {"partitions": looked(with_partitions, EventKind.MAINTENANCE_CHECK)},
    EventKind.CANCEL_SHUTDOWN: {
        "partitions": asked(shut, lambda rig, _: CancelShutdown(2, rig.cluster.brokers[2].epoch)),
    },
    EventKind.APPROVE_STOP: {
        "brokers": asked(
            many_brokers,
            lambda rig, _: ApproveStop(
                {b.id: b.epoch for b in rig.cluster.brokers.values()}, frozenset(), "why", "ann", 1
            ),
        ),
    },
    EventKind.WITHDRAW_STOP_APPROVAL: {
        "brokers": asked(many_brokers, lambda _, n: WithdrawStopApproval(list(range(n)), "why", "ann")),
    },
    EventKind.LEADER_REBALANCE: {
        "partitions": looked(with_partitions, EventKind.LEADER_REBALANCE),
        "replicas": looked(with_replicas, EventKind.LEADER_REBALANCE),
    },
}


def every() -> Iterator[tuple[str, Make]]:
    for kind, rows in ROWS.items():
        for what, make in rows.items():
            yield f"{kind.value}: {what}", make
