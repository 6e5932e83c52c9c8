"""A process killed while it appends: everything it said it had appended is there, whole and in order."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker_stub.log import batches
from broker_stub.log.interface import LogConfig
from broker_stub.log.log import PartitionLog
from tests.support.paths import ROOT

#: Appends numbered records of varying size for ever, and says each offset once it is appended.
WRITER = """
import itertools, os, sys
from pathlib import Path
from broker_stub.log import batches
from broker_stub.log.interface import LogConfig
from broker_stub.log.log import PartitionLog

log = PartitionLog.open(Path(sys.argv[1]), LogConfig(segment_bytes=200_000), int(sys.argv[2]))
print("problems", len(log.problems), flush=True)
epoch = (log.latest_epoch or 0) + 1
for number in itertools.count(log.log_end_offset):
    value = b"%d " % number + bytes((number * 7919) % 60_000)
    first, _ = log.append_as_leader(batches.encode([(None, value)], number), epoch)
    os.write(1, b"%d\\n" % first)
    if number % 10 == 0:
        log.flush()
        os.write(1, b"flushed %d\\n" % log.recovery_point)
"""


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path) -> None:
    acknowledged, flushed = -1, 0
    for run in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(flushed)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.02 + 0.03 * run)
        writer.send_signal(signal.SIGKILL)
        lines = writer.stdout.read().split(b"\n")[:-1]
        writer.stdout.close()
        assert writer.wait() == -signal.SIGKILL
        for line in lines:
            if line.startswith(b"flushed "):
                flushed = int(line.split()[1])
            else:
                assert int(line) > acknowledged
                acknowledged = int(line)
        log = PartitionLog.open(tmp_path, LogConfig(segment_bytes=200_000), flushed)
        assert acknowledged < log.log_end_offset <= acknowledged + 2
        records = list(batches.decode(log.read(0, 10**10, 10**10)))
        assert [int((record.value or b"").split()[0]) for record in records] == list(
            range(log.log_end_offset)
        )
        epochs = [record.leader_epoch for record in records]
        assert epochs == sorted(epochs)
        assert epochs[-1] <= run + 1
        acknowledged = log.log_end_offset - 1
        log.close(flush=False)
    assert acknowledged > 50
