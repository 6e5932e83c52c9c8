"""Who comes back with less than it had is out of sync before anyone elects it (docs/adr/0017)."""

from __future__ import annotations

import zlib
from functools import partial
from itertools import product

import msgspec
import pytest

from controller.core.config_keys import UNCLEAN
from controller.core.context import slices
from controller.core.effects import Commit, SetState
from controller.core.events import StatesCheck
from controller.core.explain.partitions import explain_partition
from controller.core.handlers import event_of
from controller.core.model import RECOVERED, RECOVERING, LeaderAndIsr, PartitionState, of_several
from controller.core.partitions import lost_data
from controller.core.partitions.leader_election import STRATEGIES, Ballot, Rule, Strategy, elect, unmet
from controller.core.partitions.lost_data import take_out
from controller.core.records import PartitionTransition, Rejection
from controller.core.requests.brokers import AlterPartition, Proposal
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import SetPause
from tests.support.core.harness import Fate, MachineHarness, bare
from tests.support.core.world import World, state, state_path

NEW = 1000


def world_of(*brokers: int) -> World:
    """Each broker has one directory, with the short id 10 times its own; t-0 is assigned to all and has no state."""
    world = World()
    for broker_id in brokers:
        world.broker_up(broker_id, directories=(10 * broker_id,))
    world.create_topic("t", {0: list(brokers)})
    return world


def directories(world: World) -> tuple[tuple[int, ...], tuple[int, ...]]:
    stored = world.states["t", 0]
    return stored.isr, stored.directories


def kept(leader: int, isr: tuple[int, ...], known: tuple[int, ...]) -> LeaderAndIsr:
    return msgspec.structs.replace(state(leader, isr, 5, 7), directories=known)


def test_the_first_state_names_the_directories_and_later_ones_keep_them() -> None:
    world = world_of(1, 2, 3)
    rig = MachineHarness.active(world)
    assert directories(world) == ((1, 2, 3), (10, 20, 30))
    world.broker_down(1)
    rig.run()
    assert directories(world) == ((2, 3), (20, 30))
    rig.check_converged()


def test_the_first_state_names_the_directories_of_its_isr_only() -> None:
    world = world_of(1, 2, 3)
    world.broker_down(1)
    MachineHarness.active(world)
    assert directories(world) == ((2, 3), (20, 30))


def test_an_adopted_state_that_could_not_be_put_right_is_told_to_nobody() -> None:
    """Told to lead, who has lost its data would have the others forget theirs."""
    world = World()
    for broker_id in (1, 2):
        world.broker_up(broker_id, directories=(10 * broker_id,))
    rig = MachineHarness.active(world)
    rig.forget()
    rig.fate = lambda commit: Fate.REFUSED if isinstance(commit.writes[0], SetState) else Fate.ANSWERED
    world.put_state("t", 0, kept(1, (1, 2), (NEW, 20)))
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    assert rig.stored()[::2] == (1, [1, 2])
    assert [line for line in rig.lines() if "t-0" in line and "leader 1" in line] == []


@pytest.mark.parametrize("leader", [1, 2])
def test_a_member_that_lost_its_disk_while_no_controller_was_there(leader: int) -> None:
    world = world_of(1, 2, 3)
    world.put_state("t", 0, kept(leader, (1, 2), (10, 20)))
    world.broker_down(1)
    world.broker_up(1, directories=(NEW,))
    rig = MachineHarness.active(world)
    assert rig.stored()[::2] == (2, [2])
    assert directories(world)[1] == (20,)
    assert rig.rejects() == []
    rig.check_converged()


@pytest.mark.parametrize("when", ["before the failover", "while we lead"])
def test_a_controller_epoch_that_nobody_had_keeps_no_member_in_that_lost_its_disk(when: str) -> None:
    """Told to lead, it would have all others forget what they acknowledged."""
    edited = msgspec.structs.replace(kept(1, (1, 2), (10, 20)), controller_epoch=9)
    world = world_of(1, 2)
    world.put_state("t", 0, edited if when == "before the failover" else kept(1, (1, 2), (10, 20)))
    rig = MachineHarness.active(world)
    rig.forget()
    if when == "while we lead":
        world.edited.add(("t", 0))
        world.put_state("t", 0, msgspec.structs.replace(edited, partition_epoch=8))
    world.bounce(1)
    world.broker_up(1, directories=(NEW,))
    rig.run()
    assert rig.stored()[::2] == (2, [2])
    assert not [line for line in rig.lines("LISR") if line.startswith("1 ") and "leader 1" in line]
    rig.check_converged()


