"""What of the product the simulator runs: lines and branches, measured with coverage.py in this process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import coverage

from tests.support.paths import ROOT

#: What the report is about: what decides, what holds the session, and what replicates.
PLACES = (
    "controller/core/*",
    "controller/runtime/lease.py",
    "controller/runtime/zookeeper/session.py",
    "controller/runtime/zookeeper/store.py",
    "controller/runtime/controller_election.py",
    "controller/runtime/term.py",
    "broker_stub/replication/*",
    "broker_stub/group/*",
    "broker_stub/control/*",
    "broker_stub/zookeeper/*",
)


def report(seeds: Sequence[int]) -> int:
    """Run these seeds; print how much of each file was reached, and name each branch that was not. 1: a seed failed."""
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
        text = Path(path).read_text(encoding="utf-8").splitlines()
        for line, arcs in sorted(analysis.missing_branch_arcs().items()):
            targets = ", ".join("the end" if to < 0 else str(to) for to in arcs)
            missing.append(f"{name}:{line} never to {targets}: {text[line - 1].strip()}")
    print("\n".join(rows))
    print(
        f"{len(missing)} branches were not reached by {len(seeds)} seeds; {len(failed)} seeds failed: {failed[:5]}"
    )
    print("\n".join(missing))
    return int(bool(failed))


if __name__ == "__main__":
    first, _, end = sys.argv[1].partition(":")
    sys.exit(report(range(int(first), int(end))))
