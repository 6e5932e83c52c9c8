"""Loads the groups of a partition on election and unloads them on resignation (reference, section 10.3).

One background task runs loads and unloads in the order of their notifications. So clients get NOT_COORDINATOR
between an election and the start of its load. Between a resignation and its unload the partition is still served,
but the log refuses appends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import structlog

from broker_stub.control.requests import Key
from broker_stub.group.offsets import GroupOffsets
from broker_stub.group.ports import OffsetsLog
from broker_stub.group.replay import RECORDS_PER_TURN, Replay, replay_log
from broker_stub.group.state import Group

_log = structlog.get_logger("broker_stub.group")


class CachedGroup:
    """A group, its offsets, and the partition of ``__consumer_offsets`` that stores both."""

    __slots__ = ("group", "offsets", "partition")

    def __init__(self, partition: int, group: Group, offsets: GroupOffsets) -> None:
        self.partition, self.group, self.offsets = partition, group, offsets


Groups = dict[str, CachedGroup]


class _Election:
    def __init__(self, partition: int, leader_epoch: int) -> None:
        self.partition, self.leader_epoch = partition, leader_epoch
        #: Partitions deleted since the election; the log may still hold their offsets.
        self.forgotten: set[Key] = set()


class _Resignation:
    def __init__(self, partition: int, leader_epoch: int | None) -> None:
        self.partition, self.leader_epoch = partition, leader_epoch


class Migration:
    """The owned and the loading partitions. Used on one event loop; only `run` waits.

    ``on_loaded(partition, groups, forgotten)`` is called when a partition becomes owned, ``on_unloaded(groups)``
    when it no longer is. ``forgotten``: partitions deleted during the load. ``on_bug`` receives unexpected exceptions.
    """

    def __init__(
        self,
        log: OffsetsLog,
        initial_rebalance_delay_ms: int,
        on_loaded: Callable[[int, Groups, Collection[Key]], None],
        on_unloaded: Callable[[Groups], None],
        on_bug: Callable[[BaseException], None],
    ) -> None:
        self._offsets_log, self._initial_rebalance_delay_ms = log, initial_rebalance_delay_ms
        self._on_loaded, self._on_unloaded, self._on_bug = on_loaded, on_unloaded, on_bug
        #: By partition: its groups by id.
        self.owned: dict[int, Groups] = {}
        self.loading: set[int] = set()
        #: Problems of the loads of owned partitions; absent: none.
        self.load_problems: dict[int, dict[str, Any]] = {}
        #: Highest leader epoch handled, by partition.
        self._epochs: dict[int, int] = {}
        #: The first one is running.
        self._tasks: deque[_Election | _Resignation] = deque()
        self._wake = asyncio.Event()

    def on_election(self, partition: int, leader_epoch: int) -> None:
        """This broker became the partition's leader."""
        self._tasks.append(_Election(partition, leader_epoch))
        self._wake.set()

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        """This broker does not lead the partition since this epoch; None: the replica is gone."""
        self._tasks.append(_Resignation(partition, leader_epoch))
        self._wake.set()

    def forget_when_loaded(self, keys: Collection[Key]) -> None:
        """Partitions were deleted: unfinished loads omit their offsets."""
        for task in self._tasks:
            if isinstance(task, _Election):
                task.forgotten.update(keys)

    async def run(self) -> None:
        """Run loads and unloads, until cancelled."""
        while True:
            await self._wake.wait()
            while self._tasks:
                try:
                    await self._run_task(self._tasks[0])
                except Exception as error:  # noqa: BLE001  (reported; the next task still runs)
                    self._on_bug(error)
                self._tasks.popleft()
            self._wake.clear()

    async def _run_task(self, task: _Election | _Resignation) -> None:
        if not self._admit(task.partition, task.leader_epoch):
            _log.info(
                "offsets_migration_stale",
                partition=task.partition,
                leader_epoch=task.leader_epoch,
                known_epoch=self._epochs[task.partition],
            )
        elif isinstance(task, _Resignation):
            self._unload(task.partition)
        elif task.partition not in self.owned:
            await self._load(task)

    def _admit(self, partition: int, leader_epoch: int | None) -> bool:
        """Whether the epoch is not older than the last one handled. If so, it becomes the last one handled.

        None: the replica is gone. The last epoch is forgotten, because a recreated topic begins at epoch 0.
        """
        if leader_epoch is None:
            self._epochs.pop(partition, None)
            return True
        if leader_epoch < self._epochs.get(partition, leader_epoch):
            return False
        self._epochs[partition] = leader_epoch
        return True

    async def _load(self, task: _Election) -> None:
        self.loading.add(task.partition)
        groups: Groups = {}
        try:
            replay = await replay_log(self._offsets_log, task.partition)
            if replay.problem_count:
                self.load_problems[task.partition] = replay.describe()
            await self._restore(task.partition, replay, groups)
            _log.info("offsets_loaded", partition=task.partition, records=replay.records, groups=len(groups))
        except Exception as error:  # noqa: BLE001  (reported; what was loaded so far is served)
            self._on_bug(error)
        finally:
            self.loading.discard(task.partition)
            self.owned[task.partition] = groups
        self._on_loaded(task.partition, groups, task.forgotten)

    async def _restore(self, partition: int, replay: Replay, groups: Groups) -> None:
        for number, group_id in enumerate(replay.group_ids(), start=1):
            value = replay.groups.get(group_id)
            groups[group_id] = CachedGroup(
                partition,
                Group.restore(group_id, value, self._initial_rebalance_delay_ms)
                if value is not None
                else Group(group_id, self._initial_rebalance_delay_ms),
                GroupOffsets(replay.offsets.get(group_id)),
            )
            if number % RECORDS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _unload(self, partition: int) -> None:
        self.load_problems.pop(partition, None)
        groups = self.owned.pop(partition, None)
        if groups is not None:
            _log.info("offsets_unloaded", partition=partition, groups=len(groups))
            self._on_unloaded(groups)