def test_a_state_that_does_not_decode_keeps_no_member_in_that_lost_its_disk() -> None:
    world = world_of(1, 2)
    world.put_state("t", 0, kept(1, (1, 2), (10, 20)))
    rig = MachineHarness.active(world)
    rig.forget()
    world.edited.add(("t", 0))
    world.put_state("t", 0, msgspec.structs.replace(kept(1, (1, 2), (10, 20)), partition_epoch=8))
    world.unreadable[state_path("t")] = "isr: expected array"
    world.bounce(1)
    world.broker_up(1, directories=(NEW,))
    rig.run()
    assert rig.stored()[::2] == (2, [2])
    assert not [line for line in rig.lines("LISR") if line.startswith("1 ") and "leader 1" in line]
    rig.check_converged()


@pytest.mark.parametrize("which", [{1}, {1, 2, 3, 4}, {1, 3}], ids=str)
@pytest.mark.parametrize(
    ("isr", "leads"), [((1, 2), 2), ((1,), -1)], ids=["another has kept its data", "all"]
)
def test_a_state_that_others_write_before_us_keeps_no_member_in_at_a_failover(
    isr: tuple[int, ...], leads: int, which: set[int]
) -> None:
    """``which`` of our writes somebody is ahead of: each time it does not decode, and ours has the wrong version."""
    world = world_of(1, 2)
    world.put_state("t", 0, kept(1, isr, tuple(10 * b for b in isr)))
    world.bounce(1)
    world.broker_up(1, directories=(NEW,))
    rig = MachineHarness(world)
    count = 0

    def scribbled(commit: Commit) -> Fate:
        nonlocal count
        count += any(isinstance(w, SetState) for w in commit.writes)
        if count in which:
            stored = world.states["t", 0]
            world.edited.add(("t", 0))
            world.put_state(
                "t", 0, msgspec.structs.replace(stored, partition_epoch=stored.partition_epoch + 1)
            )
            world.unreadable[state_path("t")] = "isr: expected array"
        return Fate.ANSWERED

    rig.fate = scribbled
    rig.failover()
    assert count > max(which)
    assert rig.stored()[::2] == (leads, [b for b in isr if b != 1] or [1])
    assert not [line for line in rig.lines("LISR") if "leader 1" in line]
    assert rig.partition().leadership == world.states["t", 0]


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize(
    ("isr", "leads"), [((1, 2), 2), ((1,), -1)], ids=["another has kept its data", "all lost it"]
)
def test_a_state_that_decodes_again_after_the_failover_keeps_no_member_in_that_lost_its_disk(
    isr: tuple[int, ...], leads: int, paused: bool
) -> None:
    """An operator writes back what was there before: of a disk that is gone since."""
    world = world_of(1, 2)
    world.put_state("t", 0, kept(1, isr, tuple(10 * b for b in isr)))
    world.damage(state_path("t"))
    world.bounce(1)
    world.broker_up(1, directories=(NEW,))
    rig = MachineHarness.active(world)
    if paused:
        rig.ask(SetPause(paused=True, reason="a test", author="alice"))
    rig.forget()
    world.mend(state_path("t"))
    world.events.append(event_of(StatesCheck([rig.partition()]), 10**7))
    rig.run()
    stays = [b for b in isr if b != 1] or [1]
    assert rig.stored()[::2] == (-1 if paused else leads, stays)
    assert not [line for line in rig.lines("LISR") if "leader 1" in line]
    assert rig.partition().state is (PartitionState.ONLINE if rig.stored()[0] > 0 else PartitionState.OFFLINE)
    assert rig.partition().leadership == world.states["t", 0]


