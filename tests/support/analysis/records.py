"""Records of the state-change log written by hand."""

from __future__ import annotations

import json
from typing import Any

#: 2026-01-14T10:00:00Z, microseconds.
ZERO_US = 1_768_384_800_000_000


def stamp(seconds: float) -> str:
    """The log's time that many seconds after 2026-01-14T10:00:00Z (less than an hour)."""
    assert 0 <= seconds < 3600
    minutes, rest = divmod(seconds, 60)
    return f"2026-01-14T10:{int(minutes):02}:{rest:09.6f}Z"


def record(kind: str, at: float = 0.0, **fields: Any) -> dict[str, Any]:
    """A record of controller 1 in epoch 1, ``at`` seconds into the log; ``old`` stands for ``from``."""
    if "old" in fields:
        fields["from"] = fields.pop("old")
    envelope = {"schema": 1, "ts": stamp(at), "role": "controller", "node": 1, "controller_epoch": 1}
    return {**envelope, "event_id": 1, "cause": "Test", "kind": kind, **fields}


def text(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))
