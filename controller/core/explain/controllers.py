"""Explains who is the active controller, and who would be next.

As in ``partitions``: a pure function; the explanation is data with ``words``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from controller.core.znode_paths import CONTROLLER, CONTROLLER_EPOCH

#: Znodes without which nobody can be elected, and what mends each.
_NEEDED = {
    CONTROLLER: "its owner replaces it, or somebody deletes it",
    CONTROLLER_EPOCH: "the largest controller epoch of the state-change logs is written to it",
}
#: Who may claim once an operator has resigned so.
_HANDED_BACK = "one of Kafka's brokers takes over, and none of the candidates before pctl controllers claim"


@dataclass(frozen=True)
class ControllerExplanation:
    """``controller`` is -1 where none is active."""

    controller: int
    controller_epoch: int
    candidates: tuple[int, ...]
    summary: str
    changes: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def words(self) -> list[str]:
        return [
            self.summary,
            f"candidates: {', '.join(map(str, self.candidates)) or 'none'}",
            *self.notes,
            *(f"would change it: {text}" for text in self.changes),
        ]


def explain_controller(
    controller_id: int,
    controller_epoch: int,
    candidates: Sequence[int],
    unreadable: Collection[str] = (),
    *,
    handed_back: bool = False,
) -> ControllerExplanation:
    """Explain who is the controller. ``controller_id`` -1: ``/controller`` is absent; epoch -1: there never was one.
    ``unreadable``: paths of znodes; ``handed_back``: to Kafka's brokers."""
    others = tuple(c for c in candidates if c != controller_id)
    epoch = f"controller epoch {controller_epoch}"
    changes: list[str] = []
    spoiled = [path for path in _NEEDED if path in unreadable]
    if controller_id < 0 and spoiled:
        summary = f"no controller is active, and nobody can be elected: {', '.join(spoiled)} cannot be read"
        changes += [f"{path}: {_NEEDED[path]}" for path in spoiled]
    elif controller_id < 0:
        summary = f"no controller is active; the last was of {epoch}"
        if controller_epoch < 0:
            summary = "no controller is active, and there never was one"
        who = "one of the candidates takes over" if candidates else "start one: partition-controller run"
        if handed_back:
            who = _HANDED_BACK
        changes.append(f"{who}; until then leaders stay as they are, and lost ones are not replaced")
    else:
        summary = f"controller {controller_id} is active since {epoch}"
        if controller_id not in candidates:
            summary += "; it is not registered as a candidate: another implementation, or about to go"
        after = "nobody takes over: there is no other candidate"
        if handed_back:
            after = _HANDED_BACK
        elif others:
            after = f"{' or '.join(map(str, others))} takes over, as controller epoch {controller_epoch + 1}"
        changes.append(f"when it resigns or its session ends, {after}")
    return ControllerExplanation(controller_id, controller_epoch, tuple(candidates), summary, tuple(changes))