@pytest.mark.parametrize("found_by", ["an election", "a broker that leaves"])
def test_an_earlier_state_found_by_chance_keeps_no_member_in_that_lost_its_disk(found_by: str) -> None:
    """The other member is away, or has never been one."""
    world = world_of(1, 2)
    world.put_state("t", 0, kept(1, (1,), (10,)))
    world.bounce(1)
    world.broker_up(1, directories=(NEW,))
    rig = MachineHarness.active(world)
    assert rig.stored() == (-1, 6, [1])
    rig.forget()
    world.edited.add(("t", 0))
    world.put_state("t", 0, msgspec.structs.replace(kept(1, (1,), (10,)), leader_epoch=7, partition_epoch=9))
    if found_by == "an election":
        rig.ask(ElectLeaders(ElectionType.PREFERRED, [("t", 0)]))
        world.bounce(2)
    else:
        world.broker_down(2)
    rig.run()
    assert rig.stored()[::2] == (-1, [1])
    assert rig.partition().leadership == world.states["t", 0]
    assert rig.partition().state is PartitionState.OFFLINE
    assert not [line for line in rig.lines("LISR") if "leader 1" in line]


@pytest.mark.parametrize(
    ("isr", "leads"), [((1, 2), 2), ((1,), -1)], ids=["another has kept its data", "all lost it"]
)
def test_the_check_of_states_takes_out_whom_nothing_else_took_out(isr: tuple[int, ...], leads: int) -> None:
    world = world_of(1, 2)
    world.put_state("t", 0, kept(1, isr, tuple(10 * b for b in isr)))
    world.bounce(1)
    world.broker_up(1, directories=(NEW,))
    rig = MachineHarness.active(world)
    _, epoch, stays = rig.stored()
    earlier = msgspec.structs.replace(
        kept(1, isr, tuple(10 * b for b in isr)), leader_epoch=epoch, partition_epoch=9
    )
    world.put_state("t", 0, earlier)
    rig.partition().leadership = earlier
    rig.chronicle.forget()
    rig.forget()
    for _ in range(2):
        world.events.append(event_of(StatesCheck([rig.partition()]), 10**7))
        rig.run()
    assert rig.stored()[::2] == (leads, stays)
    assert len(rig.commits()) == (2 if leads > 0 else 1)
    assert not [line for line in rig.lines("LISR") if "leader 1" in line]


def test_a_leader_that_wrote_its_isr_itself_and_lost_its_disk_is_followed_by_another() -> None:
    """Whoever is told of the write first: by a notification, or by the audit."""
    world = world_of(1, 2)
    world.put_state("t", 0, kept(1, (1, 2), (10, 20)))
    rig = MachineHarness.active(world)
    world.put_state("t", 0, msgspec.structs.replace(kept(1, (1, 2), (NEW, 20)), partition_epoch=8))
    world.events.append(event_of(StatesCheck([rig.partition()]), 10**7))
    rig.run()
    assert rig.stored()[::2] == (2, [2])
    rig.check_converged()


def test_it_is_taken_out_though_the_other_member_is_away_and_that_one_leads_when_it_is_back() -> None:
    world = world_of(1, 2)
    world.put_state("t", 0, kept(1, (1, 2), (10, 20)))
    rig = MachineHarness.active(world)
    world.broker_down(1, 2)
    rig.run()
    world.broker_up(1, directories=(NEW,))
    rig.run()
    assert rig.stored()[::2] == (-1, [2])
    world.broker_up(2, directories=(20,))
    rig.run()
    assert rig.stored()[::2] == (2, [2])
    rig.check_converged()


def test_the_only_member_is_not_elected_but_uncleanly_or_with_its_disk() -> None:
    world = world_of(1)
    rig = MachineHarness.active(world)
    world.broker_down(1)
    rig.run()
    world.broker_up(1, directories=(NEW,))
    rig.run()
    assert rig.stored()[::2] == (-1, [1])
    found = explain_partition(rig.cluster, rig.partition(), unclean_allowed=False)
    assert "came back without the data they had" in found.summary
    assert any("pctl elect unclean --partition t-0" in str(change) for change in found.changes)
    world.bounce(1)
    world.broker_up(1, directories=(10,))
    rig.run()
    assert rig.stored()[::2] == (1, [1]), "its former disk is back"


@pytest.mark.parametrize("by_configuration", [False, True])
def test_an_unclean_election_begins_with_what_there_is(by_configuration: bool) -> None:
    world = world_of(1)
    rig = MachineHarness.active(world)
    if by_configuration:
        world.configure("t", {UNCLEAN: "true"})
    world.broker_down(1)
    rig.run()
    world.broker_up(1, directories=(NEW,))
    rig.run()
    if not by_configuration:
        (answer,) = rig.ask(ElectLeaders(ElectionType.UNCLEAN, (("t", 0),)))
        assert [p.error for p in answer.partitions] == [ErrorCode.NONE]
    assert directories(world) == ((1,), (NEW,))
    assert world.states["t", 0].recovery == RECOVERING
    rig.check_converged()


