"""Every election strategy, in every situation of three brokers, against the table of section 5.3."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from controller.core.context import CoreSettings, EventContext
from controller.core.model import Broker, Cluster, Partition, Topic
from controller.core.outbox import Outbox
from controller.core.partitions.leader_election import (
    CONTROLLED_SHUTDOWN,
    OFFLINE,
    PREFERRED,
    REASSIGN,
    ElectionKind,
    Strategy,
)
from controller.core.partitions.partition_state_machine import _Election
from tests.provers.model import machines, tables
from tests.provers.model.enumeration import (
    ASSIGNMENTS,
    CANONICAL,
    WHOLE,
    Situation,
    ordered_subsets,
    situations,
    subsets,
)
from tests.provers.model.machines import Chosen, Context, Ids, choose
from tests.support.core.world import World, state

KINDS: list[tuple[str, ElectionKind, int | None]] = [
    ("offline", OFFLINE, None),
    ("preferred", PREFERRED, None),
    ("shutdown", CONTROLLED_SHUTDOWN, None),
    *(("chosen", ElectionKind(Strategy.CHOSEN, leader=b), b) for b in (1, 2, 3)),
]


def questions(assigned: Ids) -> Iterator[tuple[str, ElectionKind, int | None, bool, Ids]]:
    """(strategy, kind, broker chosen, unclean permitted, replicas being removed)."""
    for strategy, kind, chosen in KINDS:
        yield from ((strategy, kind, chosen, unclean, ()) for unclean in (False, True))
    yield from (("reassign", REASSIGN, None, False, removing) for removing in subsets(assigned))


def elected(context: EventContext, partition: Partition, kind: ElectionKind, unclean: bool) -> Chosen | None:
    """What the product decides, and that it is one leader epoch further."""
    election = _Election(context, kind)
    election.unclean[partition.topic.name] = unclean
    change = election.decide(partition)
    if change is None:
        assert election.failed[partition], "a refusal has a reason"
        return None
    assert (change.new.leader_epoch, change.new.partition_epoch) == (8, 10)
    assert change.new.controller_epoch == 5
    unclean = partition in election.chosen_unclean
    return Chosen(change.new.leader, change.new.isr, bool(change.new.recovery), change.recipients, unclean)


def compared(assigned: Ids, isrs: list[Ids], recovering: bool) -> int:
    count = 0
    cluster = Cluster(100, 5)
    brokers = World(1, 2, 3).brokers
    event = EventContext(
        cluster=cluster,
        outbox=Outbox(),
        settings=CoreSettings(),
        new_topic_id=str,
        effect_ids=itertools.count(),
        event_id=1,
        cause="test",
        now_us=0,
    )
    for situation in situations():
        partition = Partition(Topic("t"), 0, assigned)
        apply_situation(cluster, brokers, partition, situation)
        for isr in isrs:
            partition.leadership = state(isr[0], isr, 7, 9, 3, int(recovering))
            for strategy, kind, chosen, unclean, removing in questions(assigned):
                partition.removing = removing
                targets = tuple(b for b in assigned if b not in removing)
                context = Context(assigned, isr, *situation, recovering, unclean, targets, chosen)
                real, wanted = elected(event, partition, kind, unclean), choose(strategy, context)
                assert real == wanted, (
                    f"{strategy}, unclean {unclean}, chosen {chosen}, targets {targets}: AR {assigned}, ISR {isr}, "
                    f"{situation}: the table says {wanted}, elected was {real}"
                )
                count += 1
    return count


def apply_situation(
    cluster: Cluster, brokers: dict[int, Broker], partition: Partition, situation: Situation
) -> None:
    cluster.brokers = {b: brokers[b] for b in situation.registered}
    cluster.shutting_down = set(situation.leaving)
    cluster.offline_dirs = {b: {partition} for b in situation.failed_disks}


@pytest.mark.parametrize("assigned", CANONICAL, ids=str)
def test_every_strategy(assigned: Ids) -> None:
    count = compared(assigned, ordered_subsets(assigned), recovering=False)
    print(f"elections over {assigned}: {count} situations compared")
    assert count > 1000


@pytest.mark.skipif(not WHOLE, reason="make model")
@pytest.mark.slow
@pytest.mark.parametrize("assigned", ASSIGNMENTS, ids=str)
def test_every_strategy_of_every_assignment_and_isr(assigned: Ids) -> None:
    """No symmetry assumed, and the ISR may hold brokers that are not assigned."""
    count = sum(compared(assigned, ordered_subsets((1, 2, 3)), r) for r in (False, True))
    print(f"elections over {assigned}: {count} situations compared")


def test_every_row_of_the_strategies_is_used() -> None:
    machines.used.clear()
    compared((1, 2, 3), [(1,), (1, 2)], recovering=False)
    unused = {row.id for row in tables.STRATEGIES} - machines.used.keys()
    assert not unused
