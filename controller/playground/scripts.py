"""The playground's scripts of failures, and their steps.

Nothing is simulated: failures are signals, and times are measured by reading ZooKeeper.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.core import znode_paths
from controller.playground.cluster import Playground, healthy
from controller.playground.verdict import WORKLOAD, WorkloadCheck
from controller.runtime.zookeeper import cluster_reader, codecs
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from controller.workload.writers import now_us

#: The topic that the workload writes to.
WRITTEN_TOPIC, WRITTEN_PARTITIONS = "orders", 24


def _leaders(cluster_state: ClusterState) -> str:
    counts = dict.fromkeys(sorted(cluster_state.brokers), 0)
    for partition in cluster_state.partitions:
        if partition.state is not None and partition.state.leader in counts:
            counts[partition.state.leader] += 1
    return ", ".join(f"broker {id_} leads {n}" for id_, n in counts.items())


async def prepare(playground: Playground, session: Session) -> tuple[int, WorkloadCheck]:
    """Wait for all members, create two topics, start the workload. Returns the active controller's id and the
    workload."""
    active, took = await playground.active(session)
    playground.say(f"controller {active} is elected and active", "green")
    everyone = set(range(1, playground.brokers + 1))
    await playground.until(
        session, "all brokers registered", lambda cluster_state: set(cluster_state.brokers) == everyone
    )
    playground.say(f"{playground.brokers} brokers are registered")
    factor = min(3, playground.brokers)
    # A majority, so that acknowledged records survive the loss of any one broker.
    in_sync_min = factor // 2 + 1 if factor > 2 else 1
    for name, partitions in ((WRITTEN_TOPIC, WRITTEN_PARTITIONS), ("payments", 12)):
        await playground.create_topic(
            session, name, (partitions, factor), {"min.insync.replicas": str(in_sync_min)}
        )
    cluster_state, took = await playground.until(session, "all partitions led", healthy)
    playground.say(
        f"topics orders and payments: {len(cluster_state.partitions)} partitions led after {took:.2f} s"
    )
    playground.say(f"  {_leaders(cluster_state)}", "dim")
    workload = WorkloadCheck(playground, WRITTEN_TOPIC, WRITTEN_PARTITIONS)
    await workload.start()
    return active, workload


async def kill_broker(playground: Playground, session: Session, broker_id: int) -> None:
    cluster_state = await playground.look(session)
    led = sum(p.state is not None and p.state.leader == broker_id for p in cluster_state.partitions)
    playground.say(f"kill -9 broker {broker_id}, which leads {led} partitions", "yellow")
    name = f"broker-{broker_id}"
    playground.members[name].kill()
    _, expired_s = await playground.until(
        session, "its registration expires", lambda s: broker_id not in s.brokers
    )
    playground.say(
        f"  its session expired after {expired_s:.2f} s (timeout {playground.session_timeout_ms / 1000:g} s)"
    )
    cluster_state, took = await playground.until(session, "new leaders", healthy)
    playground.say(
        f"  all {len(cluster_state.partitions)} partitions are led again {took:.2f} s later", "green"
    )
    cluster_state, _ = await playground.until(
        session,
        "it is out of every ISR",
        lambda s: all(p.state is not None and broker_id not in p.state.isr for p in s.partitions),
    )
    playground.say(f"  {_leaders(cluster_state)}", "dim")


async def _kill_controller(playground: Playground, session: Session, active: int) -> int:
    playground.say(f"kill -9 the active controller, {active}", "yellow")
    playground.members[f"controller-{active}"].kill()
    successor, took = await playground.active(session, other_than=active)
    playground.say(
        f"  controller {successor} took over after {took:.2f} s, session timeout included", "green"
    )
    return successor


async def restart(playground: Playground, session: Session, name: str) -> None:
    playground.say(f"restart {name}")
    playground.members[name].start()
    kind, _, number = name.partition("-")
    if kind == "broker":
        _, took = await playground.until(session, f"{name} registered", lambda s: int(number) in s.brokers)
    else:
        _, took = await playground.until(
            session,
            f"{name} is a candidate",
            lambda s: any(c.controller_id == int(number) for c in s.controllers),
        )
    playground.say(f"  {name} is back after {took:.2f} s", "green")


async def _hand_over(playground: Playground, session: Session, active: int) -> int:
    playground.say(f"SIGTERM controller {active}: a clean hand-over", "yellow")
    playground.members[f"controller-{active}"].signal(signal.SIGTERM)
    successor, took = await playground.active(session, other_than=active)
    playground.say(f"  controller {successor} is active after {took:.2f} s: no timeout had to pass", "green")
    playground.members[f"controller-{active}"].stop()
    return successor


async def _freeze(playground: Playground, session: Session, active: int) -> int:
    playground.say(f"SIGSTOP controller {active}: it does not know that time passes", "yellow")
    frozen = playground.members[f"controller-{active}"]
    frozen.signal(signal.SIGSTOP)
    try:
        successor, took = await playground.active(session, other_than=active)
    finally:
        frozen.signal(signal.SIGCONT)
    playground.say(f"  controller {successor} took over after {took:.2f} s; SIGCONT {active}", "green")
    await playground.until(
        session,
        "the resumed controller is a standby",
        lambda s: any(c.controller_id == active for c in s.controllers),
    )
    playground.say(f"  controller {active} resumed, found its lease expired, and is a standby")
    return successor


async def rejoined(playground: Playground, session: Session) -> None:
    """Wait until every replica is in sync again."""
    _, took = await playground.until(session, "every replica in sync", in_sync)
    playground.say(
        f"  it has caught up: every replica of every partition is in sync {took:.2f} s later", "green"
    )


async def _elect_preferred(playground: Playground, session: Session) -> None:
    """Elect the preferred leaders of all partitions by writing ``/admin/preferred_replica_election``."""
    cluster_state = await playground.look(session)
    moved = [p for p in cluster_state.partitions if not p.on_preferred_leader]
    playground.say(f"elect the preferred leaders of the {len(moved)} partitions that others lead", "yellow")
    if moved:
        names = [(p.topic, p.partition) for p in moved]
        await session.create(znode_paths.PREFERRED_ELECTION, codecs.encode_partition_list(names))
    cluster_state, took = await playground.until(session, "preferred leaders lead", _preferred)
    playground.say(f"  every preferred leader leads after {took:.2f} s; {_leaders(cluster_state)}", "green")


def in_sync(cluster_state: ClusterState) -> bool:
    """Every partition is led by a registered broker, and all its replicas are in sync."""
    return healthy(cluster_state) and not any(p.under_replicated() for p in cluster_state.partitions)


def _preferred(cluster_state: ClusterState) -> bool:
    return all(p.on_preferred_leader for p in cluster_state.partitions)


async def demo(playground: Playground, session: Session) -> None:
    """A broker dies, the controller dies, both return, a controller freezes, another hands over; all under load."""
    active, workload = await prepare(playground, session)
    event_us = now_us()
    await kill_broker(playground, session, 1)
    await workload.wait_for_writes(event_us, "the kill")
    event_us = now_us()
    successor = await _kill_controller(playground, session, active)
    await workload.wait_for_writes(event_us, "the kill")
    await restart(playground, session, f"controller-{active}")
    event_us = now_us()
    await restart(playground, session, "broker-1")
    await rejoined(playground, session)
    await _elect_preferred(playground, session)
    await workload.wait_for_writes(event_us, "the restart")
    event_us = now_us()
    successor = await _freeze(playground, session, successor)
    await _hand_over(playground, session, successor)
    await workload.wait_for_writes(event_us, "the freeze")
    cluster_state, _ = await playground.until(session, "all partitions led", healthy)
    playground.say(
        f"the end: controller epoch {cluster_state.controller_epoch}, every partition led; {_leaders(cluster_state)}"
    )
    await workload.verdict(session)


async def failover(playground: Playground, session: Session) -> None:
    """The active controller dies, three times."""
    active, workload = await prepare(playground, session)
    for _ in range(3):
        event_us = now_us()
        successor = await _kill_controller(playground, session, active)
        await restart(playground, session, f"controller-{active}")
        await workload.wait_for_writes(event_us, "the kill")
        active = successor
    await workload.verdict(session)


async def rolling(playground: Playground, session: Session) -> None:
    """Every broker is restarted, one after the other, each when all replicas are in sync."""
    _, workload = await prepare(playground, session)
    for id_ in range(1, playground.brokers + 1):
        name = f"broker-{id_}"
        playground.say(f"SIGTERM {name}", "yellow")
        began, event_us = time.monotonic(), now_us()
        await asyncio.to_thread(playground.members[name].stop)
        playground.say(f"  it handed over its partitions and ended after {time.monotonic() - began:.2f} s")
        await playground.until(session, "it is unregistered", lambda s: len(s.brokers) < playground.brokers)
        cluster_state, took = await playground.until(
            session, "a leader wherever one is possible", _led_where_possible
        )
        waiting = sum(p.state is None or p.state.leader < 0 for p in cluster_state.partitions)
        alone = f"; {waiting} wait for it, the last of their ISR" if waiting else ""
        playground.say(
            f"  {len(cluster_state.partitions) - waiting} partitions are led {took:.2f} s later{alone}",
            "green",
        )
        await restart(playground, session, name)
        await rejoined(playground, session)
        await workload.wait_for_writes(event_us, "SIGTERM")
    await workload.verdict(session)


def _led_where_possible(cluster_state: ClusterState) -> bool:
    """Every partition with a live ISR member is led by one, the others have no leader."""
    return all(
        p.state is not None
        and (
            p.state.leader in cluster_state.brokers
            if set(p.state.isr) & set(cluster_state.brokers)
            else p.state.leader < 0
        )
        for p in cluster_state.partitions
    )


async def idle(playground: Playground, session: Session) -> None:
    """Start everything and leave it running until interrupted; then the verdict."""
    _, workload = await prepare(playground, session)
    for name, member in playground.members.items():
        if member.process is not None:
            playground.say(f"  {name} is process {member.process.pid}", "dim")
    ended_members: set[str] = set()
    async with _interruptible() as interrupted:
        # Printed only when Ctrl-C is handled: the user may press it at once.
        for variable, value in playground.operator_environment.items():
            playground.say(f"export {variable}={value}")
        playground.say(f"try: pctl --zookeeper {playground.connect} cluster   (Ctrl-C ends the playground)")
        while not interrupted.is_set():
            await asyncio.sleep(0.2)
            for name, member in playground.members.items():
                ended = member.process is not None and member.process.poll() is not None
                if ended and name not in ended_members:
                    assert member.process is not None
                    ended_members.add(name)
                    playground.say(f"{name} ended with {member.process.returncode}", "yellow")
    playground.say("interrupted: the verdict follows (Ctrl-C again ends without it)")
    for name in sorted(ended_members - {WORKLOAD}):
        playground.say(f"restart {name}")
        playground.members[name].start()
    # Whoever plays may have stopped ZooKeeper for longer than the session lasts.
    async with cluster_reader.connected(playground.connect, session.negotiated_ms) as fresh:
        await workload.verdict(fresh)


@asynccontextmanager
async def _interruptible() -> AsyncIterator[asyncio.Event]:
    """An event that the first SIGINT or SIGTERM sets; later ones have their usual effect."""
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}

    def interrupt() -> None:
        interrupted.set()
        restore()

    def restore() -> None:
        for signum, handler in before.items():
            if loop.remove_signal_handler(signum):
                signal.signal(signum, handler)

    for signum in before:
        loop.add_signal_handler(signum, interrupt)
    try:
        yield interrupted
    finally:
        restore()
