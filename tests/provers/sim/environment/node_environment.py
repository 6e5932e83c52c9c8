"""What simulated brokers and controllers live in."""

from __future__ import annotations

from random import Random
from typing import Protocol

from tests.provers.sim.environment.loop import VirtualTimeLoop
from tests.provers.sim.zookeeper.network import Network


class NodeEnvironment(Protocol):
    @property
    def loop(self) -> VirtualTimeLoop: ...

    @property
    def zk(self) -> Network: ...

    @property
    def rng(self) -> Random: ...