@pytest.mark.parametrize("registered", [(), (10,), (5, 10)])
def test_what_is_not_told_and_what_is_still_there_changes_nothing(registered: tuple[int, ...]) -> None:
    """As Kafka: a registration without directories says nothing; a further directory takes nothing away."""
    world = world_of(1, 2)
    world.put_state("t", 0, kept(1, (1,), (10,)))
    world.broker_down(1)
    world.broker_up(1, directories=registered)
    rig = MachineHarness.active(world)
    assert rig.stored() == (1, 5, [1])


def test_a_state_without_directories_gets_those_of_the_registrations_with_the_first_that_we_write() -> None:
    """One made by hand, or of a leader that does not tell. Broker 4 is away: nobody knows what it has."""
    world = world_of(1, 2, 3, 4)
    world.put_state("t", 0, kept(1, (1, 2, 3, 4), ()))
    world.broker_down(3)
    world.broker_down(4)
    rig = MachineHarness.active(world)
    assert directories(world) == ((1, 2), (10, 20))
    world.broker_down(1)
    world.broker_up(1, directories=(NEW,))
    rig.run()
    assert directories(world) == ((2,), (20,)), "who came back empty may not lead"
    assert rig.rejects() == []
    rig.check_converged()


def test_who_is_elected_uncleanly_from_outside_the_isr_begins_in_its_directory() -> None:
    world = world_of(1, 2)
    world.configure("t", {UNCLEAN: "true"})
    world.put_state("t", 0, kept(1, (1,), (10,)))
    world.broker_down(1)
    rig = MachineHarness.active(world)
    assert rig.stored() == (2, 6, [2])
    assert directories(world) == ((2,), (20,))


@pytest.mark.parametrize("known", [(), (10, 0, 0), (0, 20, 30)])
def test_what_is_known_of_some_members_is_completed(known: tuple[int, ...]) -> None:
    world = world_of(1, 2, 3)
    world.put_state("t", 0, kept(1, (1, 2, 3), known))
    world.broker_down(3)
    MachineHarness.active(world)
    assert directories(world) == ((1, 2), (10, 20))


def test_who_does_not_tell_hides_no_directory_of_the_others() -> None:
    world = World()
    for broker_id, told in ((1, ()), (2, (20,)), (3, (30,))):
        world.broker_up(broker_id, directories=told)
    world.create_topic("t", {0: [1, 2, 3]})
    world.put_state("t", 0, kept(2, (1, 2, 3), ()))
    world.broker_down(3)
    MachineHarness.active(world)
    assert directories(world) == ((1, 2), (0, 20))


def test_a_state_without_directories_is_believed() -> None:
    world = world_of(1, 2)
    world.put_state("t", 0, state(1, (1, 2), 5, 7))
    rig = MachineHarness.active(world)
    assert rig.stored() == (1, 5, [1, 2])
    world.broker_down(1)
    rig.run()
    assert directories(world) == ((2,), (20,)), "written with the next election"


def test_a_leader_that_writes_by_itself_takes_in_one_that_lost_its_data() -> None:
    world = world_of(1, 2)
    world.put_state("t", 0, kept(1, (1,), (10,)))
    rig = MachineHarness.active(world)
    rig.forget()
    world.put_state("t", 0, msgspec.structs.replace(kept(1, (1, 2), (10, NEW)), partition_epoch=8))
    world.notify_isr(("t", 0))
    rig.run()
    assert rig.stored()[::2] == (1, [1])
    assert {line.split()[0] for line in rig.lines("LISR")} == {"1", "2"}
    rig.check_converged()


# --- AlterPartition, version 3 (KIP-903) -----------------------------------------------------------------------


def led_by_one() -> tuple[World, MachineHarness]:
    world = world_of(1, 2)
    world.put_state("t", 0, kept(1, (1,), (10,)))
    rig = MachineHarness.active(world)
    return world, rig


