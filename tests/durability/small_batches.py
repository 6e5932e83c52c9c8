"""``partition-controller`` with batches so small that deletions and moves of a few partitions take many commits."""

from __future__ import annotations

from types import ModuleType

from controller.cli.main import main
from controller.core import commits, delete_topics, deletion, erasure, topic_writes

#: One state, one topic, one marker, two deleted znodes a commit; set where each is looked up.
SMALL: tuple[tuple[ModuleType, str, int], ...] = (
    (commits, "BATCH_WRITES", 1),
    (deletion, "BATCH_WRITES", 1),
    (delete_topics, "BATCH_WRITES", 1),
    (erasure, "BATCH_WRITES", 2),
    (topic_writes, "BATCH_TOPICS", 1),
)


def shrink() -> None:
    for module, name, size in SMALL:
        assert hasattr(module, name), f"{module.__name__} has no {name} any more"
        setattr(module, name, size)


if __name__ == "__main__":
    shrink()
    main()
