"""``python -m tests.provers.fuzz``: at least so many inputs over all targets, a table of outcomes, every crash
with the shortest input that shows it and the command that tries it again.

``--worker``: one target with one engine, in a process of its own; its result as JSON.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

#: Of a target's inputs by Hypothesis, where atheris makes the rest: one of so many, and at most.
HYPOTHESIS_PART, HYPOTHESIS_MAX = 10, 3000
ENGINES = ("hypothesis", "atheris")
#: Characters of a crash's input and of its traceback that are printed.
INPUT_SHOWN, TRACEBACK_SHOWN = 4000, 1500


class Work(NamedTuple):
    """What one worker does."""

    target: str
    engine: str
    inputs: int
    seed: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.provers.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="in all, over all targets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", help="only this one; may be repeated")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--engine", choices=ENGINES, help="only this one")
    parser.add_argument("--input", help="try this one input, hexadecimal (-: empty), on --target")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        return work(Work(args.target[0], args.engine, args.inputs, args.seed), args.worker)
    from tests.provers.fuzz.registry import MODULES

    names = args.target or list(MODULES)
    if unknown := set(names) - set(MODULES):
        parser.error(f"--target {', '.join(sorted(unknown))}: must be one of {', '.join(MODULES)}")
    if args.input is not None:
        if len(names) != 1:
            parser.error("--input: needs one --target")
        return replay(names[0], bytes.fromhex(args.input.strip("-")))
    return fuzz(args.inputs, args.seed, names, args.jobs, args.engine)


def replay(name: str, data: bytes) -> int:
    from tests.provers.fuzz.harness import Crash, attempt, quiet
    from tests.provers.fuzz.registry import find

    target = find(name)
    with quiet():
        result = attempt(target, data)
        target.end()
    print(result.traceback if isinstance(result, Crash) else result.value)
    return int(isinstance(result, Crash))


# --- one worker --------------------------------------------------------------------------------------------------


def work(wanted: Work, result: Path) -> int:
    """Raises whatever an engine fails with; the result is written before the end."""
    with ExitStack() as stack:
        if wanted.engine == "atheris":
            import atheris

            stack.enter_context(
                atheris.instrument_imports(include=["controller", "broker_stub", "proto.statelog.writer"])
            )
        from tests.provers.fuzz.registry import find

        target = find(wanted.target)
    from tests.provers.fuzz.harness import quiet
    from tests.provers.fuzz.hunt import Tally, by_atheris, by_hypothesis

    def done(tally: Tally) -> None:
        result.write_text(json.dumps(tally.finish()))

    with quiet():
        tally = Tally(target, wanted.inputs)
        if wanted.engine == "atheris":
            by_atheris(tally, wanted.seed, done)
        else:
            by_hypothesis(tally, wanted.seed)
            done(tally)
    return 0


def run_worker(wanted: Work) -> dict[str, Any]:
    """The worker's result; of one that died itself, its last words as a crash."""
    with tempfile.TemporaryDirectory(prefix="fuzz-run-") as directory:
        result, said = Path(directory) / "result", Path(directory) / "said"
        command = [
            sys.executable,
            "-m",
            "tests.provers.fuzz",
            f"--worker={result}",
            f"--target={wanted.target}",
        ]
        command += [f"--engine={wanted.engine}", f"--inputs={wanted.inputs}", f"--seed={wanted.seed}"]
        with said.open("wb") as output:
            code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
        if result.exists():
            found: dict[str, Any] = json.loads(result.read_text())
            return found
        words = said.read_text(errors="replace")[-TRACEBACK_SHOWN:]
        crash = [wanted.target, "", f"the {wanted.engine} worker ended with {code}", words]
        return {
            "target": wanted.target,
            "valid": 0,
            "refused": 0,
            "crashed": 1,
            "seconds": 0.0,
            "crashes": [crash],
        }


# --- all of them -------------------------------------------------------------------------------------------------


def plan(inputs: int, seed: int, names: list[str], engine: str | None) -> Iterator[Work]:
    """The dearest first, so that none of them comes alone at the end."""
    from tests.provers.fuzz.registry import shares

    for name, share in shares(inputs, names).items():
        if engine is not None:
            yield Work(name, engine, share, seed)
            continue
        by_hypothesis = min(share // HYPOTHESIS_PART, HYPOTHESIS_MAX)
        if by_hypothesis:
            yield Work(name, "hypothesis", by_hypothesis, seed)
        yield Work(name, "atheris", share - by_hypothesis, seed)


def fuzz(inputs: int, seed: int, names: list[str], jobs: int, engine: str | None) -> int:
    """0: so many inputs, and no crash."""
    if engine is None and importlib.util.find_spec("atheris") is None:
        print("atheris is not installed (it has no wheel for this Python or platform): Hypothesis alone")
        engine = "hypothesis"
    began = time.monotonic()
    rows: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(run_worker, plan(inputs, seed, names, engine)):
            row = rows.setdefault(
                found["target"], {"valid": 0, "refused": 0, "crashed": 0, "seconds": 0.0, "crashes": {}}
            )
            for column in ("valid", "refused", "crashed", "seconds"):
                row[column] += found[column]
            for crash in found["crashes"]:
                row["crashes"].setdefault(crash[2], crash)
            print(
                f"  {found['target']}: {found['valid'] + found['refused'] + found['crashed']} inputs",
                flush=True,
            )
    total = print_table(rows)
    crashes = [crash for row in rows.values() for crash in row["crashes"].values()]
    for target, data, signature, traceback in crashes:
        print(f"\n{target}: {signature}\n{traceback.strip()[-TRACEBACK_SHOWN:]}")
        print(f"python -m tests.provers.fuzz --target {target} --input {data[:INPUT_SHOWN] or '-'}")
    print(f"\n{total} inputs, {len(crashes)} crashes, {time.monotonic() - began:.0f} s, seed {seed}")
    return int(bool(crashes) or total < inputs)


def print_table(rows: dict[str, dict[str, Any]]) -> int:
    """How many inputs there were in all."""
    print(f"\n{'target':<20}{'inputs':>10}{'valid':>8}{'refused':>9}{'seconds':>9}{'crashes':>9}")
    total = 0
    for name, row in sorted(rows.items()):
        count = row["valid"] + row["refused"] + row["crashed"]
        total += count
        valid, refused = (f"{100 * row[column] / max(count, 1):.0f}%" for column in ("valid", "refused"))
        print(f"{name:<20}{count:>10}{valid:>8}{refused:>9}{row['seconds']:>9.0f}{len(row['crashes']):>9}")
    return total


if __name__ == "__main__":
    sys.exit(main())