@pytest.mark.parametrize(
    ("age", "error", "known"),
    [
        (0, ErrorCode.NONE, (10, 20)),
        (1, ErrorCode.INELIGIBLE_REPLICA, (10,)),
        (-1, ErrorCode.INELIGIBLE_REPLICA, (10,)),
        (None, ErrorCode.NONE, (10, 0)),
    ],
)
def test_a_stale_broker_epoch_is_refused(age: int | None, error: ErrorCode, known: tuple[int, ...]) -> None:
    world, rig = led_by_one()
    epoch = -1 if age is None else world.brokers[2].epoch - age
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 2], isr_epochs=(-1, epoch))))
    assert [p.error for p in answer.partitions] == [error]
    assert directories(world)[1] == known


def test_without_epochs_the_directory_of_a_new_member_is_not_known() -> None:
    """It may have registered anew since it got in sync."""
    world, rig = led_by_one()
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 2])))
    assert [p.error for p in answer.partitions] == [ErrorCode.NONE]
    assert directories(world)[1] == (10, 0)


def test_a_stale_epoch_of_one_that_stays_is_refused_too_but_not_of_one_that_is_away() -> None:
    world, rig = led_by_one()
    world.put_state("t", 0, kept(1, (1, 2), (10, 20)))
    rig = MachineHarness.active(world)
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 2], recovery=RECOVERED, isr_epochs=(-1, 3))))
    assert [p.error for p in answer.partitions] == [ErrorCode.NONE], "nothing changes"
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1], isr_epochs=(3,))))
    assert [p.error for p in answer.partitions] == [ErrorCode.INELIGIBLE_REPLICA]


def test_an_epoch_of_one_that_is_not_registered_is_no_newer_registration() -> None:
    world, rig = led_by_one()
    world.broker_down(2)
    rig.run()
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 2], isr_epochs=(-1, 3))))
    assert [p.error for p in answer.partitions] == [ErrorCode.INELIGIBLE_REPLICA]
    assert "not online" in rig.recorded(Rejection)[-1].reason


def test_epochs_are_one_for_each_member() -> None:
    _, rig = led_by_one()
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 2], isr_epochs=(-1,))))
    assert [p.error for p in answer.partitions] == [ErrorCode.INVALID_REQUEST]


# --- the election, in every situation of three replicas --------------------------------------------------------


@pytest.mark.parametrize("strategy", [s for s in Strategy if s is not Strategy.CHOSEN])
def test_nobody_without_its_data_is_elected_cleanly(strategy: Strategy) -> None:
    """Each replica is in the ISR or not, online or not, without its data or not: 512 situations, less the empty ISR."""
    for flags in product((False, True), repeat=9):
        isr = tuple(b for b in (1, 2, 3) if flags[b - 1])
        online = frozenset(b for b in (1, 2, 3) if flags[b + 2])
        lacking = frozenset(b for b in isr if flags[b + 5])
        if not isr:
            continue
        ballot = Ballot((1, 2, 3), state(-1, isr), online, without_data=lacking)
        found = elect(strategy, ballot)
        reduced = tuple(b for b in isr if b not in lacking)
        same = elect(strategy, Ballot((1, 2, 3), state(-1, reduced), online)) if reduced else None
        assert (found and found.leader) == (same and same.leader)
        if found is not None:
            assert found.leader not in lacking
        if strategy is Strategy.OFFLINE and found is not None:
            assert not lacking & set(found.isr)


def test_the_rule_is_named() -> None:
    clean, unclean = STRATEGIES[Strategy.OFFLINE].ways
    ballot = Ballot((1,), state(-1, (1,)), frozenset({1}), without_data=frozenset({1}))
    assert unmet(clean, ballot, (1,), 1) is Rule.KEPT_DATA
    assert unmet(unclean, ballot, (1,), 1) is None


# --- several directories


BOTH = of_several((10, 11))


def test_what_stands_for_several_directories_is_never_that_of_none() -> None:
    assert zlib.crc32(b"".join(id_.to_bytes(4) for id_ in (1, 400923195))) == 0
    assert of_several((1, 400923195)) != 0


def jbod_world() -> World:
    """Broker 1 has directories 10 and 11, broker 2 has 20."""
    world = World()
    world.broker_up(1, directories=(10, 11))
    world.broker_up(2, directories=(20,))
    world.create_topic("t", {0: [1, 2]})
    return world


