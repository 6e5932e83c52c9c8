"""The product with small steps: what it does to thousands at once it then does to one or two, with others in between.

A run has few partitions: batches that take them all would hide what happens between two batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from unittest import mock

from broker_stub.group import replay
from broker_stub.replication import isr, manager
from controller.core import (
    commits,
    creation,
    delete_topics,
    deletion,
    elections,
    erasure,
    failover,
    machine,
    notifications,
    reassign_requests,
    topic_requests,
    topic_writes,
)
from controller.runtime import brokers, trees, zookeeper

_BY_STEP: tuple[tuple[ModuleType, str], ...] = (
    (commits, "BATCH_WRITES"),
    (commits, "EXAMINED_MAX"),
    (commits, "REFRESH_CHUNK"),
    (creation, "WINDOW_BATCHES"),
    (creation, "BATCH_CREATES"),
    (delete_topics, "BATCH_WRITES"),
    (deletion, "BATCH_WRITES"),
    (erasure, "BATCH_WRITES"),
    (erasure, "WINDOW_BATCHES"),
    (notifications, "BATCH_WRITES"),
    (reassign_requests, "EXAMINED_MAX"),
    (elections, "EXAMINED_MAX"),
    (failover, "READ_STATES_CHUNK"),
    (machine, "GATHERED_MAX"),
    (topic_requests, "READ_TOPICS"),
    (topic_writes, "BATCH_TOPICS"),
    (brokers, "TAKE_PARTITIONS"),
    (trees, "_TOGETHER"),
    (zookeeper, "BULK_PATHS"),
    (zookeeper, "BULK_WINDOW"),
    (manager, "_SLICE_PARTITIONS"),
    (isr, "BATCH_PROPOSALS"),
    (replay, "RECORDS_PER_TURN"),
)


@contextmanager
def steps_of(size: int) -> Iterator[None]:
    """``size`` 0: those of the product."""
    with ExitStack() as stack:
        for module, name in _BY_STEP if size else ():
            assert isinstance(getattr(module, name), int)
            stack.enter_context(mock.patch.object(module, name, size))
        yield
