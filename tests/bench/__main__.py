"""``make bench``: how fast, as ratios measured in one run against the raw way of doing the same."""

from __future__ import annotations

import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from controller.core import znode_paths
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from controller.runtime.zookeeper import codecs, jute
from tests.bench import (
    changes,
    cluster,
    core,
    kafka_codec,
    leaderless,
    pctl,
    profile,
    report,
    steady,
    succession,
    throughput,
    tls,
    warm,
)
from tests.bench.cluster import Acceptors, ControllerProcess, loop_session

PARTITIONS = 50
#: ``SCALE`` times a hundred thousand partitions.
SCALE = float(os.environ.get("SCALE", "1"))
TOPICS = int(os.environ.get("TOPICS", round(2000 * SCALE)))
HEAP_MB = int(os.environ.get("HEAP_MB", max(3072, round(1024 * SCALE))))
RUNS = int(os.environ.get("RUNS", "3"))
CONTROLLER_FIGURES = {"failover", "failure", "crash", "creation", "succession", "warm", "plain", "double"}
#: Those that take long.
ONLY_NAMED = report.FIGURES | {"steady", "profile", "core"}
EVERYTHING = CONTROLLER_FIGURES | set(changes.FIGURES) | {"throughput", "codec", "tls", "pctl", "report"}
console = Console(soft_wrap=True)


def failover(connect: str, directory: Path, prefixes: list[str], rows: Table) -> tuple[float, float]:
    """Median seconds of a failover and of the raw scan, alternating."""
    times, scans, peaks = [], [], []
    acceptors = Acceptors(connect)
    for run in range(RUNS):
        with loop_session(connect) as (loop, session):
            paths = [path for prefix in prefixes for path in cluster.all_states(prefix, TOPICS, PARTITIONS)]
            scans.append(loop.run_until_complete(cluster.raw_scan(session, paths)))
        controller = ControllerProcess(connect, directory / f"failover-{len(prefixes)}-{run}")
        event = controller.wait_for("ControllerFailover")
        times.append(event["took_ms"] / 1000)
        began = time.perf_counter()
        controller.wait_quiet()
        console.print(
            f"  run {run + 1}: ready after {times[-1]:.2f} s, raw scan {scans[-1]:.2f} s, "
            f"all pushes acknowledged {time.perf_counter() - began:.2f} s later"
        )
        console.print(f"    phases, ms: {controller.phases_ms()}", style="dim")
        peaks.append(controller.memory_mb()[1])
        controller.stop()
    acceptors.stop()
    took, scan = statistics.median(times), statistics.median(scans)
    count = len(prefixes) * TOPICS * PARTITIONS
    if len(prefixes) == 1:
        rows.add_row(
            f"failover, {count:,} partitions",
            f"{took:.2f} s",
            f"{scan:.2f} s raw scan",
            f"{took / scan:.2f}",
            "3, 2 s",
        )
        rows.add_row("controller memory after failover, peak", f"{max(peaks):.0f} MB", "", "", "400 MB")
    return took, scan


def creation(connect: str, directory: Path, rows: Table) -> None:
    """20 topics of 500 partitions written at once, until every state is there."""
    acceptors = Acceptors(connect)
    controller = ControllerProcess(connect, directory / "creation")
    controller.wait_for("ControllerFailover")
    controller.wait_quiet()
    times, raws = [], []
    for run in range(RUNS):
        with loop_session(connect) as (loop, session):
            infos = [cluster.topic(f"new-{run}-{n}", 500, n * 500) for n in range(20)]
            creates = [
                jute.op_create(session.packed_path(znode_paths.topic_path(i.name)), codecs.encode_topic(i))
                for i in infos
            ]
            paths = [znode_paths.state_path(i.name, n) for i in infos for n in range(500)]
            loop.run_until_complete(session.multi(creates))
            began = time.perf_counter()
            while missing := paths:
                # One look in between, and then at those only that were not there: reads take ZooKeeper's time, too.
                if isinstance(loop.run_until_complete(session.bulk_get(missing[:1]))[0], int):
                    time.sleep(0.005)
                    continue
                nodes = loop.run_until_complete(session.bulk_get(missing))
                paths = [path for path, node in zip(missing, nodes, strict=True) if isinstance(node, int)]
            times.append(time.perf_counter() - began)
            controller.wait_quiet()
            raws.append(loop.run_until_complete(cluster.raw_creates(session, f"/raw-creates-{run}", 20, 500)))
        console.print(f"  run {run + 1}: {times[-1]:.2f} s, raw {raws[-1]:.2f} s")
    controller.stop()
    acceptors.stop()
    took, raw = statistics.median(times), statistics.median(raws)
    rows.add_row(
        "creation, 20 topics x 500 partitions",
        f"{took:.2f} s",
        f"{raw:.2f} s raw fenced creates",
        f"{took / raw:.2f}",
        "4, 1 s",
    )


