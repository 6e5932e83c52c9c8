"""What a soak found: progress while it runs, a table at its end."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from tests.provers.soak.judge import Quantity, Trend, Verdict
from tests.provers.soak.sampling import Life, Sampler, growing


def progress(sampler: Sampler) -> str:
    """Of the processes that were read last: how many, and what they take together."""
    ends = [(life, quantity, readings[-1]) for (life, quantity), readings in sampler.readings.items()]
    latest_s = max((reading.at_s for *_, reading in ends), default=0.0)
    now = [
        (life, quantity, reading.value) for life, quantity, reading in ends if latest_s - reading.at_s < 10
    ]
    sums = {q: sum(value for _, quantity, value in now if quantity is q) for q in Quantity}
    slowest = max((value for _, quantity, value in now if quantity is Quantity.LATENCY), default=0.0)
    return (
        f"{len({life for life, *_ in now if life.pid})} processes: {sums[Quantity.MEMORY]:,.0f} MB,"
        f" {sums[Quantity.DESCRIPTORS]:,.0f} descriptors, {sums[Quantity.THREADS]:,.0f} threads,"
        f" logs {sums[Quantity.LOG]:.1f} KB/s, longest latency {slowest:.1f} ms"
    )


def table(trends: Mapping[tuple[Life, Quantity], Trend]) -> Table:
    """A row for each process that lived long enough to be judged; of each quantity its first and last third, and its
    slope an hour."""
    rows = Table("process", "minutes", *(q.value for q in Quantity), title="first third to last (an hour)")
    lives = dict.fromkeys(
        life for (life, _), trend in trends.items() if trend.verdict is not Verdict.TOO_SHORT
    )
    for life in lives:
        found = {q: trends.get((life, q), Trend(Verdict.TOO_SHORT)) for q in Quantity}
        minutes = max(trend.span_s for trend in found.values()) / 60
        rows.add_row(f"{life.name}, {life.pid}", f"{minutes:.0f}", *map(_cell, found.values()))
    return rows


def _cell(trend: Trend) -> str:
    if trend.verdict is Verdict.TOO_SHORT:
        return ""
    text = f"{trend.first:.1f} to {trend.last:.1f} ({trend.slope:+.1f})"
    return f"[bold red]{text} GROWS[/]" if trend.verdict is Verdict.GROWS else text


def verdict(trends: Mapping[tuple[Life, Quantity], Trend]) -> str:
    if found := growing(trends):
        return "growing: " + "; ".join(found)
    judged = {life for (life, _), trend in trends.items() if trend.verdict is not Verdict.TOO_SHORT}
    if not judged:
        return "nothing can be said of growth: no process was watched for long enough"
    return f"nothing grows, of {len(judged)} processes that were watched for long enough"
