"""Kafka's own controller, as far as ours meet it: it elects itself whenever ``/controller`` is absent.

It decides nothing and tells brokers nothing: it is who ours claim over.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from random import Random

from tests.provers.sim.zookeeper.ensemble import Ensemble
from tests.provers.sim.zookeeper.messages import Create, Multi, Operation, Set, Value
from tests.provers.sim.zookeeper.tree import Transaction

BROKER_ID = 99


class KafkaController:
    """``wins``: how often it was elected."""

    def __init__(self, ensemble: Ensemble, ask: Callable[[Operation], Value], rng: Random) -> None:
        self._ensemble, self._ask, self._rng = ensemble, ask, rng
        self.wins = 0
        self._due = False

    def agreed(self, _: Transaction) -> None:
        """Look a moment later, as one whom a watch tells of it."""
        if not self._due and self._absent():
            self._due = True
            asyncio.get_running_loop().call_later(self._rng.uniform(0.001, 0.05), self._elect)

    def _absent(self) -> bool:
        tree = self._ensemble.servers[self._ensemble.leader or 0].tree
        return tree.node("/controller_epoch") is not None and tree.node("/controller") is None

    def _elect(self) -> None:
        self._due = False
        if self._ensemble.leader is None or not self._absent():
            return
        node = self._ensemble.servers[self._ensemble.leader].tree.node("/controller_epoch")
        assert node is not None
        value = {"version": 2, "brokerid": BROKER_ID, "timestamp": "1", "kraftControllerEpoch": -1}
        epoch = str(int(node.data or b"0") + 1).encode()
        # Persistent, as its session ends at once: it holds on until ours claim.
        claim = Multi(
            (Create("/controller", json.dumps(value).encode()), Set("/controller_epoch", epoch, node.version))
        )
        self.wins += self._ask(claim) is not None
