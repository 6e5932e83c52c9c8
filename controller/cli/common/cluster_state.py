"""Messages about the cluster state read from ZooKeeper: unreadable znodes, and names that do not exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controller.cli.common.output import fail, note
from controller.core import znode_paths
from controller.core.model import Maintenance
from controller.core.names import counted
from controller.planning.restrictions import attribution_text, freeze_text
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session

#: Znodes below the chroot that are looked at for a cluster.
_LOOKED_AT_MAX = 100

#: Unreadable znodes that one command names.
_NAMED_MAX = 100


def note_problems(cluster_state: ClusterState) -> None:
    problems = sorted(cluster_state.problems.items())
    for path, problem in problems[:_NAMED_MAX]:
        note(f"pctl: unreadable znode {path}: {problem}")
    if len(problems) > _NAMED_MAX:
        note(f"pctl: {len(problems) - _NAMED_MAX} more znodes are unreadable")


async def fail_without_cluster(zookeeper: str, session: Session, cluster_state: ClusterState) -> None:
    """End the program where there is no cluster, and name those that are below. ``zookeeper``: the option's value."""
    if not cluster_state.empty:
        return
    servers, _, chroot = zookeeper.partition("/")
    names = sorted(await session.children("/"))[:_LOOKED_AT_MAX]
    paths = [f"/{name}{znode_paths.CONTROLLER_EPOCH}" for name in names]
    found = [n for n, path in zip(names, paths, strict=True) if await session.exists(path) is not None]
    base = f"/{chroot}".rstrip("/")
    there = f"; clusters are at {', '.join(f'{base}/{name}' for name in found)}" if found else ""
    example = f": pctl --zookeeper {servers}{base}/{found[0]} ..." if found else ""
    fail(f"there is no cluster at {base or '/'} of ZooKeeper at {servers}{there}{example}")


def note_left_out(count: int, noun: str) -> None:
    if count:
        note(
            f"{counted(count, noun)} of internal topics {'is' if count == 1 else 'are'} left out (--internal)"
        )


def fail_without_topics(cluster_state: ClusterState, names: Iterable[str]) -> None:
    """End the program where a topic does not exist; an unreadable topic exists."""
    for name in names:
        if name not in cluster_state.topics and znode_paths.topic_path(name) not in cluster_state.problems:
            fail(f"no topic {name!r}")


def fail_without_readable_topic(cluster_state: ClusterState, name: str) -> None:
    """End the program where a topic does not exist or is unreadable."""
    if name not in cluster_state.topics:
        path = znode_paths.topic_path(name)
        problem = cluster_state.problems.get(path)
        fail(f"no topic {name!r}" if problem is None else f"{path}: {problem}")


def fail_without_brokers(cluster_state: ClusterState, ids: Iterable[int], option: str = "") -> None:
    """End the program where a broker is not registered. ``option``: prefix of the message."""
    for id_ in ids:
        if id_ not in cluster_state.brokers:
            fail(f"{option}broker {id_} is not registered; registered are {sorted(cluster_state.brokers)}")


def brokers_text(ids: Iterable[int]) -> str:
    """``broker 1``, ``brokers 1, 2``."""
    texts = [str(id_) for id_ in ids]
    return f"broker{'' if len(texts) == 1 else 's'} {', '.join(texts)}"


def maintenance_fields(state: Maintenance) -> dict[str, Any]:
    """The state as fields of ``pctl cluster``."""
    entered = attribution_text(state.entered)
    return {
        "paused": attribution_text(state.paused),
        "maintenance": f"{entered} (automatic)" if state.automatic else entered,
        "frozen": freeze_text(state.freeze),
        "drained": sorted(state.drained),
    }
