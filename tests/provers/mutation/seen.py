"""Which tests see which lines: measured with coverage.py, one context for each test, and kept for the next run."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypedDict

import coverage
import pytest
from _pytest.runner import runtestprotocol

from tests.support.paths import ROOT

KEPT = ROOT / "build" / "mutation" / "seen.json"


class Test(TypedDict):
    """``took_s``: CPU time when it was measured, with that of processes that ended, or half of the time on the clock if
    that is more: it waited for a server; None: it failed. ``lines``: of each file, those that it ran; ``sources``: the
    digests of these files then."""

    digest: str
    took_s: float | None
    lines: dict[str, list[int]]
    sources: dict[str, str]


Seen = dict[str, Test]


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def load() -> Seen:
    try:
        found: Seen = json.loads(KEPT.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


def measure(items: Sequence[pytest.Item], files: Iterable[str]) -> Seen:
    """Run these tests, and note what they run of ``files``. In a process of its own: they leave threads behind."""
    measuring = coverage.Coverage(
        config_file=False, data_file=None, include=[str(ROOT / file) for file in files], messages=False
    )
    # Of tests that changed, none may run the product.
    measuring.set_option("run:disable_warnings", ["no-data-collected"])
    found: Seen = {}
    digests: dict[Path, str] = {}
    measuring.start()
    try:
        for item, following in zip(items, [*items[1:], None], strict=True):
            measuring.switch_context(item.nodeid)
            began, began_s = time.monotonic(), _cpu_s()
            reports = runtestprotocol(item, log=False, nextitem=following)
            took_s = max(_cpu_s() - began_s, (time.monotonic() - began) / 2)
            failed = any(report.failed for report in reports)
            digest = digests.setdefault(item.path, "") or digest_of(item.path)
            digests[item.path] = digest
            found[item.nodeid] = Test(digest=digest, took_s=None if failed else took_s, lines={}, sources={})
    finally:
        measuring.stop()
    data = measuring.get_data()
    for path in data.measured_files():
        file, source = str(Path(path).relative_to(ROOT)), digest_of(Path(path))
        for line, names in data.contexts_by_lineno(path).items():
            for name in names:
                if name in found:
                    found[name]["lines"].setdefault(file, []).append(line)
                    found[name]["sources"][file] = source
    return found


def _cpu_s() -> float:
    return sum(os.times()[:4])


def save(seen: Seen) -> None:
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    part = KEPT.with_suffix(".part")
    part.write_text(json.dumps(seen), encoding="utf-8")
    part.replace(KEPT)
