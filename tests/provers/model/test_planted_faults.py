"""Faults planted in the product one by one: the comparison with the tables finds each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.core.model import LeaderAndIsr, ReplicaState
from controller.core.partitions import leader_election, replica_state_machine
from controller.core.partitions.leader_election import Ballot, Elected, Method, Strategy
from tests.provers.model.enumeration import Situation
from tests.provers.model.explore import Universe, explore
from tests.provers.model.transitions import Bench, pairs

Plant = Callable[[pytest.MonkeyPatch], None]


def _legal_too_much(patch: pytest.MonkeyPatch) -> None:
    started = replica_state_machine.VALID_PREVIOUS[ReplicaState.DELETION_STARTED] | {ReplicaState.ONLINE}
    patch.setitem(replica_state_machine.VALID_PREVIOUS, ReplicaState.DELETION_STARTED, started)


def _shrink_below_the_living(patch: pytest.MonkeyPatch) -> None:
    def remove(current: LeaderAndIsr, leaving: set[int], *_: object) -> tuple[int, tuple[int, ...]]:
        kept = tuple(b for b in current.isr if b not in leaving) or current.isr
        return -1 if current.leader in leaving else current.leader, kept[-1:]

    patch.setattr(leader_election, "remove_from_isr", remove)


def _no_new_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    def successor(
        old: LeaderAndIsr, leader: int, isr: tuple[int, ...], epoch: int, recovery: int
    ) -> LeaderAndIsr:
        same = old.leader_epoch if leader == old.leader else old.leader_epoch + 1
        return LeaderAndIsr(leader, same, isr, old.partition_epoch + 1, epoch, recovery)

    patch.setattr(LeaderAndIsr, "successor", successor)


def _told_to_one_too_few(patch: pytest.MonkeyPatch) -> None:
    (way,) = leader_election.STRATEGIES[Strategy.PREFERRED].ways

    def elected(ballot: Ballot, leader: int) -> Elected:
        found = way.elected(ballot, leader)
        return found._replace(recipients=found.recipients[:1])

    planted = Method((way._replace(elected=elected),))
    patch.setitem(leader_election.STRATEGIES, Strategy.PREFERRED, planted)


@pytest.mark.parametrize(
    "plant", [_legal_too_much, _shrink_below_the_living, _no_new_leader_epoch, _told_to_one_too_few]
)
def test_a_planted_fault_in_a_machine_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    everybody = frozenset({1, 2, 3})
    bench = Bench((1, 2), Situation(everybody, frozenset(), frozenset()))
    for known, asked in pairs((1, 2)):
        try:
            if bench.compare(known, asked):
                return
        except AssertionError:
            return
    pytest.fail("not found")


def test_a_planted_fault_in_an_event_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader of two replicas leaves, and the other one is not asked."""
    monkeypatch.setattr(leader_election, "CONTROLLED_SHUTDOWN", leader_election.PREFERRED)
    found = explore(Universe("leaving", frozenset({"create", "shutdown"}), ((1, 2),), (1, 2)))
    assert found.problems
