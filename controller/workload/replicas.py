"""Replicas' logs, read from the brokers' data directories without a broker."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from broker_stub.log import batches, dump
from broker_stub.log.errors import LogError
from controller.workload.checker import Logs, ReplicaLog, Stored, StoredBatch
from controller.workload.history import Key, content_of

DIGEST_BYTES = 16


def read_replica(folder: Path) -> ReplicaLog:
    """Read and check every batch of a ``topic-partition`` folder.

    The first error becomes ``problem`` and ends the reading. While a broker appends, the end of the log may look
    truncated.
    """
    found: list[StoredBatch] = []
    records: list[Stored] = []
    problem = ""
    try:
        for item in dump.scan(folder):
            if isinstance(item, dump.ScanProblem):
                problem = str(item)
                break
            found.append(_stored_batch(item.batch, item.data))
            records += [
                Stored(record.offset, record.leader_epoch, content_of(record.value))
                for record in batches.decode(item.data, check=False)
            ]
    except LogError as error:
        problem = str(error)
    start, end = (found[0].base_offset, found[-1].next_offset) if found else (0, 0)
    return ReplicaLog(start, end, found, records, problem)


def _stored_batch(batch: batches.Batch, data: bytes) -> StoredBatch:
    digest = hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
    return StoredBatch(batch.base_offset, batch.next_offset, batch.leader_epoch, digest)


def read_logs(
    data_dirs: Mapping[int, Path],
    replicas: Mapping[Key, Sequence[int]],
    read: Callable[[Path], ReplicaLog] = read_replica,
) -> Logs:
    """The logs of these partitions' replicas. ``data_dirs``: by broker id; ``replicas``: broker ids by partition;
    ``read``: Kafka's brokers have a format of their own (``kafka_replicas``)."""
    return {
        key: {id_: read(data_dirs[id_] / f"{key[0]}-{key[1]}") for id_ in ids}
        for key, ids in replicas.items()
    }


def found_replicas(data_dirs: Mapping[int, Path], topic: str) -> dict[Key, list[int]]:
    """The brokers that have a folder for each partition of a topic. Raises OSError."""
    found: dict[Key, list[int]] = {}
    for id_, directory in sorted(data_dirs.items()):
        for path in directory.iterdir():
            name, _, number = path.name.rpartition("-")
            if name == topic and number.isascii() and number.isdigit() and path.is_dir():
                found.setdefault((topic, int(number)), []).append(id_)
    return dict(sorted(found.items()))


def unconfirmed(logs: Logs) -> list[Key]:
    """Partitions whose replicas end at different offsets or cannot be read to the end."""
    return sorted(key for key, replicas in logs.items() if not _one_end(replicas.values()))


def _one_end(replicas: Iterable[ReplicaLog]) -> bool:
    found = list(replicas)
    return not any(log.problem for log in found) and len({log.end_offset for log in found}) == 1
