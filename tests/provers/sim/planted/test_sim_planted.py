"""Planted faults still apply, and some that take few seeds are found (all: ``make planted``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.provers.sim.batches import Run
from tests.provers.sim.planted import search, table
from tests.provers.sim.planted.catalogue import FAULTS
from tests.provers.sim.planted.fault import ROOT, Fault, StaleFaultError
from tests.provers.sim.planted.planting import plant
from tests.provers.sim.planted.search import Found, first_violation, in_short

KINDS = ("core", "driver", "broker")
#: One of each kind that few seeds find, and what tells of it: the ledger, the end, a client.
QUICK = (
    ("leader-epoch-not-raised", "has two leaders"),
    ("broker-watch-not-rearmed", "not settled"),
    ("read-beyond-high-watermark", "read uncommitted"),
)
#: Several times as many as they take, whatever plans come to be like.
QUICK_SEEDS = range(1, 31)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_still_applies(fault: Fault) -> None:
    before = (ROOT / fault.file).read_text(encoding="utf-8")
    code = compile(fault.source(), fault.file, "exec", dont_inherit=True)
    assert code != compile(before, fault.file, "exec", dont_inherit=True)
    assert fault.kind in KINDS


def test_every_fault_has_a_name_of_its_own_and_each_kind_has_some() -> None:
    kinds = [fault.kind for fault in FAULTS.values()]
    assert len(kinds) >= 25
    assert all(kinds.count(kind) >= 5 for kind in KINDS)


def test_a_fault_whose_source_has_moved_on_is_named() -> None:
    fault = next(iter(FAULTS.values()))
    with pytest.raises(StaleFaultError, match=f"{fault.name}: found 0 times in {fault.file}"):
        fault._replace(before="never written").source()
    with pytest.raises(StaleFaultError, match=r"found [0-9]{2,} times"):
        fault._replace(before="\n").source()


def test_a_fault_is_not_planted_too_late() -> None:
    """This process has imported the product: nothing would happen, and every seed would pass."""
    with pytest.raises(RuntimeError, match=r"imported already: too late to plant no-epoch-check"):
        plant("no-epoch-check")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "notified"), QUICK)
def test_a_planted_fault_is_found(name: str, notified: str) -> None:
    seed, violation, _ = first_violation(name, QUICK_SEEDS)
    assert seed is not None
    assert notified in violation


def test_a_seed_that_fails_anyway_tells_nothing_of_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = {"no-epoch-check": {3, 5}, None: {3}}

    def pretend(seeds: Sequence[int], _processes: int, name: str | None) -> Iterator[Run]:
        for seed in seeds:
            yield Run(seed, ["0.1 s: broken"] if seed in failing[name] else [], "", 0.0, 0.5, {})

    monkeypatch.setattr(search, "runs", pretend)
    assert first_violation("no-epoch-check", range(1, 10)) == (5, "0.1 s: broken", 2.5)


def test_the_table_has_a_row_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = list(FAULTS.values())[:2]
    results = [
        Found(first, 900, "12.345 s: a | b\nand more", 1.0),
        Found(second, 7, f"not settled {'x' * 300}", 1.0),
    ]
    late, early = table.rows(results)[1], table.rows(results)[0]
    assert late == f"| {first.name} | {first.what} | `{first.file}` | 900 | a \\| b |"
    assert early.startswith(f"| {second.name} |")
    assert len(in_short(results[1].violation)) <= 163
