"""The rows of ``cases.jsonl``: how the original behaves, from its own test suites, and which of them apply to us.

Each line is one case: ``given`` facts, ``when`` one stimulus, ``then`` what is asserted (``implied``: not asserted).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.core.model import RECOVERED, RECOVERING, LeaderAndIsr
from tests.core.harness import Rig, bare
from tests.core.world import Key

Row = dict[str, Any]

AREAS = ("election_algorithm", "partition_sm", "replica_sm", "context", "channel", "events")
#: Integration rows about creation, failover, elections, broker death and what brokers ask for, that the core alone
#: can run.
FLOWS = (
    "K141",
    "K142",
    "K149",
    "K156",
    "K158",
    "K165",
    "K174",
    "K179",
    "K180",
    "K182",
    "K183",
    "K187",
    "K190",
    "K191",
    "K192",
    "K193",
    "K194",
    "K195",
    "K197",
    "K198",
    "K199",
    "K202",
    "K203",
    "K206",
    "K207",
    "K208",
    "K217",
    "K226",
    "K236",
    "K237",
    "K238",
    "K362",
    "K363",
    "K369",
)

ROWS: list[Row] = [
    json.loads(line) for line in (Path(__file__).parent / "cases.jsonl").read_text().splitlines()
]

_METRICS = "registration and removal of gauges is the runtime's (tests/runtime): the core holds no metrics"
_VERSIONS = "request versions of inter-broker protocols: we speak one protobuf schema"
_VERSION_2 = "restarts the controller with a protocol without topic ids: we have one protocol"
_SEQUENCES = (
    "making sequential nodes is the broker's; reading and deleting them: test_store.py, fenced as every write"
)
NOT_APPLICABLE: dict[str, str] = {
    "K116": _VERSIONS,
    "K125": _VERSIONS,
    "K545": "sizes of two versions of Kafka's own encoding; ours is protobuf",
    "K547": "an error response is made by the broker (broker_stub), and we have no authorisation",
    "K553": "an error response is made by the broker (broker_stub), and we have no authorisation",
    "K126": _METRICS,
    "K129": "a histogram of the JVM library that empties itself: Prometheus histograms do not",
    "K132": _METRICS,
    "K130": "automatic rebalancing is a later event; test_machine.py checks the same of every event there is",
    "K152": "automatic rebalancing is a later event",
    "K161": "fencing is by the version of /controller_epoch in every multi: the runtime's store raises FencedError",
    "K162": "reassignment is a later event; fencing as in K161",
    "K171": "answering callers when a term ends is the runtime's: tests/runtime/test_controller_service.py",
    "K178": _VERSION_2,
    "K504": _SEQUENCES,
    "K505": _SEQUENCES,
    "K506": _SEQUENCES,
    "K507": _SEQUENCES,
    "K509": _SEQUENCES,
    "K214": "inter-broker protocols before 2.8 have no topic ids: we have one protocol, and always assign ids",
    "K216": "inter-broker protocols before 2.8 have no topic ids: we have one protocol, and always assign ids",
    "K218": "inter-broker protocols before 2.8 have no topic ids: we have one protocol, and always assign ids",
    "K240": "configuration is validated where it is written, by the admin service; test_unclean.py has an invalid one",
    "K531": "the fenced delete of /controller_epoch's version is the runtime's store",
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


def rig_of(given: Row) -> Rig:
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
