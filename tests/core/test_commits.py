"""Lost answers and conflicts in each write path (section 14, points 2 and 3: only what conflicts is decided anew).

Each scenario runs with every kind of write: an election, an ISR removal, a creation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import pytest

from controller.core import commits
from controller.core.cluster import dynamic_settings
from controller.core.context import Pause
from controller.core.effects import Commit, CreateState, Read, ReadStates, SetState
from controller.core.events import StatesCheck
from controller.core.handlers import event_of
from controller.core.model import PartitionState, ReplicaState
from controller.core.partitions import (
    initial_state,
    leader_election,
    partition_state_machine,
    replica_state_machine,
)
from controller.core.partitions.leader_election import PREFERRED
from controller.core.records import LeadershipChange, Rejection
from controller.core.znode_sizes import ZNODE_BYTES_MAX
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World, state


def scripted(*fates: Fate) -> Callable[[Commit], Fate]:
    """The first commits meet these fates, all later ones are answered."""
    script = iter(fates)
    return lambda _: next(script, Fate.ANSWERED)


def meanwhile(*changes: Callable[[], object]) -> Callable[[Commit], Fate]:
    """Before each of the first commits arrives, somebody else writes."""
    script: Iterator[Callable[[], object]] = iter(changes)

    def fate(_: Commit) -> Fate:
        next(script, lambda: None)()
        return Fate.ANSWERED

    return fate


def three(partitions: int = 3) -> tuple[World, MachineHarness]:
    """Partitions of [1, 2, 3], led by 1, leader epoch 5, on brokers 1 to 3."""
    world = World(1, 2, 3)
    world.create_topic("t", {n: [1, 2, 3] for n in range(partitions)})
    for number in range(partitions):
        world.put_state("t", number, state(1, [1, 2, 3], 5, 7))
    rig = MachineHarness.active(world)
    rig.forget()
    return world, rig


def written(rig: MachineHarness) -> list[list[int]]:
    """Partition numbers of each commit."""
    return [[w.partition.number for w in c.writes] for c in rig.commits()]  # type: ignore[union-attr]


# --- elections -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fates", [[Fate.LOST], [Fate.LANDED], [Fate.LOST, Fate.LANDED], [Fate.LOST] * 4])
def test_an_election_whose_answer_is_lost(fates: list[Fate]) -> None:
    """Landed is a success, not landed is written again: either way exactly one new leader epoch."""
    world, rig = three()
    rig.fate = scripted(*fates)
    world.broker_down(1)
    rig.run()
    assert [rig.stored("t", n) for n in range(3)] == [(2, 6, [2, 3])] * 3
    rig.check_converged()


def test_only_the_partition_that_conflicts_is_decided_anew() -> None:
    world, rig = three()
    rig.fate = meanwhile(lambda: world.shrink_or_grow("t", 1, [1, 3]))
    world.broker_down(1)
    rig.run()
    assert [rig.stored("t", n) for n in range(3)] == [(2, 6, [2, 3]), (3, 6, [3]), (2, 6, [2, 3])]
    assert written(rig) == [[0, 1, 2], [0, 1, 2]]
    assert rig.reads().count("ReadStates") == 1
    assert "CONFLICT" in rig.rejects()
    rig.check_converged()


def test_what_somebody_else_writes_all_the_time_does_not_keep_others_from_being_written() -> None:
    world, rig = three(2)

    def fate(commit: Commit) -> Fate:
        if any(w.partition.number == 1 for w in commit.writes if isinstance(w, SetState)):
            world.shrink_or_grow("t", 1, [1, 3])
        return Fate.ANSWERED

    rig.fate = fate
    world.broker_down(1)
    rig.run()
    assert rig.stored("t", 0) == (2, 6, [2, 3])
    assert rig.partition("t", 1).state is PartitionState.OFFLINE


@pytest.mark.parametrize("edits", [1, 2])
def test_what_is_decided_over_an_older_state_is_decided_from_what_is_known(edits: int) -> None:
    """Brokers know leader epoch 5, and somebody led under each of those below it. 2 has acknowledged since."""
    world, rig = three(1)
    world.edited.add(("t", 0))
    script = [lambda n=n: world.put_state("t", 0, state(1, [1, 3], n, 8 + n)) for n in range(edits)]
    rig.fate = meanwhile(*script)
    world.broker_down(1)
    rig.run()
    assert rig.stored() == (2, 6, [2, 3])
    assert rig.partition().leadership == world.states[("t", 0)]
    rig.check_converged()


@pytest.mark.parametrize("noticed", ["by a notification", "as a proposal is written"])
def test_a_leader_epoch_that_went_back_is_not_gone_on_from(noticed: str) -> None:
    """It is written over by the check of stored states, and until then nothing is decided under it."""
    world, rig = three(1)
    world.edited.add(("t", 0))
    proposed = rig.alter(1, rig.proposal([1, 2]))
    world.put_state("t", 0, state(3, [3, 1], 2, 8))
    if noticed == "by a notification":
        world.notify_isr(("t", 0))
        rig.run()
    else:
        rig.ask(proposed)
    assert rig.partition().leadership == state(1, [1, 2, 3], 5, 7)
    world.events.append(event_of(StatesCheck([rig.partition()]), 10**7))
    rig.run()
    assert rig.stored() == (1, 6, [1, 2, 3])
    rig.check_converged()


def test_a_decision_that_was_written_and_written_over_leaves_its_leader_epoch_to_nobody_else() -> None:
    """2 was to lead under 6; the answer is lost, and the state is as it was before, but for 2, who is out of sync."""
    world, rig = three(1)
    world.edited.add(("t", 0))
    fates = iter([Fate.LANDED])
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    read = world.answer

    def put_back(query: Any) -> Any:
        if isinstance(query, ReadStates) and world.states[("t", 0)].leader_epoch == 6:
            world.put_state("t", 0, state(1, [1, 3], 5, 9))
        return read(query)

    world.answer = put_back  # type: ignore[method-assign]
    world.broker_down(1)
    rig.run()
    assert rig.stored() == (3, 7, [3])
    rig.check_converged()


def test_all_that_is_read_of_a_newer_controller_is_recorded() -> None:
    """The harness holds each record against the one before it."""
    world, rig = three(1)
    newer = [state(3, [2, 3], 5, version, controller_epoch=9) for version in (8, 9)]
    rig.fate = meanwhile(lambda: world.put_state("t", 0, newer[0]))
    world.broker_down(1)
    rig.run()
    world.put_state("t", 0, newer[1])
    world.notify_isr(("t", 0))
    rig.run()
    assert [c.new for c in rig.recorded(LeadershipChange)] == newer


def test_overtaken_by_a_newer_controller_fails_that_partition_only() -> None:
    """Reference 2.4: the state's own controller_epoch."""
    world, rig = three()
    rig.fate = meanwhile(lambda: world.put_state("t", 1, state(3, [3], 6, 8, controller_epoch=9)))
    world.broker_down(1)
    rig.run()
    assert [rig.stored("t", n) for n in range(3)] == [(2, 6, [2, 3]), (3, 6, [3]), (2, 6, [2, 3])]
    assert rig.partition("t", 1).state is PartitionState.OFFLINE
    assert rig.partition("t", 0).state is PartitionState.ONLINE
    (failed,) = [r for r in rig.recorded(Rejection) if r.error == "ELECTION_FAILED"]
    assert failed.partition is rig.partition("t", 1)
    assert "newer" in failed.reason


