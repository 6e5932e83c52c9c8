"""``python -m tests.provers.sim.planted``: look for planted faults, one after the other.

python -m tests.provers.sim.planted                       all of them, up to 2000 seeds each
python -m tests.provers.sim.planted no-epoch-check ...    these
python -m tests.provers.sim.planted --again [NAME ...]    each by the seed of its row: which rows hold no more?
python -m tests.provers.sim.planted --write [NAME ...]    and their rows of the table in docs/planted-bugs.md anew
python -m tests.provers.sim --planted NAME --seed 17      one seed of one of them, with its whole story
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tests.provers.sim.planted import table
from tests.provers.sim.planted.catalogue import FAULTS
from tests.provers.sim.planted.search import SEEDS_MAX, Found, in_short, search


def main(arguments: Sequence[str] | None = None) -> int:
    """1 when one is not found, 2 for what cannot be meant."""
    parser = argparse.ArgumentParser(prog="python -m tests.provers.sim.planted", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--seeds-max", type=int, default=SEEDS_MAX)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--again", action="store_true", help="only the seed that the table names of each")
    parser.add_argument("--write", action="store_true", help=f"their rows of the table in {table.PAGE.name}")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.names if name not in FAULTS]:
        parser.error(f"no such fault: {', '.join(unknown)}; known: {', '.join(FAULTS)}")
    if chosen.again and chosen.write:
        parser.error("--again and --write: what is not found by one seed is searched for first")
    names = chosen.names or list(FAULTS)
    if chosen.again:
        known = table.seeds()
        seeds: dict[str, Sequence[int]] = {name: [known[name]] for name in names if name in known}
        if without := [name for name in names if name not in known]:
            print(f"without a seed in the table, not tried: {', '.join(without)}", flush=True)
    else:
        seeds = dict.fromkeys(names, range(1, chosen.seeds_max + 1))
    results: list[Found] = []
    for found in search(seeds, chosen.processes):
        results.append(found)
        _print(found)
        if chosen.write:
            table.write(results)
    missed = [found.fault.name for found in results if found.seed is None]
    by = "by the seeds of the table" if chosen.again else f"within {chosen.seeds_max} seeds"
    print(f"{len(results) - len(missed)} of {len(results)} found {by}")
    if missed:
        print(f"not found: {', '.join(missed)}")
    return 1 if missed else 0


def _print(found: Found) -> None:
    violation = in_short(found.violation) if found.seed is not None else "NOT FOUND"
    fault = found.fault
    print(
        f"{fault.kind:6}  {fault.name:38}  {found.seed or '-':>5}  {found.took_s:6.1f} s  {violation}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