def test_of_a_broker_with_several_the_state_names_all_until_it_is_told_which() -> None:
    world = jbod_world()
    rig = MachineHarness.active(world)
    assert directories(world) == ((1, 2), (BOTH, 20))
    epoch = world.brokers[1].epoch
    (answer,) = rig.ask(told(world, 11))
    assert answer.partitions[0].error is ErrorCode.NONE
    assert directories(world) == ((1, 2), (11, 20))
    version = world.states["t", 0].partition_epoch
    rig.ask(told(world, 11))
    assert (directories(world), world.states["t", 0].partition_epoch) == (((1, 2), (11, 20)), version)
    rig.ask(told(world, 10))
    assert directories(world) == ((1, 2), (10, 20)), "it is there, and nothing is missing"
    assert world.brokers[1].epoch == epoch


def told(world: World, directory: int, epoch: int | None = None) -> AlterPartition:
    """The leader tells where its replica is."""
    stored = world.states["t", 0]
    own = world.brokers[1].epoch if epoch is None else epoch
    proposal = Proposal(
        "t",
        world.topics["t"].topic_id,
        0,
        stored.leader_epoch,
        stored.isr,
        RECOVERED,
        stored.partition_epoch,
        (own, world.brokers[2].epoch),
        (directory, 0),
    )
    return AlterPartition(1, own, (proposal,))


@pytest.mark.parametrize(
    ("known", "registered", "lost"),
    [
        (10, (11,), True),
        (11, (11,), False),
        (11, (11, 12), False),
        (10, (11, 12), True),
        (BOTH, (11, 10), False),
        (BOTH, (11,), True),
        (BOTH, (10, 11, 12), True),
    ],
)
def test_only_the_replicas_of_the_directory_that_is_gone_are_out_of_sync(
    known: int, registered: tuple[int, ...], lost: bool
) -> None:
    """Where only all of them are known, none may be missing, and none new."""
    world = jbod_world()
    world.put_state("t", 0, kept(1, (1, 2), (known, 20)))
    world.broker_down(1)
    world.broker_up(1, directories=registered)
    rig = MachineHarness.active(world)
    assert rig.stored()[::2] == ((2, [2]) if lost else (1, [1, 2]))
    rig.check_converged()


def test_a_directory_that_is_not_registered_is_not_believed() -> None:
    world = jbod_world()
    rig = MachineHarness.active(world)
    rig.ask(told(world, 99))
    assert directories(world) == ((1, 2), (BOTH, 20))


def test_what_is_known_exactly_stays_so_in_whatever_is_written() -> None:
    """The leader of before names no directories; an election knows all but one already."""
    world = jbod_world()
    world.put_state("t", 0, kept(1, (1, 2), (11, 20)))
    rig = MachineHarness.active(world)
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1], isr_epochs=(world.brokers[1].epoch,))))
    assert answer.partitions[0].error is ErrorCode.NONE
    assert directories(world) == ((1,), (11,))
    world = jbod_world()
    world.broker_up(3, directories=(30,))
    world.create_topic("u", {0: [1, 2, 3]})
    world.put_state("u", 0, kept(3, (1, 2, 3), (11, 0, 30)))
    rig = MachineHarness.active(world)
    world.broker_down(3)
    rig.run()
    assert rig.stored("u")[::2] == (1, [1, 2])
    assert world.states["u", 0].directories == (11, 20)


def test_a_recovering_leader_may_tell_its_directory() -> None:
    world = jbod_world()
    world.put_state("t", 0, msgspec.structs.replace(kept(1, (1,), (BOTH,)), recovery=RECOVERING))
    rig = MachineHarness.active(world)
    asked = rig.proposal([1], isr_epochs=(world.brokers[1].epoch,), isr_directories=(11,))
    (answer,) = rig.ask(rig.alter(1, asked))
    assert answer.partitions[0].error is ErrorCode.NONE
    assert directories(world) == ((1,), (11,))


def taken_out(world: World, *keys: tuple[str, int]) -> MachineHarness:
    """What was found at the failover stays as it was: brokers lose what they had after it."""
    rig = MachineHarness.active(world)
    for id_, broker in list(rig.cluster.brokers.items()):
        if broker.directories == (10 * id_,) and id_ == 1:
            rig.cluster.brokers[id_] = msgspec.structs.replace(broker, directories=(NEW,))
    rig.drive(lambda context: take_out(context, [rig.partition(*key) for key in keys]))
    return rig


def test_whose_leader_came_back_empty_is_offline() -> None:
    world = world_of(1, 2)
    world.put_state("t", 0, kept(1, (1, 2), (10, 20)))
    rig = taken_out(world, ("t", 0))
    assert (rig.stored()[::2], rig.partition().state) == ((-1, [2]), PartitionState.OFFLINE)