def plain(connect: str, rows: Table, scan_s: float) -> None:
    """The plain way of scanning, on a tenth of the data."""
    took = cluster.plain_scan(connect, cluster.all_states("a", TOPICS // 10, PARTITIONS)) * 10
    ratio = f"{took / scan_s:.1f}"
    rows.add_row("plain scan: kazoo's single reads", f"{took:.2f} s", f"{scan_s:.2f} s raw scan", ratio, "")


def main(argv: list[str]) -> None:
    """All figures, or those named: see EVERYTHING."""
    wanted = set(argv) or EVERYTHING
    if unknown := wanted - EVERYTHING - ONLY_NAMED:
        sys.exit(
            f"no such figure: {', '.join(sorted(unknown))}; there are {', '.join(sorted(EVERYTHING | ONLY_NAMED))}"
        )
    rows = Table("figure", "measured", "against", "ratio", "must stay below", title="median of 3, one run")
    with tempfile.TemporaryDirectory(prefix="pc-bench-") as name:
        directory = Path(name)
        if "core" in wanted:
            core.measure(rows, RUNS)
        if "codec" in wanted:
            kafka_codec.measure(rows)
        if "throughput" in wanted:
            console.print("throughput:")
            throughput.measure(directory, rows)
        if "tls" in wanted:
            console.print("TLS:")
            with EmbeddedZooKeeper(directory / "tls-zookeeper", heap_mb=512) as zookeeper:
                tls.measure(zookeeper.connect_string, directory, rows)
        if wanted & report.FIGURES:
            console.print("report:")
            report.measure(directory, wanted, rows)
        if "pctl" in wanted:
            console.print("pctl:")
            with EmbeddedZooKeeper(directory / "pctl-zookeeper", heap_mb=256) as zookeeper:
                pctl.measure(zookeeper.connect_string, directory, rows)
        if wanted & (CONTROLLER_FIGURES | {"steady", "profile"}):
            controller_figures(directory, wanted, rows)
        if wanted & set(changes.FIGURES):
            with EmbeddedZooKeeper(directory / "changes-zookeeper", heap_mb=3072) as zookeeper:
                changes.measure(f"{zookeeper.connect_string}/changes", directory, wanted, rows)
        console.print(rows)
    if exceeded := over_limits(rows):
        sys.exit(f"not below the limit: {', '.join(exceeded)}")


_LIMIT = re.compile(r"(?P<limit>[\d.]+)(?P<unit> s| MB)?")


def over_limits(rows: Table) -> list[str]:
    """The figures that are not below all of their limits: one without unit is of the ratio."""
    figures, measured, _, ratios, limits = ([str(cell) for cell in column.cells] for column in rows.columns)
    return [
        figure
        for figure, found, ratio, together in zip(figures, measured, ratios, limits, strict=True)
        for limit in map(_LIMIT.fullmatch, together.split(", "))
        if limit and float((found if limit["unit"] else ratio).split()[0]) >= float(limit["limit"])
    ]


def controller_figures(directory: Path, wanted: set[str], rows: Table) -> None:
    """What one controller does with 100,000 partitions and acceptors for brokers."""
    with EmbeddedZooKeeper(directory / "zookeeper", heap_mb=HEAP_MB) as zookeeper:
        connect = f"{zookeeper.connect_string}/bench"
        console.print(f"populating {TOPICS * PARTITIONS:,} partitions ...")
        with loop_session(connect) as (loop, session):
            loop.run_until_complete(cluster.populate(session, "a", TOPICS, PARTITIONS))
            loop.run_until_complete(session.create(znode_paths.CONTROLLER_EPOCH, b"1"))
        size = leaderless.Size(TOPICS, PARTITIONS, SCALE)
        small = scan = 0.0
        if wanted & {"failover", "double", "plain"}:
            console.print("failover:")
            small, scan = failover(connect, directory, ["a"], rows)
        if "failure" in wanted:
            console.print("broker failure:")
            leaderless.failure(connect, directory, size, RUNS, rows)
        if "profile" in wanted:
            console.print("profile of a broker failure:")
            profile.profile(connect, directory, size, rows)
        if "crash" in wanted:
            console.print("controller and broker killed:")
            leaderless.crash(connect, directory, size, RUNS, rows)
        if "creation" in wanted:
            console.print("creation:")
            creation(connect, directory, rows)
        if "succession" in wanted:
            console.print("succession:")
            succession.measure(connect, directory, TOPICS * PARTITIONS, rows)
        if "warm" in wanted:
            console.print("warm failover:")
            paths = cluster.all_states("a", TOPICS, PARTITIONS)
            warm.measure(connect, directory, paths, RUNS, rows)
        if "steady" in wanted:
            console.print("steady:")
            steady.measure(connect, directory, TOPICS, rows)
        if "plain" in wanted:
            plain(connect, rows, scan)
        if "double" in wanted:
            double(connect, directory, small, rows)


def double(connect: str, directory: Path, small: float, rows: Table) -> None:
    """Twice the partitions: failover must grow no faster than they do."""
    console.print(f"failover at {2 * TOPICS * PARTITIONS:,} partitions:")
    with loop_session(connect) as (loop, session):
        loop.run_until_complete(cluster.populate(session, "b", TOPICS, PARTITIONS))
    large, _ = failover(connect, directory, ["a", "b"], rows)
    ratio = f"{large / small:.2f}"
    rows.add_row("failover at 200,000 to 100,000", f"{large:.2f} s", f"{small:.2f} s", ratio, "2.2")


if __name__ == "__main__":
    main(sys.argv[1:])
