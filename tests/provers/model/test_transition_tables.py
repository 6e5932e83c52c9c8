"""Every transition of both machines from every state, asked in every situation, against the tables of 4 and 5."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from tests.provers.model import machines, tables
from tests.provers.model.enumeration import BROKERS, CANONICAL, WHOLE, Situation, situations
from tests.provers.model.machines import Ids
from tests.provers.model.transitions import TransitionHarness, pairs


def short_form() -> Iterator[tuple[Ids, Situation]]:
    """One and two replicas, healthy disks with two; brokers without a replica are up."""
    for assigned, disks in (((1,), True), ((1, 2), False)):
        others = frozenset(BROKERS) - set(assigned)
        for situation in situations(disks):
            if others <= situation.registered - situation.leaving - situation.failed_disks:
                yield assigned, situation


def compared(assigned: Ids, situations: Iterable[Situation]) -> int:
    count = 0
    everything = list(pairs(assigned))
    for situation in situations:
        bench = TransitionHarness(assigned, situation)
        for known, asked in everything:
            problems = bench.compare(known, asked)
            if problems:
                pytest.fail("\n".join([f"AR {assigned}, {situation}, {known}, {asked}:", *problems]))
            count += 1
    return count


@pytest.mark.long
@pytest.mark.slow
def test_every_transition() -> None:
    """Nothing in the tables is left unused."""
    machines.used.clear()
    machines.taken.clear()
    count = sum(compared(assigned, [situation]) for assigned, situation in short_form())
    print(f"transitions, short form: {count} pairs of state and request compared")
    names = [row.id for row in (*tables.PARTITION_LEGAL, *tables.REPLICA_LEGAL, *tables.STRATEGIES)]
    names += [row.id for row in tables.PARTITION_EFFECTS]
    # Whether a broker leaves for a while is a matter of events.
    names += [row.id for row in tables.REPLICA_EFFECTS if "leaving" not in row.when]
    assert not set(names) - machines.used.keys(), "rows that nothing used"
    assert not set(machines.legal_pairs()) - machines.taken.keys(), "legal transitions that were never taken"


@pytest.mark.skipif(not WHOLE, reason="make model")
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("up", [frozenset(), frozenset({1}), frozenset({2}), frozenset({1, 2})], ids=sorted)
@pytest.mark.parametrize("assigned", [*CANONICAL, (3,), (2, 1), (3, 1)], ids=str)
def test_every_transition_in_every_situation(assigned: Ids, up: frozenset[int]) -> None:
    """Also of some renamed brokers, which must make no difference; cut into parts for several processes."""
    of_these = [s for s in situations() if s.registered & {1, 2} == up]
    count = compared(assigned, of_these)
    print(f"transitions over {assigned} with {sorted(up)} up: {count} pairs of state and request compared")
