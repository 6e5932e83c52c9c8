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
from controller.core import commits, context, failover, handlers, machine
from controller.core.brokers import changes as broker_changes
from controller.core.elections import elect_leaders
from controller.core.outbox import whole_state
from controller.core.partitions import initial_state
from controller.core.reassignment import alter_reassignments, topic_znode
from controller.core.topics import create_topics, delete_topics, deletion, znode_deletion
from controller.runtime.push import sender
from controller.runtime.zookeeper import session, topic_trees

_BY_STEP: tuple[tuple[ModuleType, str], ...] = (
    (commits, "BATCH_WRITES"),
    (commits, "EXAMINED_MAX"),
    (commits, "REFRESH_CHUNK"),
    (initial_state, "WINDOW_BATCHES"),
    (initial_state, "BATCH_CREATES"),
    (delete_topics, "BATCH_WRITES"),
    (deletion, "BATCH_WRITES"),
    (deletion, "BEGUN_MAX"),
    (znode_deletion, "BATCH_WRITES"),
    (znode_deletion, "WINDOW_BATCHES"),
    (alter_reassignments, "EXAMINED_MAX"),
    (elect_leaders, "EXAMINED_MAX"),
    (failover, "READ_STATES_CHUNK"),
    (machine, "GATHERED_MAX"),
    (create_topics, "READ_TOPICS"),
    (whole_state, "LISTED_MAX"),
    (topic_znode, "BATCH_TOPICS"),
    (sender, "TAKE_PARTITIONS"),
    (topic_trees, "_TOGETHER"),
    (session, "BULK_PATHS"),
    (session, "BULK_WINDOW"),
    (manager, "_PARTITIONS_PER_YIELD"),
    (isr, "BATCH_PROPOSALS"),
    (replay, "RECORDS_PER_TURN"),
)


#: Of long events (docs/adr/0022).
_PARTS: tuple[tuple[ModuleType, str], ...] = (
    (context, "PASSED_MAX"),
    (context, "PART_MAX"),
    (context, "ELECTED_PART_MAX"),
    (broker_changes, "SLICE_MAX"),
    (handlers, "SMALL_MAX"),
    (machine, "PART_MAX"),
)


@contextmanager
def parts_of(size: int) -> Iterator[None]:
    with ExitStack() as stack:
        for module, name in _PARTS:
            stack.enter_context(mock.patch.object(module, name, size))
        yield


@contextmanager
def steps_of(size: int) -> Iterator[None]:
    """``size`` 0: those of the product."""
    with ExitStack() as stack:
        for module, name in (*_BY_STEP, *_PARTS) if size else ():
            assert isinstance(getattr(module, name), int)
            stack.enter_context(mock.patch.object(module, name, size))
        yield