def test_a_vanished_state_fails_that_partition_only() -> None:
    world, rig = three()
    rig.fate = meanwhile(lambda: world.states.pop(("t", 1)))
    world.broker_down(1)
    rig.run()
    assert [rig.stored("t", n) for n in (0, 2)] == [(2, 6, [2, 3])] * 2
    assert ("t", 1) not in world.states
    assert rig.partition("t", 1).state is PartitionState.OFFLINE


def test_a_state_damaged_meanwhile_fails_that_partition_only() -> None:
    world, rig = three()
    path = "/brokers/topics/t/partitions/1/state"

    def damage() -> None:
        world.shrink_or_grow("t", 1, [1, 2])
        world.unreadable[path] = "broken"

    rig.fate = meanwhile(damage)
    world.broker_down(1)
    rig.run()
    assert [rig.stored("t", n) for n in (0, 2)] == [(2, 6, [2, 3])] * 2
    assert rig.stored("t", 1) == (1, 5, [1, 2])
    assert path in rig.cluster.problems


def test_landed_and_then_overtaken_is_decided_from_the_newest() -> None:
    world, rig = three(1)
    fates = scripted(Fate.LANDED)

    def fate(commit: Commit) -> Fate:
        found = fates(commit)
        if found is Fate.LANDED:
            world.commit(commit.writes)
            world.shrink_or_grow("t", 0, [2])
        return Fate.LOST if found is Fate.LANDED else found

    rig.fate = fate
    world.broker_down(1)
    rig.run()
    assert rig.stored() == (2, 7, [2])
    rig.check_converged()


