"""What can become of a topic, every state with every event, the product beside the model."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.provers.model import machines, tables
from tests.provers.model.enumeration import WHOLE
from tests.provers.model.explore import Found, Universe, explore
from tests.provers.model.machines import Ids

BROKERS_COME_AND_GO = frozenset({"create", "up", "down", "bounce", "exchange", "failover"})
LEAVING = BROKERS_COME_AND_GO | {"shutdown"}
REQUESTS = frozenset({"elect", "unclean", "alter"})
WRITTEN = frozenset({"isr written", "isr notified"})
DELETION = frozenset({"delete", "deleted", "deletion refused", "deletion retried"})
DISKS = frozenset({"disk"})
LOST_DATA = frozenset({"up empty", "bounce empty", "failover empty", "bounce restored"})
BACK_EMPTY = BROKERS_COME_AND_GO - {"exchange"} | LOST_DATA
#: All but what brokers lose that tell their directories (ADR 17): those are universes of their own.
EVERYTHING = LEAVING | REQUESTS | WRITTEN | DELETION | DISKS

ONE: tuple[Ids, ...] = ((1,),)
TWO: tuple[Ids, ...] = ((1, 2),)
THREE: tuple[Ids, ...] = ((1, 2, 3),)
SHORT = [
    Universe("one replica, everything", EVERYTHING, ONE, brokers=(1,)),
    Universe("two replicas, deletion", BROKERS_COME_AND_GO | DELETION, TWO, brokers=(1, 2)),
    Universe("two replicas, disks", LEAVING - {"exchange"} | DISKS | {"alter"}, TWO, brokers=(1, 2)),
    Universe("two replicas, requests", BROKERS_COME_AND_GO | REQUESTS | WRITTEN, TWO, brokers=(1, 2)),
    Universe("three replicas", BROKERS_COME_AND_GO, THREE),
    Universe("two replicas, lost data", BACK_EMPTY | REQUESTS, TWO, brokers=(1, 2), told=True),
    Universe(
        "two replicas, lost data, written", BACK_EMPTY | WRITTEN | {"elect"}, TWO, brokers=(1, 2), told=True
    ),
    Universe("two replicas, lost data, leaving", BACK_EMPTY | {"shutdown"}, TWO, brokers=(1, 2), told=True),
]
LONG = [
    Universe("one replica, everything", EVERYTHING, ONE),
    Universe("two replicas, everything", EVERYTHING, TWO),
    Universe("three replicas, requests", LEAVING | REQUESTS, THREE),
    Universe("three replicas, disks and written ISRs", LEAVING | DISKS | WRITTEN, THREE),
    Universe("three replicas, deletion", LEAVING | DELETION, THREE),
]


#: A broker's answer tells of a lost disk only after its topic was queued for deletion: here answers come before
#: anything else happens (tests/core/topics/test_deletion.py has it).
LATE = {"6 disk 5"}
#: Only moves of replicas lead to these; ``test_transition_tables`` takes them.
BY_MOVES = {("replica", "New", "Offline"), ("replica", "DeletionIneligible", "Online")}


def explored(universe: Universe) -> Found:
    found = explore(universe)
    pairs = ", ".join(f"{kind} {n}" for kind, n in sorted(found.pairs.items()))
    print(f"{universe.name}: {found.states} states, {found.pairs.total()} pairs compared ({pairs})")
    if found.problems:
        pytest.fail(f"{universe.name}: the product is not where the tables lead, {found.problems[0]}")
    return found


@pytest.mark.slow
def test_every_state_with_every_event() -> None:
    """And every row of the tables of events, refusals and answers is used, and every legal transition that these events
    lead to is taken."""
    machines.used.clear()
    machines.taken.clear()
    pairs: Counter[str] = Counter()
    for universe in SHORT:
        pairs.update(explored(universe).pairs)
    rows = [row.id for steps in tables.EVENTS.values() for row in steps]
    rows += [row.id for row in (*tables.ALTER_PARTITION, *tables.ELECT_LEADERS, *tables.NOT_ELECTED)]
    rows += [row.id for row in tables.LOST_DATA]
    rows += [row.id for row in tables.REPLICA_EFFECTS if "leaving" in row.when]
    rows += [row.id for row in (*tables.PARTITION_LEGAL, *tables.REPLICA_LEGAL)]
    assert pairs.keys() == EVERYTHING | LOST_DATA, "an event never happened"
    unused = set(rows) - machines.used.keys() - LATE
    assert unused == set(), "rows that nothing used"
    untaken = set(machines.legal_pairs()) - machines.taken.keys() - BY_MOVES
    assert untaken == set(), "legal transitions that were never taken"


@pytest.mark.skipif(not WHOLE, reason="make model")
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("universe", LONG, ids=lambda u: u.name)
def test_the_whole(universe: Universe) -> None:
    explored(universe)
