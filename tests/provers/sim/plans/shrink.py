"""A failing run made short: actions that are not needed for it to fail are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.provers.sim.plans.plan import Action, Plan
from tests.provers.sim.simulate import Outcome, simulate

#: Runs that one shrinking may cost.
TRIES_MAX = 150


def keep(plan: Plan, numbers: Sequence[int]) -> Plan:
    """The plan with only these of its actions."""
    return replace(plan, actions=tuple(plan.actions[number] for number in numbers))


def shrink(plan: Plan, fails: Callable[[Outcome], bool]) -> tuple[int, ...]:
    """Numbers of actions with which the run still ``fails``, from which no part can be left out any more."""
    kept = tuple(range(len(plan.actions)))
    tries, size = 0, max(len(kept) // 2, 1)
    while kept and tries < TRIES_MAX:
        shorter = None
        for start in range(0, len(kept), size):
            candidate = kept[:start] + kept[start + size :]
            tries += 1
            if fails(simulate(keep(plan, candidate))):
                shorter = candidate
                break
        if shorter is not None:
            kept = shorter
        elif size == 1:
            break
        size = max(min(size, len(kept)) // (1 if shorter is not None else 2), 1)
    return kept


def kind_of(violation: str) -> str:
    """What is alike in violations of one kind: no times, no numbers, no values."""
    text = violation.partition(": ")[2] if " s: " in violation else violation
    return "".join(c for c in text.split("\n")[0] if not c.isdigit())[:60]


def describe(actions: Sequence[Action]) -> str:
    return "\n".join(f"  {action}" for action in actions)