def test_a_partition_that_always_loses_is_left_alone_in_the_end_and_reported() -> None:
    world, rig = three(2)
    context = iter(range(10**6))

    def fate(_: Commit) -> Fate:
        world.shrink_or_grow("t", 1, [1, 2] if next(context) % 2 else [1, 2, 3])
        return Fate.ANSWERED

    rig.fate = fate
    rig.drive(lambda t: partition_state_machine.to_online(t, [rig.partition("t", 1)], PREFERRED))
    assert len(rig.commits()) == commits.ATTEMPTS_MAX
    (failed,) = [r for r in rig.recorded(Rejection) if r.error == "ELECTION_FAILED"]
    assert f"{commits.ATTEMPTS_MAX} attempts" in failed.reason


def test_a_partition_whose_write_never_lands_has_as_many_attempts() -> None:
    _, rig = three(2)
    rig.fate = lambda _: Fate.LOST
    rig.drive(lambda t: partition_state_machine.to_online(t, [rig.partition("t", 1)], PREFERRED))
    assert len(rig.commits()) == commits.ATTEMPTS_MAX


def test_a_state_that_may_not_be_written_keeps_no_other_without_a_leader() -> None:
    """Somebody has changed its ACL: each multi that it is in is refused, and nobody else has written."""
    world, rig = three(7)
    rig.fate = lambda c: Fate.REFUSED if any(w.partition.number == 4 for w in sets(c)) else Fate.ANSWERED
    world.broker_down(1)
    rig.run()
    assert [number for number in range(7) if world.states["t", number].leader == 1] == [4]
    assert rig.partition("t", 4).state is PartitionState.OFFLINE
    failed = [r for r in rig.recorded(Rejection) if r.error == "ELECTION_FAILED"]
    assert {r.partition for r in failed} == {rig.partition("t", 4)}
    assert all(f"{commits.ATTEMPTS_MAX} attempts" in r.reason for r in failed)


def sets(commit: Commit) -> list[SetState]:
    return [write for write in commit.writes if isinstance(write, SetState)]


def test_of_states_read_again_one_that_is_as_known_hides_none_after_it() -> None:
    world, rig = three(3)
    world.shrink_or_grow("t", 1, [1, 2])
    changed = rig.drive(lambda context: commits.refresh(context, list(rig.cluster.partitions())))
    assert [p.number for p in changed] == [1]
    assert rig.partition("t", 1).leadership == world.states["t", 1]


def test_states_are_read_again_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "REFRESH_CHUNK", 2)
    _, rig = three(5)
    rig.drive(lambda context: commits.refresh(context, list(rig.cluster.partitions())))
    asked = [
        e.query.partitions for e in rig.effects if isinstance(e, Read) and isinstance(e.query, ReadStates)
    ]
    assert [[p.number for p in some] for some in asked] == [[0, 1], [2, 3], [4]]


