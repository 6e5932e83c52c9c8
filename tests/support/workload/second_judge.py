"""A second judge of acknowledged records, of another make than `controller.workload.checker`.

A partition is a register to which values are appended: each operation takes effect at one moment between its beginning
and its end, and each place of the register gets one value, once and for all. What is known of places (acknowledgements,
reads, what each replica holds at the end) is one set of claims. A history is linearisable exactly if all claims about
a place agree, what is promised is among the claims of the end, and no append ended before one began that stands
earlier. Places are unique, so that the order of the register is the only order there is, and one pass decides it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from math import inf

from controller.workload.checker import Logs, ReplicaLog
from controller.workload.history import Content, History, Key


def objections(history: History, logs: Logs) -> list[str]:
    """Why the history is not that of registers, in words; empty when it is."""
    keys = {*logs, *(write.key for write in history.writes), *((r.topic, r.partition) for r in history.reads)}
    return [objection for key in sorted(keys) for objection in _of_register(key, history, logs)]


def _of_register(key: Key, history: History, logs: Logs) -> Iterator[str]:
    replicas = logs.get(key, {})
    start = max((log.start_offset for log in replicas.values()), default=0)
    reads = [read for read in history.reads if (read.topic, read.partition) == key]
    told = [(w.offset, w.content) for w in history.writes if w.key == key and w.offset is not None]
    told += [(read.offset, read.content) for read in reads]
    held = {
        broker: [(stored.offset, stored.content) for stored in log.records]
        for broker, log in replicas.items()
    }
    claims: defaultdict[int, set[Content]] = defaultdict(set)
    for place, content in [*told, *chain.from_iterable(held.values())]:
        if place >= start:
            claims[place].add(content)
    for read in reads:
        if read.offset >= read.high_watermark:
            yield f"{key}: place {read.offset} was read before it was filled for good"
    yield from (
        f"{key}: place {n} holds {len(values)} values" for n, values in claims.items() if len(values) > 1
    )
    for broker, found in held.items():
        if missing := claims.keys() - {place for place, _ in found}:
            yield f"{key}: replica {broker} lacks places {sorted(missing)[:5]}"
    if told and not held:
        yield f"{key}: no replica holds what was promised"
    yield from _of_replicas(key, replicas, start)
    yield from _of_appends(key, history, claims)


def _of_replicas(key: Key, replicas: Mapping[int, ReplicaLog], start: int) -> Iterator[str]:
    for broker, log in replicas.items():
        if log.problem:
            yield f"{key}: replica {broker} cannot be read: {log.problem}"
    if len({tuple(log.batches) for log in replicas.values() if log.start_offset == start}) > 1:
        yield f"{key}: replicas hold other bytes"


def _of_appends(key: Key, history: History, claims: Mapping[int, set[Content]]) -> Iterator[str]:
    """``claims``: all that is known of places."""
    places: defaultdict[Content, list[int]] = defaultdict(list)
    for place in sorted(claims):
        for content in claims[place]:
            places[content].append(place)
    sent = {write.content: write for write in history.writes if write.key == key}
    for content, count in Counter({content: len(found) for content, found in places.items()}).items():
        if content not in sent:
            if content.writer >= 0:
                yield f"{key}: {content} was never appended"
        elif (attempts := sent[content].attempts) is not None and count > attempts:
            yield f"{key}: {content} was appended {count} times by {attempts} requests"
    latest_begin, of = -inf, ""
    acknowledged = [write for write in sent.values() if write.offset is not None]
    for write in sorted(acknowledged, key=lambda write: write.offset or 0):
        if write.ended_us and write.ended_us < latest_begin:
            yield f"{key}: {write.content} ended before {of} began, and stands behind it"
        if write.begun_us > latest_begin:
            latest_begin, of = write.begun_us, str(write.content)
    previous: dict[int, int] = {}
    for write in sorted(acknowledged, key=lambda write: write.sequence):
        first = places[write.content][0]
        if first < previous.get(write.writer, -1):
            yield f"{key}: {write.content} stands before an earlier one of its writer"
        previous[write.writer] = max(first, previous.get(write.writer, -1))