def test_who_is_no_replica_keeps_no_data_for_the_others() -> None:
    world = world_of(1, 2)
    world.broker_up(3, directories=(30,))
    world.put_state("t", 0, kept(1, (1, 3), (10, 30)))
    assert taken_out(world, ("t", 0)).stored()[::2] == (-1, [1, 3])


def test_each_combination_of_directories_is_looked_at() -> None:
    world = world_of(1, 2)
    world.create_topic("u", {0: [1, 2]})
    world.put_state("t", 0, kept(2, (1, 2), (0, 20)))
    world.put_state("u", 0, kept(2, (1, 2), (10, 20)))
    rig = taken_out(world, ("t", 0), ("u", 0))
    assert [rig.stored(topic)[2] for topic in "tu"] == [[1, 2], [2]]


def test_whether_a_clean_candidate_is_there_is_a_matter_of_directories() -> None:
    """All have the same ISR; of the second the only member came back empty, and only it is elected uncleanly."""
    world = world_of(1, 2)
    for topic, known in (("t", 10), ("u", NEW), ("v", 10)):
        world.create_topic(topic, {0: [1, 2]})
        world.put_state(topic, 0, kept(-1, (1,), (known,)))
        world.configure(topic, {UNCLEAN: "true"})
    rig = MachineHarness.active(world)
    assert [rig.stored(topic)[::2] for topic in "tuv"] == [(1, [1])] * 3
    assert [world.states[topic, 0].recovery for topic in "tuv"] == [RECOVERED, RECOVERING, RECOVERED]
    assert rig.rejects() == [], "at the first attempt"


def test_all_slices_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_data, "slices", partial(slices, size=1))
    world = world_of(1, 2)
    world.create_topic("u", {0: [1, 2]})
    for topic in "tu":
        world.put_state(topic, 0, kept(2, (1, 2), (10, 20)))
    rig = taken_out(world, ("t", 0), ("u", 0), ("u", 0))
    assert [rig.stored(topic)[2] for topic in "tu"] == [[2], [2]]


def test_an_isr_that_cannot_be_reduced_is_recorded() -> None:
    world = world_of(1, 2)
    world.put_state("t", 0, kept(1, (1, 2), (10, NEW)))
    rig = bare([], {("t", 0): [1, 2]}, {("t", 0): kept(1, (1, 2), (10, NEW))})
    rig.cluster.brokers.update(world.brokers)
    rig.fate = lambda _: Fate.LOST
    failed = rig.drive(lambda context: take_out(context, [rig.partition()]))
    assert failed == [rig.partition()]
    (refused,) = [r for r in rig.recorded(Rejection) if r.error == "CONFLICT"]
    assert refused.partition is rig.partition()


def test_a_state_without_directories_hides_none_after_it() -> None:
    world = world_of(1, 2)
    world.create_topic("u", {0: [1, 2], 1: [1, 2]})
    world.put_state("u", 0, state(1, (1, 2), 5, 7))
    world.put_state("u", 1, kept(1, (1, 2), (10, NEW)))
    MachineHarness.active(world)
    assert (world.states["u", 0].isr, world.states["u", 1].isr) == ((1, 2), (1,))


def test_a_partition_that_broker_0_leads_stays_online_when_a_follower_came_back_empty() -> None:
    world = world_of(0, 2)
    world.put_state("t", 0, kept(0, (0, 2), (0, 20)))
    rig = MachineHarness.active(world)
    rig.forget()
    world.put_state("t", 0, msgspec.structs.replace(kept(0, (0, 2), (0, NEW)), partition_epoch=8))
    world.notify_isr(("t", 0))
    rig.run()
    assert rig.stored()[::2] == (0, [0])
    assert rig.recorded(PartitionTransition) == []


def test_directories_told_without_epochs_change_nothing() -> None:
    """Of a member whose incarnation is not named, nobody knows whose directory that is."""
    world = world_of(1, 2)
    world.put_state("t", 0, state(1, (1, 2), 5, 7))
    rig = MachineHarness.active(world)
    (answer,) = rig.ask(rig.alter(1, rig.proposal([1, 2], isr_directories=(10, 20))))
    assert [p.error for p in answer.partitions] == [ErrorCode.NONE]
    assert rig.stored() == (1, 5, [1, 2])
    assert directories(world)[1] == ()