def test_a_change_of_a_value_is_decided_anew_from_what_somebody_else_wrote() -> None:
    _, rig = three(1)
    path = dynamic_settings.PATH
    rig.world.put_node(path, {"1": {"k": "a"}})
    rig.fate = meanwhile(lambda: rig.world.put_node(path, {"2": {"k": "b"}}))
    after, _ = rig.drive(
        lambda context: commits.change_node(context, path, {}, lambda found: {**found, "3": {"k": "c"}})
    )
    assert after == {"2": {"k": "b"}, "3": {"k": "c"}} == rig.world.nodes[path].value


def test_a_value_of_just_the_limit_is_written() -> None:
    _, rig = three(1)
    room = ZNODE_BYTES_MAX - len('{"<default>":{"k":""}}')

    def put(size: int) -> str:
        value = {"<default>": {"k": "x" * size}}
        return rig.drive(
            lambda context: commits.change_node(context, dynamic_settings.PATH, {}, lambda _: value)
        )[1]

    assert f"would take {ZNODE_BYTES_MAX + 1} bytes" in put(room + 1)
    assert put(room) == ""


def test_recovery_after_a_conflict_that_leaves_no_candidate() -> None:
    world, rig = three(1)
    rig.fate = meanwhile(lambda: world.shrink_or_grow("t", 0, [1]))
    world.broker_down(1)
    rig.run()
    assert rig.stored() == (-1, 6, [1])
    assert rig.partition().state is PartitionState.OFFLINE
    rig.check_converged()


def test_an_isr_that_grew_unseen_is_found_before_the_partition_is_given_up() -> None:
    """Reference 5.2: states are read before the strategy runs. The cache says ISR [1]; the store says [1, 2]."""
    world, rig = three(2)
    for number in range(2):
        world.put_state("t", number, state(1, [1], 6, 8))
    rig = MachineHarness.active(world, epoch=2)
    for number in range(2):
        world.shrink_or_grow("t", number, [1, 2])
    world.broker_down(1)
    rig.run()
    assert [rig.stored("t", number)[0] for number in range(2)] == [2, 2]
    assert rig.rejects() == []


def test_a_live_isr_that_shows_up_in_the_second_phase_gets_a_leader() -> None:
    """Broker 1 lost its session but still writes: ISR [1] beats the election, ISR [1, 2] beats the removal."""
    world, rig = three(1)
    rig.fate = meanwhile(
        lambda: world.shrink_or_grow("t", 0, [1]), lambda: world.shrink_or_grow("t", 0, [1, 2])
    )
    world.broker_down(1)
    rig.run()
    assert rig.stored()[0] == 2


def test_a_removal_that_landed_and_was_then_overtaken_is_told() -> None:
    """Its leader epoch is new, so the replicas must hear of it although nothing is left to decide."""
    world, rig = three(1)
    fates = scripted(Fate.LANDED)

    def fate(commit: Commit) -> Fate:
        found = fates(commit)
        if found is Fate.LANDED:
            world.commit(commit.writes)
            world.shrink_or_grow("t", 0, [1])
        return Fate.LOST if found is Fate.LANDED else found

    rig.fate = fate
    world.broker_down(3)
    rig.run()
    assert rig.stored() == (1, 6, [1])
    rig.check_converged()


# --- ISR removal -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fates", [[Fate.LOST], [Fate.LANDED], [Fate.LOST, Fate.LANDED], [Fate.LOST] * 4])
def test_a_removal_whose_answer_is_lost(fates: list[Fate]) -> None:
    world, rig = three()
    rig.fate = scripted(*fates)
    world.broker_down(3)
    rig.run()
    assert [rig.stored("t", n) for n in range(3)] == [(1, 6, [1, 2])] * 3
    rig.check_converged()


