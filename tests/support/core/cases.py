"""The rows of ``core_cases.jsonl``: how the original behaves, from its own test suites, and which apply to us."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.model import RECOVERED, RECOVERING, LeaderAndIsr
from tests.support.core.harness import MachineHarness, bare
from tests.support.core.world import Key
from tests.support.reference_rows import Row, load

ROWS: list[Row] = list(load("core_cases.jsonl").values())

_VERSIONS = "request versions of inter-broker protocols: we speak one protobuf schema"
_NO_IDS = "inter-broker protocols before 2.8 have no topic ids: we have one protocol, and always assign ids"
_ERROR_RESPONSE = (
    "how a request object of the original makes a response of an exception: a broker here answers what it rejects "
    "at the top level alone, which broker_stub/control/test_gates.py checks (section 10.2)"
)
NOT_APPLICABLE: dict[str, str] = {
    "K116": _VERSIONS,
    "K125": _VERSIONS,
    "K545": "sizes of two versions of Kafka's own encoding; ours is protobuf",
    "K547": _ERROR_RESPONSE,
    "K553": _ERROR_RESPONSE,
    "K178": "restarts the controller with a protocol without topic ids: we have one protocol",
    "K214": _NO_IDS,
    "K216": _NO_IDS,
    "K218": _NO_IDS,
}


def rows(*areas: str) -> list[Any]:
    return [
        pytest.param(row, id=f"{row['id']}-{row['test']}" + (f"-{row['row']}" if "row" in row else ""))
        for row in ROWS
        if row["area"] in areas and row["id"] not in NOT_APPLICABLE
    ]


def key_named(name: str) -> Key:
    topic, _, number = name.rpartition("-")
    return topic, int(number)


def state_of(data: Row, partition_epoch: int | None = None) -> LeaderAndIsr:
    """A state as a row writes it."""
    epoch = data.get("partition_epoch", 0) if partition_epoch is None else partition_epoch
    recovery = RECOVERING if data.get("leader_recovery_state") == "RECOVERING" else RECOVERED
    return LeaderAndIsr(
        data["leader"], data["leader_epoch"], tuple(data["isr"]), epoch, data["controller_epoch"], recovery
    )


def rig_of(given: Row) -> MachineHarness:
    """The context of one row: one partition on broker 5, unless the row says otherwise."""
    names = given.get("partitions", [given.get("partition", "t-0")])
    replica = given.get("replica", given.get("broker", 5))
    assignment = {key_named(name): given.get("assignment", [replica]) for name in names}
    live = set(given.get("live", [replica, *given.get("assignment", ())]))
    states = {}
    if given.get("current"):
        # The peer's mock store answers version 2 to any write: a real one counts up from what it had.
        version = given["zk_version_after_write"] - 1 if "zk_version_after_write" in given else None
        states = {key_named(names[0]): state_of(given["current"], version)}
    rig = bare(sorted(live), assignment, states, given.get("controller_epoch", 50))
    rig.cluster.shutting_down.update(given.get("shutting_down", ()))
    return rig
