"""Which partitions' groups are kept here: loaded on election, unloaded on resignation (reference, section 10.3).

One background task runs loads and unloads in the order they were asked for. So between an election and the
start of its load clients get NOT_COORDINATOR, and between a resignation and its unload the partition is still
served; the log refuses what must not be written.
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
    """A group, its offsets, and the partition of ``__consumer_offsets`` both are kept in."""

    __slots__ = ("group", "offsets", "partition")

    def __init__(self, partition: int, group: Group, offsets: GroupOffsets) -> None:
        self.partition, self.group, self.offsets = partition, group, offsets


Groups = dict[str, CachedGroup]


class _Election:
    def __init__(self, partition: int, leader_epoch: int) -> None:
        self.partition, self.leader_epoch = partition, leader_epoch
        #: Partitions of other topics that were deleted since, whose offsets may be in the log.
        self.forgotten: set[Key] = set()


class _Resignation:
    def __init__(self, partition: int, leader_epoch: int | None) -> None:
        self.partition, self.leader_epoch = partition, leader_epoch


class Migration:
    """Owned and loading partitions. On one event loop; only `run` waits.

    ``on_loaded(partition, groups, forgotten)`` is called once a partition is owned, ``on_unloaded(groups)``
    once it no longer is; ``on_bug`` gets what is raised unexpectedly.
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
        #: Groups by id, by partition.
        self.owned: dict[int, Groups] = {}
        self.loading: set[int] = set()
        #: What could not be read in a partition's last load, where there was anything.
        self.load_problems: dict[int, dict[str, Any]] = {}
        #: Highest leader epoch acted on, by partition.
        self._epochs: dict[int, int] = {}
        #: The first is being run.
        self._tasks: deque[_Election | _Resignation] = deque()
        self._wake = asyncio.Event()

    def on_election(self, partition: int, leader_epoch: int) -> None:
        """This broker became the partition's leader."""
        self._tasks.append(_Election(partition, leader_epoch))
        self._wake.set()

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        """This broker does not lead the partition, as of the epoch; None: whatever the epoch."""
        self._tasks.append(_Resignation(partition, leader_epoch))
        self._wake.set()

    def forget_when_loaded(self, keys: Collection[Key]) -> None:
        """Partitions were deleted: loads that are not done leave their offsets out."""
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
                except Exception as error:  # noqa: BLE001  (reported; the next partition is not to suffer)
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
        """Whether the epoch is not older than what was acted on; it then is what was acted on last.

        Without an epoch the replica is gone: a topic created again begins at epoch 0, which must count.
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
        self.load_problems.pop(task.partition, None)
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