def test_a_removal_overtaken_by_another_change_keeps_that_change() -> None:
    world, rig = three()
    rig.fate = meanwhile(lambda: world.shrink_or_grow("t", 1, [1, 3]))
    world.broker_down(3)
    rig.run()
    assert [rig.stored("t", n) for n in range(3)] == [(1, 6, [1, 2]), (1, 6, [1]), (1, 6, [1, 2])]
    rig.check_converged()


def test_a_dead_follower_that_had_joined_the_isr_unseen_leaves_it() -> None:
    """Reference 4.3.3: the state is read from ZooKeeper first. The cache says ISR [1]; the store says [1, 2]."""
    world, rig = three(1)
    world.put_state("t", 0, state(1, [1], 6, 8))
    rig = MachineHarness.active(world, epoch=2)
    world.shrink_or_grow("t", 0, [1, 2])
    world.broker_down(2)
    rig.run()
    assert rig.stored() == (1, 7, [1])


def test_a_removal_that_somebody_else_made_first_is_told_all_the_same() -> None:
    """The usual race: the leader of old shrank the ISR itself. Nothing is left to write, but brokers must hear
    it (reference 4.3.5: LISR to all other replicas for each success, written or not)."""
    world, rig = three(1)
    rig.fate = meanwhile(lambda: world.shrink_or_grow("t", 0, [1, 2]))
    world.broker_down(3)
    rig.run()
    assert rig.stored() == (1, 5, [1, 2])
    assert rig.partition().leadership == world.states[("t", 0)]
    rig.check_converged()


def test_a_removal_of_a_newer_controller_keeps_the_replica_state() -> None:
    world, rig = three(2)
    rig.fate = meanwhile(lambda: world.put_state("t", 1, state(1, [1, 2, 3], 5, 8, controller_epoch=9)))
    world.broker_down(3)
    rig.run()
    assert rig.stored("t", 0) == (1, 6, [1, 2])
    assert rig.stored("t", 1) == (1, 5, [1, 2, 3])
    assert rig.partition("t", 0).replica_state(3) is ReplicaState.OFFLINE
    assert rig.partition("t", 1).replica_state(3) is ReplicaState.ONLINE


# --- creation --------------------------------------------------------------------------------------------


def empty() -> tuple[World, MachineHarness]:
    world = World(1, 2)
    rig = MachineHarness.active(world)
    rig.forget()
    return world, rig


@pytest.mark.parametrize("fates", [[Fate.LOST], [Fate.LANDED]])
def test_a_creation_whose_answer_is_lost(fates: list[Fate]) -> None:
    world, rig = empty()
    rig.fate = scripted(*fates)
    world.create_topic("t", {n: [1, 2] for n in range(3)})
    rig.run()
    assert [rig.stored("t", n) for n in range(3)] == [(1, 0, [1, 2])] * 3
    assert len([line for line in rig.lines("LISR") if line.endswith("new")]) == 6
    rig.check_converged()


@pytest.mark.parametrize("fates", [[Fate.LOST, Fate.LOST], [Fate.LOST, Fate.LANDED]])
@pytest.mark.parametrize("reconnects", [False, True])
def test_a_creation_whose_answer_is_lost_twice(fates: list[Fate], reconnects: bool) -> None:
    """Section 14, point 2, and the last invariant of section 16: once faults stop, a live replica set has a leader."""
    world, rig = empty()
    rig.reconnects = reconnects
    rig.fate = scripted(*fates)
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    assert rig.stored() == (1, 0, [1, 2])
    assert rig.rejects() == []
    assert len([line for line in rig.lines("LISR") if line.endswith("new")]) == 2
    rig.check_converged()


def test_a_creation_that_never_lands_is_told_of_each_partition() -> None:
    world, rig = empty()
    rig.fate = lambda commit: Fate.LOST if isinstance(commit.writes[0], CreateState) else Fate.ANSWERED
    world.create_topic("t", {0: [1, 2], 1: [2, 1]})
    rig.run()
    why = {r.partition.number: r.reason for r in rig.recorded(Rejection) if r.partition is not None}
    assert why.keys() == {0, 1}
    assert all(reason.startswith("its state could not be created: ") for reason in why.values())


