"""What is seen from outside, and how long the cluster takes to be whole again after faults are healed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from controller.client import admin
from controller.errors import ControllerError
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import ConnectionLossError, Session
from proto.security.grpc_channels import GrpcTls
from proto.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess
from tests.provers.chaos.nodes import Nodes
from tests.provers.chaos.plan import BROKERS, CONTROLLERS, ZOOKEEPERS

#: No cluster is waited for longer than this, seconds.
WAIT_S = 60.0
_LOOK_S, _CONNECT_S, _PAUSE_S = 3.0, 4.0, 0.1
SERVES, ENSEMBLE, ACTIVE, CANDIDATES, REGISTERED, LED, IN_SYNC = (
    "ZooKeeper answers",
    "all its servers serve",
    "a controller is active",
    "controllers are candidates",
    "brokers registered",
    "partitions led",
    "replicas in sync",
)


class Eye:
    """An operator's connection to ZooKeeper that outlives ZooKeeper's troubles."""

    def __init__(self, connect: str, access: ZooKeeperAccess = OPEN_ACCESS) -> None:
        self._connect, self._access = connect, access
        self._session: Session | None = None
        self._stack = AsyncExitStack()

    async def look(self) -> ClusterState | None:
        """The cluster now; None while ZooKeeper does not answer."""
        try:
            if self._session is None:
                entering = cluster_reader.connected(
                    self._connect, round(_CONNECT_S * 1000), create_chroot=False, access=self._access
                )
                self._session = await self._stack.enter_async_context(entering)
            async with asyncio.timeout(_LOOK_S):
                return await cluster_reader.look(self._session)
        except (ControllerError, ConnectionLossError, TimeoutError):
            await self.close()
            return None

    async def close(self) -> None:
        self._session = None
        with contextlib.suppress(ControllerError, ConnectionLossError):
            await self._stack.aclose()


@dataclass
class Recovery:
    """``reached``: after how many seconds each condition first held. ``took_s``: all at once, None: never; a server
    that is slow to join the ensemble again is waited for, and does not count. ``lacking``: what was not so yet when
    ``limit_s`` had passed."""

    limit_s: float
    reached: dict[str, float] = field(default_factory=dict)
    took_s: float | None = None
    lacking: list[str] = field(default_factory=list)

    @property
    def within(self) -> bool:
        return self.took_s is not None and self.took_s <= self.limit_s

    def __str__(self) -> str:
        steps = ", ".join(
            f"{what} {took:.1f}" for what, took in sorted(self.reached.items(), key=lambda i: i[1])
        )
        return f"{'never' if self.took_s is None else f'{self.took_s:.1f} s'} ({steps})"


def lacking(cluster_state: ClusterState, judged: set[str] | None = None) -> dict[str, list[str]]:
    """What keeps a cluster from being whole, by condition. ``judged``: the topics that count; None: all.

    Replicas of a move under way do not count, nor topics that are being deleted.
    """
    missing = [name for name in BROKERS if int(name.partition("-")[2]) not in cluster_state.brokers]
    candidates = {f"controller-{one.controller_id}" for one in cluster_state.controllers}
    found: dict[str, list[str]] = {
        REGISTERED: [f"{name} is not registered" for name in missing],
        CANDIDATES: [f"{name} is no candidate" for name in CONTROLLERS if name not in candidates],
    }
    unled = found[LED] = []
    out_of_sync = found[IN_SYNC] = []
    for one in cluster_state.partitions:
        if one.topic in cluster_state.deleting or (judged is not None and one.topic not in judged):
            continue
        name = f"{one.topic}-{one.partition}"
        if one.state is None or one.state.leader not in cluster_state.brokers:
            leader = "no state" if one.state is None else f"leader {one.state.leader}"
            unled.append(f"{name} is not led ({leader})")
            continue
        info = cluster_state.topics[one.topic]
        moving = {*info.adding.get(one.partition, ()), *info.removing.get(one.partition, ())}
        if out := set(one.replicas) - moving - set(one.state.isr):
            out_of_sync.append(f"{name}: {sorted(out)} not in sync with leader {one.state.leader}")
    return found


async def recover(nodes: Nodes, eye: Eye, limit_s: float) -> Recovery:
    """Watch until the cluster is whole or `WAIT_S` passed."""
    began = time.monotonic()
    recovery = Recovery(limit_s)
    judged: set[str] | None = None
    while True:
        cluster_state = await eye.look()
        wants = await _what_is_lacking(cluster_state, judged, nodes.tls)
        if cluster_state is not None and judged is None:
            judged = set(cluster_state.topics) - set(cluster_state.deleting)
        elapsed = time.monotonic() - began
        for condition, problems in wants.items():
            if not problems:
                recovery.reached.setdefault(condition, elapsed)
        problems = [problem for some in wants.values() for problem in some]
        if not problems and recovery.took_s is None:
            recovery.took_s = elapsed
        if recovery.took_s is None and (elapsed <= limit_s or not recovery.lacking):
            recovery.lacking = problems
        serving = set(await asyncio.to_thread(nodes.serving))
        if serving == set(ZOOKEEPERS):
            recovery.reached.setdefault(ENSEMBLE, time.monotonic() - began)
            if recovery.took_s is not None:
                return recovery
        if elapsed > WAIT_S:
            absent = sorted(set(ZOOKEEPERS) - serving)
            recovery.lacking = problems or [f"{name} does not serve" for name in absent]
            return recovery
        await asyncio.sleep(_PAUSE_S)


async def _what_is_lacking(
    cluster_state: ClusterState | None, judged: set[str] | None, tls: GrpcTls | None
) -> dict[str, list[str]]:
    """By condition."""
    if cluster_state is None:
        return {SERVES: ["ZooKeeper does not answer"]}
    active = await is_active(cluster_state, tls)
    return {
        SERVES: [],
        ACTIVE: []
        if active
        else [f"controller {cluster_state.controller_id} does not answer as the active one"],
        **lacking(cluster_state, judged),
    }


async def is_active(cluster_state: ClusterState, tls: GrpcTls | None) -> bool:
    if not cluster_state.controller_endpoint:
        return False
    answer = await admin.describe_cluster(cluster_state.controller_endpoint, 1.0, tls)
    return not isinstance(answer, str) and answer.error_code == 0
