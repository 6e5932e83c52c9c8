"""One machine drives a log on disk, reopened now and then, and a log in memory: every answer is the same."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_stub.log import batches
from broker_stub.log.errors import LogError
from broker_stub.log.files import FilePool
from broker_stub.log.interface import Log, LogConfig
from broker_stub.log.log import PartitionLog
from tests.support.broker.memory_log import MemoryLog
from tests.support.broker.power_cut import MEMORY_DISK

OFFSETS = st.integers(0, 120)
TIMESTAMPS = st.integers(0, 60)
RECORDS = st.lists(
    st.tuples(st.none() | st.just(b"k"), st.sampled_from([b"", b"v" * 30, b"v" * 900])),
    min_size=1,
    max_size=4,
)
BATCHES = st.lists(st.tuples(RECORDS, TIMESTAMPS), min_size=1, max_size=4)


def outcome(log: Log, method: str, *arguments: object) -> object:
    """What a call answers, or the kind and words of what it raises."""
    try:
        return getattr(log, method)(*arguments)
    except LogError as error:
        return type(error), str(error)


class BothLogs(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="log-contract-", dir=MEMORY_DISK))
        self.files = FilePool(3)
        self.memory = MemoryLog()

    @initialize(
        segment_bytes=st.sampled_from([1, 500, 3000, 10**6]),
        message_max_bytes=st.sampled_from([1500, 10**6]),
        flush_interval=st.sampled_from([1, 7, 10**9]),
    )
    def choose(self, segment_bytes: int, message_max_bytes: int, flush_interval: int) -> None:
        self.config = LogConfig(segment_bytes, message_max_bytes, flush_interval)
        self.memory = MemoryLog(self.config)
        self.disk = PartitionLog.open(self.folder, self.config, 0, self.files)

    def both(self, method: str, *arguments: object) -> None:
        assert outcome(self.disk, method, *arguments) == outcome(self.memory, method, *arguments)

    @rule(parts=BATCHES, epoch_step=st.integers(-1, 2))
    def append_as_leader(
        self, parts: list[tuple[list[tuple[bytes | None, bytes]], int]], epoch_step: int
    ) -> None:
        records = b"".join(batches.encode(content, timestamp) for content, timestamp in parts)
        self.both("append_as_leader", records, (self.memory.latest_epoch or 0) + epoch_step)

    @rule(parts=BATCHES, epoch_step=st.integers(-1, 2), shift=st.sampled_from([0, 0, 0, 0, -3, 2]))
    def append_as_follower(
        self, parts: list[tuple[list[tuple[bytes | None, bytes]], int]], epoch_step: int, shift: int
    ) -> None:
        offset = max(self.memory.log_end_offset + shift, 0)
        epoch = max((self.memory.latest_epoch or 0) + epoch_step, 0)
        encoded = []
        for content, timestamp in parts:
            encoded.append(batches.encode(content, timestamp, offset, epoch))
            offset += len(content)
        self.both("append_as_follower", b"".join(encoded))

    @rule(back=st.integers(1, 20))
    def receive_again(self, back: int) -> None:
        start = max(self.memory.log_end_offset - back, self.memory.log_start_offset)
        self.both("append_as_follower", self.memory.read(start, 10**6, 10**6))

    @rule(offset=OFFSETS, max_bytes=st.integers(0, 8000), upto=OFFSETS)
    def read(self, offset: int, max_bytes: int, upto: int) -> None:
        self.both("read", offset, max_bytes, upto)

    @rule(timestamp=TIMESTAMPS, upto=OFFSETS)
    def search_timestamp(self, timestamp: int, upto: int) -> None:
        self.both("offset_for_timestamp", timestamp, upto)

    @rule(back=st.integers(-2, 12))
    def truncate(self, back: int) -> None:
        self.both("truncate_to", max(self.memory.log_end_offset - back, 0))

    @rule(offset=st.integers(0, 30))
    @precondition(lambda self: self.memory.log_end_offset > 20)
    def start_again(self, offset: int) -> None:
        self.both("truncate_fully_and_start_at", offset)

    @rule(step=st.integers(-1, 3))
    def assign_epoch_start(self, step: int) -> None:
        self.both("assign_epoch_start", (self.memory.latest_epoch or 0) + step)

    @rule(epoch=st.integers(-1, 30), offset=OFFSETS)
    def ask_epochs(self, epoch: int, offset: int) -> None:
        self.both("end_offset_for_epoch", epoch)
        self.both("epoch_for_offset", offset)

    @rule()
    def flush(self) -> None:
        self.both("flush")

    @rule(clean=st.booleans(), recovery_point=st.sampled_from(["own", "none"]))
    def reopen(self, clean: bool, recovery_point: str) -> None:
        """An epoch without records is forgotten, everything else is there: nothing was in memory only."""
        point = self.disk.recovery_point
        if clean:
            self.disk.close()
            point = self.disk.recovery_point
        if recovery_point == "none":
            point = 0
        self.disk = PartitionLog.open(self.folder, self.config, point, self.files)
        assert self.disk.problems == []
        self.memory._epochs.truncate_from_end(self.memory.log_end_offset)

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "disk"):
            return
        for name in ("log_start_offset", "log_end_offset", "latest_epoch", "size_bytes"):
            assert getattr(self.disk, name) == getattr(self.memory, name), name
        assert self.disk._epochs.entries == self.memory._epochs.entries
        assert len(self.files) <= 3
        start = self.memory.log_start_offset
        assert self.disk.read(start, 10**9, 10**9) == self.memory.read(start, 10**9, 10**9)

    def teardown(self) -> None:
        self.files.close()
        shutil.rmtree(self.folder)


BothLogs.TestCase.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=40, deadline=None
)
TestBothLogs = BothLogs.TestCase
