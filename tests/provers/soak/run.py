"""A soak of a whole cluster: chaos that goes on, operators, records, and everything read every ten seconds."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from controller.workload import history
from tests.provers.chaos.network import Relays
from tests.provers.chaos.nodes import Nodes
from tests.provers.chaos.plan import ZOOKEEPERS, Episode
from tests.provers.chaos.recovery import Eye
from tests.provers.chaos.run import Outcome, Run
from tests.provers.soak import report
from tests.provers.soak.judge import Quantity
from tests.provers.soak.plan import draw
from tests.provers.soak.sampling import Life, Sampler, Watched

#: Records a second: few, for each is kept until the end to be checked.
RATE = 50.0
EVERY_S = 10.0
#: What writers see, which is of no one process.
_WRITES = Life("acknowledged writes", 0)


@dataclass
class Soak:
    """``over`` says whether to end; a fault that is under way is healed first."""

    seed: int
    directory: Path
    over: Callable[[], bool]
    sampler: Sampler = field(init=False)
    acknowledged: int = 0

    async def play(self) -> Outcome:
        """Raises as ``Run.play``."""
        self.nodes = Nodes(self.directory, Relays())
        self.run = Run(self.nodes, self._plan(), self.seed, RATE, (self._sample,))
        self._controllers: dict[int, str] = {}
        self.sampler = Sampler(self._watched)
        return await self.run.play()

    def _plan(self) -> Iterator[Episode]:
        for episode in draw(self.seed):
            if self.over():
                return
            yield episode

    def _watched(self) -> Iterator[Watched]:
        playground = self.nodes.playground
        for name, member in playground.members.items():
            if (process := member.process) is not None:
                logs = (member.log_path, playground.state_logs / name)
                number = name.removeprefix("controller-")
                http = self._controllers.get(int(number), "") if number.isdigit() else ""
                yield Watched(name, process.pid, logs, http)
        for name, server in zip(ZOOKEEPERS, self.nodes.ensemble.servers, strict=True):
            if (process := server.process) is not None:
                yield Watched(name, process.pid, (server.data_dir / "zookeeper.log",), java=True)

    async def _sample(self, stop: asyncio.Event) -> None:
        eye = Eye(self.nodes.playground.connect)
        tail = history.Tail(self.nodes.playground.directory / "workload-history.jsonl")
        begun: dict[tuple[int, int], int] = {}
        while not stop.is_set():
            began_s = time.monotonic()
            if (seen := await eye.look()) is not None:
                self._controllers = {one.controller_id: one.http for one in seen.controllers}
            await asyncio.to_thread(self.sampler.sample)
            self._note_writes(await asyncio.to_thread(tail.new_lines), begun)
            played = len(self.run.outcome.played)
            self.run.say(
                f"{played} faults, {len(self.run.operators.asked)} operations, {self.acknowledged:,} records"
                f" acknowledged; {report.progress(self.sampler)}",
                "cyan",
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, began_s + EVERY_S - time.monotonic())):
                    await stop.wait()
        await eye.close()

    def _note_writes(self, lines: list[history.Line], begun: dict[tuple[int, int], int]) -> None:
        took_ms = []
        for line in lines:
            match line:
                case history.Begun():
                    begun[line.writer, line.sequence] = line.at_us
                case history.Ended():
                    began_us = begun.pop((line.writer, line.sequence))
                    if line.offset is not None:
                        took_ms.append((line.at_us - began_us) / 1000)
        self.acknowledged += len(took_ms)
        if took_ms:
            self.sampler.add(_WRITES, Quantity.LATENCY, statistics.median(took_ms))
