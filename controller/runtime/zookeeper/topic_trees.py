"""All znodes of topics, children first: what has to be deleted for them to be gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.session import NoNodeError, Session

#: Requests in flight.
_TOGETHER = 500


async def topic_trees(
    session: Session, names: Sequence[str], expected: Mapping[str, Sequence[int]], *, thorough: bool
) -> list[list[str]]:
    """By topic its paths, ``/brokers/topics/T`` and ``/config/topics/T`` last; without those that are absent.
    ``thorough`` asks every node for children; else a partition has a state, or nothing, below it. Of topics in
    ``expected`` only the configuration is looked for."""
    found: list[list[str]] = []
    for start in range(0, len(names), _TOGETHER):
        group = names[start : start + _TOGETHER]
        unsure = [codecs.topic_path(name) for name in group if name not in expected]
        if thorough:
            looked = [await _below(session, path) for path in unsure]
        else:
            looked = await asyncio.gather(*(_usual(session, path) for path in unsure))
        seen = iter(looked)
        found.extend(_expected(name, expected[name]) if name in expected else next(seen) for name in group)
    configs = [f"{codecs.TOPIC_CONFIGS}/{name}" for name in names]
    for paths, config, node in zip(found, configs, await session.bulk_get(configs), strict=True):
        if node != jute.NO_NODE:
            paths.append(config)
    return found


def _expected(topic: str, numbers: Sequence[int]) -> list[str]:
    path = codecs.topic_path(topic)
    partitions = f"{path}/partitions"
    nodes = [f"{partitions}/{number}" for number in numbers]
    return [*(f"{node}/state" for node in nodes), *nodes, partitions, path]


async def _usual(session: Session, topic: str) -> list[str]:
    children = await _children(session, topic)
    if children is None:
        return []
    found: list[str] = []
    for child in children:
        if child != "partitions":
            found.extend(await _below(session, f"{topic}/{child}"))
            continue
        partitions = f"{topic}/partitions"
        nodes = [f"{partitions}/{number}" for number in await _children(session, partitions) or ()]
        states = [f"{node}/state" for node in nodes]
        stats = await session.bulk_get(states)
        found.extend(path for path, node in zip(states, stats, strict=True) if not isinstance(node, int))
        found.extend([*nodes, partitions])
    return [*found, topic]


async def _below(session: Session, path: str) -> list[str]:
    """Everything below a node, and the node; empty if it is absent."""
    children = await _children(session, path)
    if children is None:
        return []
    found: list[str] = []
    for start in range(0, len(children), _TOGETHER):
        group = children[start : start + _TOGETHER]
        for paths in await asyncio.gather(*(_below(session, f"{path}/{child}") for child in group)):
            found.extend(paths)
    return [*found, path]


async def _children(session: Session, path: str) -> list[str] | None:
    """None where the node is absent."""
    try:
        return await session.children(path)
    except NoNodeError:
        return None
