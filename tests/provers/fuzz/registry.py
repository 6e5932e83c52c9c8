"""Every target by its name. A worker imports no more than the one that it runs needs."""

from __future__ import annotations

from importlib import import_module

from tests.provers.fuzz.harness import Target

#: Where each target is.
MODULES: dict[str, str] = {
    name: f"tests.provers.fuzz.targets_{module}"
    for module, names in (
        ("znodes", ("znodes", "control-znodes", "broker-znodes", "jute")),
        ("controller", ("admin-rpc", "controller-rpc")),
        ("broker", ("broker-control-rpc", "broker-data-rpc")),
        ("log", ("log-recovery", "batches", "checkpoints", "data-dir", "groups")),
        ("lines", ("state-log",)),
        ("settings", ("settings",)),
        ("kafka", ("kafka-requests", "kafka-responses")),
        ("cli", ("command-lines",)),
    )
    for name in names
}


def find(name: str) -> Target:
    """The target of this name. Raises KeyError."""
    found: dict[str, Target] = {target.name: target for target in import_module(MODULES[name]).TARGETS}
    return found[name]


def shares(inputs: int, names: list[str]) -> dict[str, int]:
    """How many of so many inputs each target gets, by its weight, the dearest first; in all at least as many."""
    weights = {name: find(name).weight for name in names}
    total = sum(weights.values())
    return {
        name: -(-inputs * weight // total)
        for name, weight in sorted(weights.items(), key=lambda item: item[1])
    }
