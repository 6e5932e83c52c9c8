"""Where a controller's time goes when a broker fails: its CPU, by what it is spent on, and when."""

from __future__ import annotations

import json
import os
import statistics
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from controller.core import znode_paths
from tests.bench.cluster import Acceptors, ControllerProcess
from tests.bench.leaderless import PREFIX, VICTIM, Size, session_ends, times_of

PICTURE = Path("docs/images/broker-failure.svg")
BINS = 60
COLORS = ("#3b6fb6", "#e0913a", "#5a9e6f", "#b0493f", "#7d5ba6", "#8c8c8c", "#c9a227", "#4fa3a5")
#: Of the picture: its width, and left, top, bottom and right of the columns.
WIDTH, LEFT, TOP, BOTTOM, RIGHT = 900.0, 60.0, 60.0, 300.0, 880.0
console = Console(soft_wrap=True)


def profile(connect: str, directory: Path, size: Size, rows: Table) -> None:
    """One of six brokers goes, as in ``failure``; the controller's process is sampled."""
    samples = directory / "samples"
    os.environ |= {"SAMPLES": str(samples), "PYTHONPATH": str(Path(__file__).parent / "sampling")}
    acceptors = Acceptors(connect)
    try:
        controller = ControllerProcess(connect, directory / "profile")
    finally:
        del os.environ["SAMPLES"], os.environ["PYTHONPATH"]
    controller.wait_for("ControllerFailover")
    controller.wait_quiet(600)
    acceptors.command("keep")
    with session_ends(connect, [znode_paths.broker_path(VICTIM)]) as ends:
        acceptors.command(f"drop {VICTIM}")
        event = controller.wait_for("BrokerChange", timeout_s=600)
    controller.wait_quiet(600)
    began = max(ends.values())
    times = times_of(controller, [acceptors], directory, size.led_by(VICTIM), began)
    controller.stop()
    acceptors.stop()
    marks = {
        "half of the leaders told": statistics.median(times.told),
        "last leader told": max(times.told),
        "last write": (event["took_ms"] + event["queued_ms"]) / 1000,
    }
    until_s = 1.05 * max(marks.values())
    spent = _spent(samples, began, until_s)
    totals = sum(spent, Counter[str]())
    whole_s = totals.total()
    for work, cpu_s in totals.most_common():
        rows.add_row(f"CPU of a broker failure: {work}", f"{cpu_s:.2f} s", "", f"{cpu_s / whole_s:.0%}", "")
    partitions = size.topics * size.partitions
    PICTURE.write_text(_drawn(spent, until_s, marks, [w for w, _ in totals.most_common()], partitions))
    console.print(
        f"  picture: {PICTURE}; load {os.getloadavg()[0]:.0f}; {PREFIX}-*: {partitions:,} partitions"
    )


def _spent(samples: Path, began: float, until_s: float) -> list[Counter[str]]:
    """Seconds of CPU by work, in each of BINS equal parts of the time from ``began`` on."""
    bins = [Counter[str]() for _ in range(BINS)]
    for line in samples.read_text().splitlines():
        at, spent = json.loads(line)
        place = int((at - began) / until_s * BINS)
        if 0 <= place < BINS:
            bins[place].update(spent)
    return bins


def _drawn(
    bins: list[Counter[str]], until_s: float, marks: dict[str, float], works: list[str], partitions: int
) -> str:
    """Stacked columns: processors in use, over seconds since the session's end."""
    high = max(2.0, *(b.total() / until_s * BINS for b in bins))
    wide, tall = (RIGHT - LEFT) / BINS, BOTTOM - TOP
    shapes = []
    for place, spent in enumerate(bins):
        y = BOTTOM
        for work, color in zip(works, COLORS, strict=False):
            height = max(spent[work], 0.0) / until_s * BINS / high * tall
            y -= height
            shapes.append(
                f'<rect x="{LEFT + place * wide:.1f}" y="{y:.1f}" width="{wide - 0.5:.1f}" height="{height:.1f}"'
                f' fill="{color}"><title>{work}</title></rect>'
            )
    for number, (what, at_s) in enumerate(marks.items()):
        x = LEFT + at_s / until_s * (RIGHT - LEFT)
        shapes.append(f'<path d="M{x:.1f} {TOP - 6}V{BOTTOM}" stroke="#444" stroke-dasharray="3 3"/>')
        left, anchor = (x + 4, "start") if x < (LEFT + RIGHT) / 2 else (x - 4, "end")
        where = f'x="{left:.1f}" y="{TOP + 14 * number}" text-anchor="{anchor}"'
        shapes.append(f"<text {where}>{what}: {at_s:.2f} s</text>")
    for tick in range(3):
        y = BOTTOM - tick / high * tall
        shapes.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick}</text>')
    for part in range(5):
        x = LEFT + part / 4 * (RIGHT - LEFT)
        shapes.append(
            f'<text x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="middle">{until_s * part / 4:.2f} s</text>'
        )
    for number, (work, color) in enumerate(zip(works, COLORS, strict=False)):
        x, y = LEFT + number % 4 * 210, BOTTOM + 40 + number // 4 * 20
        shapes.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{color}"/>')
        shapes.append(f'<text x="{x + 18}" y="{y}">{work}</text>')
    title = f"One of six brokers fails, {partitions:,} partitions: processors that the controller uses"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} 380" '
        'font-family="sans-serif" font-size="12">'
        f'<rect width="{WIDTH:.0f}" height="380" fill="#fff"/><text x="{LEFT}" y="24" font-size="15">{title}</text>'
        + "\n".join(shapes)
        + "</svg>\n"
    )
