"""All znodes of topics, children first: the znodes to delete when the topics are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from controller.core.znode_paths import (
    partition_path,
    partitions_path,
    state_path,
    topic_config_path,
    topic_path,
)
from controller.runtime.zookeeper import jute
from controller.runtime.zookeeper.session import NoNodeError, Session

#: Requests in flight.
_TOGETHER = 500


async def topic_trees(
    session: Session, names: Sequence[str], expected: Mapping[str, Sequence[int]], *, thorough: bool
) -> list[list[str]]:
    """The existing paths of each topic, parallel to ``names``; ``/brokers/topics/T`` and ``/config/topics/T`` last.

    ``thorough`` lists the children of every znode; otherwise a partition is taken to have at most a state below it.
    ``expected``: partition numbers of topics whose znodes are known to exist; only their configuration is read.
    """
    found: list[list[str]] = []
    for start in range(0, len(names), _TOGETHER):
        group = names[start : start + _TOGETHER]
        unknown = [name for name in group if name not in expected]
        if thorough:
            trees = [await _below(session, topic_path(name)) for name in unknown]
        else:
            trees = await asyncio.gather(*(_usual(session, name) for name in unknown))
        read = iter(trees)
        found.extend(_expected(name, expected[name]) if name in expected else next(read) for name in group)
    configs = [topic_config_path(name) for name in names]
    for paths, config, node in zip(found, configs, await session.bulk_get(configs), strict=True):
        if node != jute.NO_NODE:
            paths.append(config)
    return found


def _expected(topic: str, numbers: Sequence[int]) -> list[str]:
    nodes = [partition_path(topic, number) for number in numbers]
    return [
        *(state_path(topic, number) for number in numbers),
        *nodes,
        partitions_path(topic),
        topic_path(topic),
    ]


async def _usual(session: Session, topic: str) -> list[str]:
    path, partitions = topic_path(topic), partitions_path(topic)
    children = await _children(session, path)
    if children is None:
        return []
    found: list[str] = []
    for child in children:
        below = f"{path}/{child}"
        if below != partitions:
            found.extend(await _below(session, below))
            continue
        numbers = await _children(session, partitions) or ()
        states = [state_path(topic, number) for number in numbers]
        stats = await session.bulk_get(states)
        found.extend(state for state, node in zip(states, stats, strict=True) if not isinstance(node, int))
        found.extend([*(partition_path(topic, number) for number in numbers), partitions])
    return [*found, path]


async def _below(session: Session, path: str) -> list[str]:
    """All paths below a znode, and the znode itself last; empty if it is absent."""
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
    """None: the znode is absent."""
    try:
        return await session.children(path)
    except NoNodeError:
        return None
