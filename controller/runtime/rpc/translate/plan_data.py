"""Plans, stop verdicts and explanations as JSON values: the same from the active controller and from ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from controller.core.explain.brokers import BrokerExplanation
from controller.core.explain.controllers import ControllerExplanation
from controller.core.explain.partitions import PartitionExplanation
from controller.core.explain.work import WorkExplanation
from controller.core.model import StopApproval
from controller.planning.scenarios import Plan, Step
from controller.planning.snapshot import Key
from controller.planning.stoppable import Stoppable
from controller.planning.store import Change
from controller.runtime.zookeeper.node_text import node_text

Explanation = PartitionExplanation | BrokerExplanation | ControllerExplanation | WorkExplanation


def explanation_data(explained: Explanation) -> dict[str, Any]:
    """All fields, and ``words``: the whole explanation as text."""
    words = explained.words()
    if isinstance(explained, BrokerExplanation):
        lacks = [lack.text for lack in explained.lacks]
        return {**asdict(replace(explained, lacks=())), "lacks": lacks, "words": words}
    if not isinstance(explained, PartitionExplanation):
        return {**asdict(explained), "words": words}
    rules = _rules_data(explained)
    data = {**asdict(replace(explained, rules=(), advice=())), "changes": explained.changes, "rules": rules}
    del data["advice"]
    return {**data, "words": words}


def _rules_data(explained: PartitionExplanation) -> list[dict[str, Any]]:
    """The election rules. ``failed``: the condition that a candidate does not meet; empty: it may lead."""
    return [
        {
            "rule": tried.way.text,
            "permitted": tried.permitted,
            "candidates": [
                {"broker": c.broker, "failed": c.unmet.value if c.unmet else "", "reason": str(c)}
                for c in tried.candidates
            ],
            "leader": tried.leader,
        }
        for tried in explained.rules
    ]


def stoppable_data(answer: Stoppable, *, overridden: bool = False) -> dict[str, Any]:
    """A stop verdict. ``approvals``: all that hold now; ``overridden``: an operator approved despite the reasons."""
    return {
        "brokers": answer.brokers,
        "stoppable": answer.approved or overridden,
        "overridden": overridden,
        "reasons": [
            {
                "reason": r.why.value,
                "topic": r.topic or None,
                "partition": r.partition if r.topic else None,
                "brokers": r.brokers,
                "text": r.text,
                "change": r.change,
            }
            for r in answer.reasons
        ],
        "margin": answer.margin,
        "largest_safe_set": answer.largest,
        "largest_is_exact": answer.exact,
        "approvals": approval_rows(answer.standing),
        "shutting_down": answer.shutting_down,
    }


def approval_rows(approvals: Mapping[int, StopApproval]) -> list[dict[str, Any]]:
    return [
        {
            "broker": broker_id,
            "broker_epoch": a.broker_epoch,
            "author": a.author,
            "reason": a.reason,
            "at_ms": a.at_ms,
            "overridden": a.overridden,
        }
        for broker_id, a in sorted(approvals.items())
    ]


def plan_data(made: Plan, writes: bool) -> dict[str, Any]:
    """A plan as JSON values; ``writes``: with each write, not only their number."""
    return {
        "plan": made.name,
        "safe": made.safe,
        "settling_writes": len(made.settling),
        "steps": [_step_data(step, writes) for step in made.steps],
    }


def _step_data(step: Step, writes: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "step": step.title,
        "brokers": step.brokers,
        "offline": _names(step.worst.offline),
        "under_min_isr": _names(step.worst.under_min_isr),
        "under_replicated": _names(step.worst.under_replicated),
        "offline_before": _names(step.before.offline),
        "under_min_isr_before": _names(step.before.under_min_isr),
        "under_replicated_before": _names(step.before.under_replicated),
        "offline_after": _names(step.after.offline),
        "under_min_isr_after": _names(step.after.under_min_isr),
        "unclean_elections": _names(step.unclean),
        "unreadable": _names(step.after.unreadable),
        "leaders": _leaders(step.before.leaders, step.after.leaders),
        "moved": [
            {"partition": f"{m.topic}-{m.partition}", "from": m.before, "to": m.after, "unclean": m.unclean}
            for m in step.moved
        ],
        "writes_count": len(step.writes),
        "pushes": step.pushes,
        "notes": step.notes,
    }
    if writes:
        data["writes"] = [write_row(change) for change in step.writes]
    return data


def write_row(change: Change) -> dict[str, Any]:
    """A write: the text of the znode before and after; None: absent."""
    # msgspec encodes no subclass of str, as a NodePath is.
    path = str(change.path)
    return {"path": path, "old": node_text(path, change.old), "new": node_text(path, change.new)}


def _names(keys: Iterable[Key]) -> list[str]:
    return [partition_name(key) for key in keys]


def partition_name(key: Key) -> str:
    return f"{key[0]}-{key[1]}"


def _leaders(before: Mapping[int, int], after: Mapping[int, int]) -> dict[str, dict[str, int | None]]:
    """Number of leaders by broker; None: not registered."""
    ids = sorted({*before, *after})
    return {str(b): {"before": before.get(b), "after": after.get(b)} for b in ids}
