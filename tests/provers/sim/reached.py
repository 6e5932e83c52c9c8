"""What of the product the simulator runs: lines and branches, measured with coverage.py in this process."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import coverage

from tests.provers.sim.unreached import Place, explained, place_of
from tests.support.paths import ROOT

#: What the report is about: what decides, what holds the session, and what replicates.
PLACES = (
    "controller/core/*",
    "controller/runtime/lease.py",
    "controller/runtime/zookeeper/session.py",
    "controller/runtime/zookeeper/store.py",
    "controller/runtime/election/controller_election.py",
    "controller/runtime/term.py",
    "broker_stub/replication/*",
    "broker_stub/group/*",
    "broker_stub/control/*",
    "broker_stub/zookeeper/*",
)


class Missing(NamedTuple):
    """Branches of a line that no seed took: to ``targets``."""

    place: Place
    line: int
    targets: str


def report(seeds: Sequence[int]) -> int:
    """Run these seeds; print how much of each file was reached, and name each branch that was neither reached nor is
    explained. 1: a seed failed."""
    measuring = coverage.Coverage(
        config_file=False, data_file=None, branch=True, include=[str(ROOT / place) for place in PLACES]
    )
    measuring.start()
    # Not before: what runs at the import of the product counts, too.
    from tests.provers.sim.plans.plan import plan
    from tests.provers.sim.simulate import simulate

    failed = [seed for seed in seeds if simulate(plan(seed)).violations]
    measuring.stop()
    data = measuring.get_data()
    rows, missing = [], []
    for path in sorted(data.measured_files()):
        analysis = measuring._analyze(path)
        numbers, name = analysis.numbers, str(Path(path).relative_to(ROOT))
        share = f"{numbers.pc_covered:5.1f} %"
        rows.append(f"{share}  {numbers.n_missing:4} lines  {numbers.n_missing_branches:4} branches  {name}")
        for line, arcs in sorted(analysis.missing_branch_arcs().items()):
            targets = ", ".join("the end" if to < 0 else str(to) for to in arcs)
            missing.append(Missing(place_of(name, line), line, targets))
    print("\n".join(rows))
    print(f"{len(seeds)} seeds; {len(failed)} failed: {failed[:5]}")
    tell(missing, {str(Path(path).relative_to(ROOT)) for path in data.measured_files()})
    return int(bool(failed))


def tell(missing: Sequence[Missing], measured: Collection[str]) -> None:
    """Name each branch that is neither reached nor explained, and each explanation that none needs."""
    reasons = explained()
    needed = {place for one in missing for place in one.place.within()}
    unknown = [one for one in missing if reasons.keys().isdisjoint(one.place.within())]
    for one in unknown:
        print(f"{one.place.file}:{one.line} never to {one.targets}: {one.place.text}")
    for place in sorted(reasons.keys() - needed):
        if place.file in measured:
            print(f"explained, but reached: {place.file}, {place.function}: {place.text}")
    count, known = len(unknown), len(missing) - len(unknown)
    print(
        f"{count} branch{'es are' if count != 1 else ' is'} neither reached nor explained,"
        f" {known} {'are' if known != 1 else 'is'} explained"
    )


if __name__ == "__main__":
    first, _, end = sys.argv[1].partition(":")
    sys.exit(report(range(int(first), int(end))))
