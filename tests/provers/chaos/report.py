"""What a run found, as a table for people and as JSON."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.provers.chaos.run import LIMIT_S, Outcome
from tests.provers.chaos.verdicts import Distribution, Finding, What, attributed

SHOWN_MAX = 15


def output() -> Console:
    """Wide where it goes to a file: lines of a table that are broken are hard to search."""
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 150)


def show(outcome: Outcome, console: Console) -> None:
    """The table, then those beyond the limit and each finding by name."""
    recovered = [
        one.recovery.took_s for one in outcome.played if one.recovery and one.recovery.took_s is not None
    ]
    within = sum(not one.limit_passed for one in outcome.played)
    rows = Table("what", "found", "of", title="verdict", title_justify="left")
    judged = outcome.records
    rows.add_row(
        "acknowledged records lost or wrong",
        _mark(outcome.count(What.RECORDS)),
        f"{judged.acknowledged:,} acknowledged, {judged.unacknowledged:,} given up, {judged.reads:,} read, "
        f"{judged.replicas} replicas compared",
    )
    epochs = f"{outcome.state_changes:,} state changes of all nodes"
    rows.add_row("two controllers in one epoch", _mark(outcome.count(What.EPOCHS)), epochs)
    done = Counter(one.outcome.value for one in outcome.asked)
    asked = f"{len(outcome.asked)} asked: " + ", ".join(f"{n} {what}" for what, n in sorted(done.items()))
    rows.add_row("stuck operations", _mark(outcome.count(What.STUCK)), asked)
    rows.add_row("never whole again", _mark(outcome.count(What.RECOVERY)), f"{len(outcome.played)} episodes")
    rows.add_row("unclear errors, crashes, ends", _mark(outcome.count(What.PROCESSES)), "logs of 8 processes")
    rows.add_section()
    rows.add_row(
        f"whole within {LIMIT_S:g} s of healing",
        f"{within} of {len(outcome.played)}",
        _times(Distribution.of(recovered)),
    )
    rows.add_row("without a leader, one in sync alive", "", _times(outcome.led_again))
    others = [one.took_s for one in outcome.leaderless if not one.counted]
    rows.add_row("without a leader, none in sync alive", "", _times(Distribution.of(others)))
    rows.add_row("longest write, by episode and partition", "", _times(Distribution.of(outcome.writes)))
    console.print(rows)
    for one in outcome.played:
        if one.recovery is not None and one.limit_passed:
            console.print(
                f"beyond {LIMIT_S:g} s: episode {one.number} ({one.name}): {one.recovery}", markup=False
            )
            console.print(
                f"    lacking at {LIMIT_S:g} s: {'; '.join(one.recovery.lacking[:5])}", markup=False
            )
    for gap in sorted((one for one in outcome.leaderless if one.counted), key=lambda one: -one.took_s)[:3]:
        during = attributed(Finding(What.RECOVERY, "", gap.since_us), outcome.played)
        console.print(
            f"longest without a leader: {gap.topic}-{gap.partition} {gap.took_s:.2f} s "
            f"from episode {during.episode} ({during.fault}) on",
            markup=False,
        )
    for finding in outcome.findings[:SHOWN_MAX]:
        console.print(f"FOUND {finding}", style="bold red", markup=False)
    if len(outcome.findings) > SHOWN_MAX:
        console.print(f"and {len(outcome.findings) - SHOWN_MAX} findings more, see the report")


def _mark(count: int) -> str:
    return f"[bold red]{count}[/]" if count else "[green]0[/]"


def _times(spread: Distribution) -> str:
    if not spread.count:
        return "none"
    return (
        f"{spread.count:,}: p50 {spread.p50:.2f} s, p90 {spread.p90:.2f} s, p99 {spread.p99:.2f} s, "
        f"longest {spread.longest:.2f} s"
    )


def as_data(outcome: Outcome) -> dict[str, Any]:
    """Everything, for JSON."""
    judged = outcome.records
    return {
        "ok": outcome.ok,
        "limit_s": LIMIT_S,
        "counts": {what.value: outcome.count(what) for what in What},
        "records": {
            "acknowledged": judged.acknowledged,
            "given_up": judged.unacknowledged,
            "reads": judged.reads,
            "replicas": judged.replicas,
            "line": judged.line(),
        },
        "recovery_s": asdict(
            Distribution.of(
                one.recovery.took_s
                for one in outcome.played
                if one.recovery and one.recovery.took_s is not None
            )
        ),
        "within_limit": sum(not one.limit_passed for one in outcome.played),
        "leaderless_s": asdict(outcome.led_again),
        "leaderless_nobody_alive_s": asdict(
            Distribution.of(one.took_s for one in outcome.leaderless if not one.counted)
        ),
        "longest_leaderless": [
            one._asdict() for one in sorted(outcome.leaderless, key=lambda one: -one.took_s)[:10]
        ],
        "longest_write_s": asdict(Distribution.of(outcome.writes)),
        "state_changes": outcome.state_changes,
        "torn_lines": outcome.torn_lines,
        "rotations": outcome.rotations,
        "episodes": [asdict(one) for one in outcome.played],
        "findings": [asdict(finding) for finding in outcome.findings],
        "operations": [one._asdict() for one in outcome.asked],
    }
