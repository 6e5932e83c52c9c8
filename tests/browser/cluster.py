"""A cluster of real processes in three racks, for looking at it in a browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from controller.playground.cluster import Playground, healthy
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session
from proto.security.tokens import line_of
from tests.support.runtime.clusters import has_said, lines
from tests.support.runtime.programs import BIN, program

RACKS = ("north", "south", "west")
#: Partitions and replicas by topic.
TOPICS = {
    "audit-log": (6, 3),
    "clicks": (24, 3),
    "inventory": (4, 2),
    "metrics.raw": (12, 3),
    "orders": (12, 3),
    "payments": (8, 3),
    "sessions": (6, 1),
    "shipments": (3, 3),
}


@asynccontextmanager
async def running(
    directory: Path, controllers: int = 2, brokers: int = 6, zookeeper: str | None = None
) -> AsyncIterator[tuple[Playground, Session]]:
    """The started cluster with all brokers registered, without topics."""
    cluster = Playground(directory, controllers, brokers, zookeeper)
    try:
        cluster.prepare()
        for id_ in range(1, brokers + 1):
            cluster.members[f"broker-{id_}"].command.append(f"--rack={RACKS[(id_ - 1) % len(RACKS)]}")
        for member in cluster.members.values():
            member.start()
        async with cluster_reader.connected(cluster.connect, 20_000) as session:
            await cluster.until(
                session,
                "registered",
                lambda s: (
                    len(s.brokers) == brokers and len(s.controllers) == controllers and s.controller_id > 0
                ),
            )
            await cluster.active(session)
            yield cluster, session
    finally:
        await asyncio.to_thread(cluster.stop)


async def populate(cluster: Playground, session: Session) -> None:
    """Create ``TOPICS``, and wait until all are led."""
    for name, (partitions, replicas) in TOPICS.items():
        configs = {"min.insync.replicas": "2"} if replicas == 3 else None
        await cluster.create_topic(session, name, (partitions, replicas), configs)
    wanted = sum(partitions for partitions, _ in TOPICS.values())
    await cluster.until(session, "led", lambda s: len(s.partitions) == wanted and healthy(s))


async def pages(session: Session) -> dict[int, str]:
    """The address of each controller's console, the active one's first."""
    found = await cluster_reader.controllers(session)
    ordered = sorted(found, key=lambda one: not one.active)
    return {one.controller_id: f"http://{one.http}/ui" for one in ordered}


async def some_topics(cluster: Playground, session: Session) -> None:
    await cluster.create_topic(session, "orders", (4, 3), {"min.insync.replicas": "2"})
    await cluster.create_topic(session, "alone", {0: [3]})
    await cluster.until(session, "led", lambda s: len(s.partitions) == 5 and all(map(s.is_led, s.partitions)))


@contextmanager
def guarded(zookeeper: str, directory: Path, rules: str, tokens: Mapping[str, str]) -> Iterator[str]:
    """The address of the console of a controller with these rules and the bearer tokens of these users."""
    file = directory / "tokens"
    file.write_text("\n".join(line_of(who, token) for who, token in tokens.items()))
    file.chmod(0o600)
    (directory / "rules").write_text(rules)
    command = [
        str(BIN / "partition-controller"), "run", f"--zookeeper={zookeeper}", "--grpc-listen=127.0.0.1:0",
        "--http-listen=127.0.0.1:0", "--state-log-dir=log",
    ]  # fmt: skip
    secured = {
        "PARTITION_CONTROLLER_AUTHORIZER_FILE": str(directory / "rules"),
        "PARTITION_CONTROLLER_BEARER_TOKENS_FILE": str(file),
    }
    with program(command, directory, secured) as process:
        process.until(lambda: has_said(process, "ready"))
        yield f"http://{lines(process, 'listening')[0]['http']}/ui"
