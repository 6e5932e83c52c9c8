"""Crash files: the state of a process at a bug, for whoever mends it."""

from __future__ import annotations

import json
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

import structlog

from controller.runtime.config import Settings, describe
from controller.runtime.term import Term

log = structlog.get_logger(__name__)

#: Crash files that are kept.
KEPT_MAX = 20
#: Characters of the current event in a crash file: a request can name tens of thousands of partitions.
EVENT_CHARS_MAX = 100_000


def write(error: BaseException, settings: Settings, role: str, term: Term | None) -> Path | None:
    """Write a crash file; its path, or None if it cannot be written, of which the log has the cause."""
    try:
        return _write(error, settings, role, term)
    except OSError as unwritten:
        log.error("not_dumped", why=str(unwritten))
        return None


def _write(error: BaseException, settings: Settings, role: str, term: Term | None) -> Path:
    path = settings.state_log_dir / f"crash-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}.json"
    state = {
        "error": "".join(traceback.format_exception(error)),
        "role": role,
        "settings": {name: value for name, value, _ in describe(settings)},
        "controller_epoch": term.won.epoch if term else -1,
        "event": str(term.machine.current_event)[:EVENT_CHARS_MAX] if term else "",
        "brokers": {str(b.id): b.epoch for b in term.machine.cluster.brokers.values()} if term else {},
        "problems": term.machine.cluster.some_problems() if term else {},
        "python": sys.version,
    }
    path.write_text(json.dumps(state, indent=1))
    for old in sorted(settings.state_log_dir.glob("crash-*.json"))[:-KEPT_MAX]:
        old.unlink(missing_ok=True)
    return path
