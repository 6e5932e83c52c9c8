"""Messages about the cluster state read from ZooKeeper: unreadable znodes, and names that do not exist."""

from __future__ import annotations

from collections.abc import Iterable

from controller.cli.common.output import fail, note
from controller.core import znode_paths
from controller.runtime.zookeeper.cluster_reader import ClusterState

#: Unreadable znodes that one command names.
_NAMED_MAX = 100


def note_problems(cluster_state: ClusterState) -> None:
    problems = sorted(cluster_state.problems.items())
    for path, problem in problems[:_NAMED_MAX]:
        note(f"pctl: unreadable znode {path}: {problem}")
    if len(problems) > _NAMED_MAX:
        note(f"pctl: {len(problems) - _NAMED_MAX} more znodes are unreadable")


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
