"""``partition-controller`` with batches so small that deletions and moves of a few partitions take many commits."""

from __future__ import annotations

from types import ModuleType

from controller.cli.main import main
from controller.core import commits
from controller.core.reassignment import topic_znode
from controller.core.topics import delete_topics, deletion, znode_deletion

#: One state, one topic, one marker, two deleted znodes a commit; set where each is looked up.
SMALL: tuple[tuple[ModuleType, str, int], ...] = (
    (commits, "BATCH_WRITES", 1),
    (deletion, "BATCH_WRITES", 1),
    (delete_topics, "BATCH_WRITES", 1),
    (znode_deletion, "BATCH_WRITES", 2),
    (topic_znode, "BATCH_TOPICS", 1),
)


def shrink() -> None:
    for module, name, size in SMALL:
        assert hasattr(module, name), f"{module.__name__} has no {name} any more"
        setattr(module, name, size)


if __name__ == "__main__":
    shrink()
    main()
