"""Stands for two programs of Kafka up to 2.8 in ZooKeeper mode, which kafka-assigner runs for everything it changes:
``kafka-reassign-partitions.sh`` and ``kafka-preferred-replica-election.sh``.

They come with a Kafka, which is not here. Like them it writes the given JSON file to the request's znode, and tells how
far a reassignment is by that znode and the topics': nothing else is asked of our side, and nothing of ours is used.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

REASSIGN = "kafka-reassign-partitions.sh"
ELECT = "kafka-preferred-replica-election.sh"
REASSIGN_PATH = "/admin/reassign_partitions"
ELECT_PATH = "/admin/preferred_replica_election"
#: kafka-assigner asks a second time only after ten seconds; Kafka's program takes its time to start a JVM.
VERIFY_WAIT_S = 5.0


def write_scripts(directory: Path) -> None:
    """Executable scripts of the two names, for ``--tools-path``."""
    for name in (REASSIGN, ELECT):
        path = directory / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__)}" "{name}" "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


def main(name: str, arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument(
        "--reassignment-json-file", "--path-to-json-file", dest="file", type=Path, required=True
    )
    parser.add_argument("--execute", action="store_true")
    parser.add_argument("--verify", action="store_true")
    options = parser.parse_args(arguments)
    listed = json.loads(options.file.read_text())["partitions"]
    zk = KazooClient(options.zookeeper)
    zk.start(10)
    try:
        if name == ELECT:
            _request(zk, ELECT_PATH, listed)
        elif options.execute:
            _request(zk, REASSIGN_PATH, listed)
        elif options.verify:
            _verify(zk, listed)
    finally:
        zk.stop()
        zk.close()


def _request(zk: KazooClient, path: str, listed: list[dict[str, Any]]) -> None:
    zk.create(path, json.dumps({"version": 1, "partitions": listed}).encode(), makepath=True)


def _verify(zk: KazooClient, listed: list[dict[str, Any]]) -> None:
    """The sentences that kafka-assigner looks for."""
    deadline = time.monotonic() + VERIFY_WAIT_S
    while (pending := _pending(zk)) and time.monotonic() < deadline:
        time.sleep(0.05)
    print("Status of partition reassignment: ")
    for entry in listed:
        topic, number = entry["topic"], entry["partition"]
        assigned = json.loads(zk.get(f"/brokers/topics/{topic}")[0])["partitions"][str(number)]
        if (topic, number) in pending:
            said = "is still in progress"
        else:
            said = "completed successfully" if assigned == entry["replicas"] else "failed"
        print(f"Reassignment of partition {topic}-{number} {said}")


def _pending(zk: KazooClient) -> set[tuple[str, int]]:
    try:
        data, _ = zk.get(REASSIGN_PATH)
    except NoNodeError:
        return set()
    return {(entry["topic"], entry["partition"]) for entry in json.loads(data)["partitions"]}


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main(sys.argv[1], sys.argv[2:])