def test_a_state_that_is_there_and_cannot_be_read_is_a_problem() -> None:
    world, rig = empty()
    path = "/brokers/topics/t/partitions/0/state"

    def damaged(_: Commit) -> Fate:
        world.unreadable[path] = "not JSON"
        return Fate.LOST

    rig.fate = damaged
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    assert rig.cluster.problems == {path: "not JSON"}


def test_a_creation_beside_one_that_exists() -> None:
    world, rig = empty()
    world.put_state("t", 1, state(2, [2], 3, 4))
    world.create_topic("t", {n: [1, 2] for n in range(3)})
    rig.run()
    assert [rig.stored("t", n) for n in range(3)] == [(1, 0, [1, 2]), (2, 4, [2]), (1, 0, [1, 2])]
    rig.check_converged()


# --- many: batches, windows, order of outcomes ------------------------------------------------------------


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "BATCH_WRITES", 4)
    monkeypatch.setattr(initial_state, "BATCH_CREATES", 2)


def orders() -> Iterable[tuple[str, Callable[[int], int]]]:
    return (("oldest", lambda _: 0), ("newest", lambda n: n - 1), ("middle", lambda n: n // 2))


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(("name", "pick"), orders())
def test_outcomes_in_any_order(name: str, pick: Callable[[int], int]) -> None:
    world, rig = three(50)
    rig.pick = pick
    world.broker_down(1)
    rig.run()
    assert all(rig.stored("t", n) == (2, 6, [2, 3]) for n in range(50))
    assert [len(numbers) for numbers in written(rig)] == [4] * 12 + [2]
    rig.check_converged()


@pytest.mark.usefixtures("small_batches")
def test_several_batches_are_in_flight_and_pushes_start_before_the_last_is_written() -> None:
    world, rig = three(50)
    world.broker_down(1)
    most = told_early = 0
    while rig.advance():
        waiting = [r for r in rig.outstanding if isinstance(r, Commit)]
        most = max(most, len(waiting))
        told_early += bool(waiting) and any("leader 2" in line for line in rig.lines("LISR"))
    assert most == commits.WINDOW_BATCHES
    assert told_early


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(("name", "pick"), orders())
def test_every_other_batch_fails_somehow(name: str, pick: Callable[[int], int]) -> None:
    """Section 14, point 3: a batch that fails never poisons the next."""
    world, rig = three(30)
    rig.pick = pick
    count = iter(range(10**6))

    def fate(commit: Commit) -> Fate:
        number = next(count)
        if number % 4 == 1:
            partition = commit.writes[0].partition  # type: ignore[union-attr]
            if world.states[("t", partition.number)].leader_epoch == 5:
                world.shrink_or_grow("t", partition.number, [1, 3])
        return Fate.LOST if number % 4 == 2 else Fate.LANDED if number % 4 == 3 else Fate.ANSWERED

    rig.fate = fate
    world.broker_down(1)
    rig.run()
    stored = {rig.stored("t", n)[:2] for n in range(30)}
    assert stored == {(2, 6), (3, 6)}
    rig.check_converged()


@pytest.mark.usefixtures("small_batches")
def test_creation_in_several_batches_with_one_that_exists_in_each() -> None:
    world, rig = empty()
    for number in (0, 3, 6, 9):
        world.put_state("t", number, state(2, [2], 3, 4))
    world.create_topic("t", {n: [1, 2] for n in range(10)})
    rig.run()
    rig.check_converged()


def test_failed_removals_and_elections_do_not_mix() -> None:
    """One event, two phases: what failed to be elected still leaves the ISR in the second."""
    world, rig = three(2)
    world.put_state("t", 1, state(1, [1], 6, 8))
    rig = MachineHarness.active(world, epoch=2)
    world.broker_down(1)
    rig.run()
    assert rig.stored("t", 0) == (2, 6, [2, 3])
    assert rig.stored("t", 1) == (-1, 7, [1])


def test_reading_back_is_not_a_decision() -> None:
    """Nothing is pushed of a batch before its outcome is known."""
    world, rig = three(1)
    rig.fate = scripted(Fate.LANDED)
    world.broker_down(1)
    while not rig.commits():
        rig.advance()
    rig.advance()
    assert rig.lines("LISR") == []
    rig.run()
    assert len(rig.lines("LISR")) == 2


def test_election_of_nothing_asks_for_nothing() -> None:
    _, rig = three(1)
    assert (
        rig.drive(lambda context: partition_state_machine.to_online(context, [], leader_election.OFFLINE))
        == {}
    )
    assert rig.drive(lambda context: replica_state_machine.to_offline(context, [], "test")) == {}
    assert rig.effects == []


def test_a_failover_tells_states_of_later_epochs_all_the_same() -> None:
    """``/controller_epoch`` was lost: nobody can be elected under ours, but whoever leads must still be found."""
    world = World(1)
    world.create_topic("t", {0: [1]})
    world.put_state("t", 0, state(1, [1], 5, 7, controller_epoch=9))
    rig = MachineHarness.active(world, epoch=1)
    notified = "leader 1 epoch 5 isr [1]"
    assert rig.lines() == ["1 UMR brokers [1]", f"1 LISR t-0 {notified}", f"1 UMR t-0 {notified}"]


def test_changes_behind_many_partitions_that_need_none_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "EXAMINED_MAX", 3)
    world, rig = three(9)
    for number in range(7):
        world.put_state("t", number, state(1, [1, 2], 5, 8))
        rig.partition("t", number).leadership = world.states["t", number]
    rig.chronicle.forget()
    world.broker_down(3)
    rig.run()
    assert {world.states["t", n].isr for n in range(9)} == {(1, 2)}
    rig.check_converged()


def test_each_batch_is_followed_by_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "BATCH_WRITES", 2)
    _, rig = three(6)
    every = list(rig.cluster.partitions())
    found = rig.pauses(
        lambda context: replica_state_machine.to_offline(context, [(p, 3) for p in every], "test")
    )
    slice_, batch = [Pause.YIELD], [Pause.YIELD]
    # That the third batch was the last shows by an empty one; what is read again needs no write. Slices: of the
    # replicas, and then of metadata, of states and of stops.
    assert found == slice_ + batch * 4 + [Pause.WAIT] * 3 + batch + slice_ * 3


