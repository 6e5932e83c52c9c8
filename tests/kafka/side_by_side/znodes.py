"""What a controller leaves in ZooKeeper, in a form in which two runs of one scenario can be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

ROOTS = (
    "/brokers/topics", "/config", "/admin", "/controller_epoch", "/feature", "/isr_change_notification",
    "/log_dir_event_notification",
)  # fmt: skip
_EPOCH = re.compile(r'("controller_epoch":)(-?\d+)')
_TIMES = re.compile(r'("timestamp":)"?\d+"?')
_TOPIC_ID = re.compile(r'("topic_id":)"[^"]{22}"')
_SEQUENCE = re.compile(r"_\d{10}$")


def snapshot(zk: KazooClient, roots: Sequence[str] = ROOTS) -> dict[str, str]:
    """The data of all znodes below ``roots`` by path, as text.

    Named instead of numbered: controller epochs (``E1`` is the oldest one found), times, topic ids, and the numbers of
    sequential znodes. JSON's keys are sorted (their order in Kafka is that of Scala's maps), and so are ISRs, whose
    order leaders choose. Everything else is as it was written.
    """
    raw = {path: data for root in roots for path, data in _walk(zk, root)}
    found = {int(number) for data in raw.values() for _, number in _EPOCH.findall(data)}
    if "/controller_epoch" in raw:
        found.add(int(raw["/controller_epoch"]))
    names = {number: f"E{rank}" for rank, number in enumerate(sorted(found), 1)}
    return {_SEQUENCE.sub("_N", path): _named(path, data, names) for path, data in raw.items()}


def _sorted(data: str) -> str:
    try:
        found = json.loads(data)
    except ValueError:
        return data
    if isinstance(found, dict) and "isr" in found:
        found["isr"].sort()
    return json.dumps(found, sort_keys=True, separators=(",", ":"))


def _named(path: str, data: str, epochs: Mapping[int, str]) -> str:
    if path == "/controller_epoch":
        return epochs[int(data)]
    data = _EPOCH.sub(lambda found: f"{found[1]}{epochs[int(found[2])]}", data)
    return _TOPIC_ID.sub(r"\1ID", _TIMES.sub(r"\1TIME", data))


def _walk(zk: KazooClient, path: str) -> Iterator[tuple[str, str]]:
    try:
        data, _ = zk.get(path)
        children = zk.get_children(path)
    except NoNodeError:
        return
    yield path, _sorted((data or b"").decode())
    for child in sorted(children):
        yield from _walk(zk, f"{path.rstrip('/')}/{child}")


def differences(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """A line for each path whose bytes differ, or that one of both lacks."""
    return [
        f"{path}: {first.get(path, 'absent')} | {second.get(path, 'absent')}"
        for path in sorted(first.keys() | second.keys())
        if first.get(path) != second.get(path)
    ]
