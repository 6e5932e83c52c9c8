"""Who restricted the controller, why, and until when: as text."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from controller.core.model import Attribution, Freeze


def attribution_text(attribution: Attribution | None) -> str | None:
    return None if attribution is None else f"by {attribution.author}: {attribution.reason}"


def freeze_text(freeze: Freeze | None) -> str | None:
    """``overdue`` where the time is past until which the freeze was meant."""
    if freeze is None:
        return None
    # A year beyond 9999 has no other form.
    until = min(freeze.until_ms / 1000, 253402300799)
    overdue = ", overdue: pctl unfreeze ends it" if until < time.time() else ""
    return (
        f"{attribution_text(freeze)} (until {datetime.fromtimestamp(until, UTC):%Y-%m-%dT%H:%M:%SZ}{overdue})"
    )