@pytest.mark.parametrize(("machine", "pauses"), [(partition_state_machine, 4), (replica_state_machine, 3)])
def test_initial_states_are_set_in_slices(
    machine: ModuleType, pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those without a leader are looked for in another one."""
    monkeypatch.setattr(machine, "SLICE_MAX", 2)
    _, rig = three(8)
    found = rig.pauses(lambda context: machine.startup(context, list(rig.cluster.partitions())))
    assert found == [Pause.YIELD] * pauses


def test_whoever_reads_a_mended_state_says_so() -> None:
    """Somebody mended it and removed the member that went: nothing is left to write."""
    world, rig = three(1)
    path = "/brokers/topics/t/partitions/0/state"
    rig.cluster.problems[path] = "not JSON"
    rig.fate = meanwhile(lambda: world.shrink_or_grow("t", 0, [1, 2]))
    world.broker_down(3)
    rig.run()
    assert rig.stored() == (1, 5, [1, 2])
    assert path not in rig.cluster.problems


def test_a_state_that_is_adopted_is_no_problem_any_more() -> None:
    world = World(1, 2)
    rig = MachineHarness.active(world)
    path = "/brokers/topics/t/partitions/0/state"
    rig.cluster.problems[path] = "not JSON"
    world.create_topic("t", {0: [1, 2]})
    rig.fate = meanwhile(lambda: world.put_state("t", 0, state(1, [1, 2], 5, 7)))
    rig.run()
    assert rig.stored()[0] == 1
    assert path not in rig.cluster.problems
