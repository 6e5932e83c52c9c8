"""What our processes wrote to their logs: anything that is no clear message of an expected trouble is a finding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from controller.analysis import lines as state_lines
from controller.analysis.lines import time_of
from tests.provers.chaos.apply import Skew, Struck
from tests.provers.chaos.plan import BROKERS, CONTROLLERS, Kind
from tests.provers.chaos.verdicts import Finding, Line, What, true_time

#: Errors that are clear, and what faults they belong to: events of the programs' own logs.
EXPECTED = frozenset(
    {
        "replicas are offline",
        "replica is offline",
        "data directory lost: every replica is offline",
        "log cannot be used: the replica is offline",
        "logs not closed cleanly: the next start checks them",
        # Seen between the two files of a new certificate: the former one stays in use.
        "security_files_not_usable",
    }
)
#: What may be said of a full disk. A broker whose only data directory is full says so and ends, each time that it is
#: started.
_OF_FULL_DISKS = {
    Kind.DISK_FULL: re.compile(
        r'.*"event": "(data directory failed: its replicas are offline|broker failed)".*'
        r"|[a-z]+-\d+ ended by itself with 1"
    ),
    Kind.STATE_LOG_FULL: re.compile(
        r'.*"why": "No space left on device", "event": "state_log_not_written".*'
    ),
}
#: Until the end of a process is noticed, which may be after its disk was emptied.
_NOTICED_US = 3_000_000
_BAD_EVENTS = frozenset({"bug", "unexpected error", "state dumped"})


class Odd(NamedTuple):
    """A line that should not be. ``at_us`` 0: it has no time."""

    at_us: int
    words: str


def odd_lines(text: Iterable[str]) -> Iterator[Odd]:
    """Of a program that logs JSON lines: what is not JSON, errors nobody expects, and exceptions.

    Lines of one traceback, which are no JSON, are one finding.
    """
    last_at, loose = 0, list[str]()
    for line in text:
        entry = _entry(line)
        if entry is None:
            if line.strip():
                loose.append(line.rstrip())
            continue
        if loose:
            yield Odd(last_at, _shortened(loose))
            loose = []
        last_at = _time(entry) or last_at
        event, level = str(entry.get("event", "")), entry.get("level", "")
        exception = str(entry.get("exception", ""))
        if event in EXPECTED and not exception:
            continue
        if exception or level in ("error", "critical") or event in _BAD_EVENTS:
            yield Odd(last_at, f"{line.strip()[:600]}" + (f" ... {exception[-300:]}" if exception else ""))
    if loose:
        yield Odd(last_at, _shortened(loose))


def _entry(line: str) -> dict[str, Any] | None:
    try:
        entry = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return entry if isinstance(entry, dict) else None


def _time(entry: dict[str, Any]) -> int:
    try:
        return time_of(str(entry.get("timestamp", "")))
    except ValueError:
        return 0


def _shortened(loose: list[str]) -> str:
    if len(loose) > 6:
        loose = [*loose[:2], "...", *loose[-4:]]
    return " | ".join(loose)[:900]


def in_logs(directory: Path, skews: list[Skew]) -> list[Finding]:
    """Odd lines and crash files of controllers and brokers below a run's directory."""
    findings = []
    for name in (*CONTROLLERS, *BROKERS):
        path = directory / f"{name}.log"
        with path.open(encoding="utf-8", errors="replace") as text:
            for odd in odd_lines(text):
                at_us = true_time(odd.at_us, name, skews)
                findings.append(Finding(What.PROCESSES, f"{name}: {odd.words}", at_us))
    for path in sorted(directory.rglob("crash-*")):
        at_us = round(path.stat().st_mtime * 1e6)
        words = f"{path.relative_to(directory)}: {path.read_text(errors='replace')[:500]}"
        findings.append(Finding(What.PROCESSES, words, at_us))
    return findings


def of_full_disks(finding: Finding, struck: Iterable[Struck]) -> bool:
    """Whether a process could do nothing else then."""
    name = re.split(r"[: ]", finding.words, maxsplit=1)[0]
    return any(
        one.name == name
        and one.kind in _OF_FULL_DISKS
        and _OF_FULL_DISKS[one.kind].fullmatch(finding.words) is not None
        and one.since_us <= finding.at_us <= one.until_us + _NOTICED_US
        for one in struck
    )


def state_changes(directory: Path, skews: list[Skew]) -> tuple[list[Line], int]:
    """All records of all nodes with their true times, and how many lines were torn or malformed."""
    bad: list[object] = []
    found = []
    for at_us, record in state_lines.read(state_lines.find([directory]), bad.append):
        node = f"{record['role']}-{record['node']}"
        found.append(Line(true_time(at_us, node, skews), record))
    return found, len(bad)
