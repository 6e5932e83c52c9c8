"""The active controller is killed at one commit of a story; its successor finishes it, and the end is compared.

A cluster of real processes: brokers with data, and two controllers, each with a proxy between itself and ZooKeeper
that counts its fenced writes. Rounds follow each other in one cluster, and the parts change: who was killed is
started again and stands by.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from broker_stub.client.producer import Producer
from controller.core import znode_paths
from controller.core.cluster.term_history import PATH as TERM_HISTORY
from controller.core.effects import TopicInfo
from controller.playground.cluster import WAIT_S, Playground, PlaygroundError
from controller.runtime.term import new_topic_id
from controller.runtime.zookeeper import cluster_reader, codecs, single_codecs
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from controller.runtime.zookeeper.session import NoNodeError, Session
from controller.workload.replicas import read_replica
from tests.provers.durability.stories import BEFORE, BROKERS, STORIES, Assignments, Story
from tests.provers.durability.traps import StepTrap
from tests.support.paths import ROOT
from tests.support.runtime.proxy import Proxy, proxied

#: Short, so that a killed controller is noticed soon; a frozen broker must outlive that.
CONTROLLER_TIMEOUT_MS, BROKER_TIMEOUT_MS = 3000, 20_000
#: What differs from run to run by its nature: who leads, since when, who is registered.
VOLATILE = {
    znode_paths.CONTROLLER,
    znode_paths.CONTROLLER_EPOCH,
    znode_paths.CONTROLLER_IDS,
    znode_paths.BROKER_IDS,
    TERM_HISTORY,
}
#: What counts failovers and writes, and names of incarnations.
COUNTERS = {"topic_id", "leader_epoch", "controller_epoch"}
_KAFKAS = {"version", "topic_id", "partitions", "adding_replicas", "removing_replicas"}

#: Znodes by path, and by broker id the records of each folder: (offset, checksum of the value).
EndState = dict[str, Any]


@dataclass(frozen=True)
class Round:
    """One play of a story. ``killed_at``: the commit, in words; empty if there were not so many. ``again``: the end
    state once more, after everybody was back."""

    steps: list[str]
    killed_at: str
    end: EndState
    again: EndState
    took_s: float


@dataclass
class Lane:
    """One cluster in which rounds are played one after the other."""

    cluster: Playground
    session: Session
    proxies: dict[int, Proxy] = field(default_factory=dict)

    async def play(self, story: Story, step: int | None, *, landed: bool) -> Round:
        """Topics anew, the story, its end. Raises PlaygroundError when it does not come to one."""
        active, _ = await self.cluster.active(self.session)
        await self._begin()
        began = time.monotonic()
        member = self.cluster.members[f"controller-{active}"]
        trap = self.proxies[active].trap = StepTrap(step, landed, member.kill)
        async with asyncio.timeout(WAIT_S):
            await story.play(self.cluster, self.session)
        away = member.name if step is not None else ""
        await self._until(
            f"{story.name}: its end", lambda cluster_state: self._settled(cluster_state, story.after), away
        )
        while await self.session.exists(znode_paths.REASSIGN_PARTITIONS) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        self.proxies[active].trap = None
        await self._write(story.after)
        end = await self.end_state()
        took_s = time.monotonic() - began
        if trap.killed:
            member.start()
            await self._until("both controllers", lambda cluster_state: len(cluster_state.controllers) == 2)
        elif active != (now := (await self.cluster.active(self.session))[0]):
            raise PlaygroundError(f"controller {active} lost its leadership to {now}, and nobody killed it")
        await self._check_terms(story)
        chroot = "/" + self.cluster.connect.partition("/")[2]
        steps = [what.replace(chroot, "", 1) for what in trap.steps]
        killed_at = steps[step] if step is not None and trap.killed else ""
        return Round(steps, killed_at, end, await self.end_state(), took_s)

    async def _check_terms(self, story: Story) -> None:
        """Of the terms in ZooKeeper the present one goes on, and no other, once the failover is over."""
        deadline = time.monotonic() + WAIT_S
        while True:
            data, _ = await self.session.get(TERM_HISTORY)
            going_on = [t.controller_id for t in single_codecs.decode(TERM_HISTORY, data) if not t.until_ms]
            if going_on == [active := (await self.cluster.active(self.session))[0]]:
                return
            if time.monotonic() >= deadline:
                why = f"{story.name}: terms of {going_on} go on, {active} is the controller"
                raise DifferentEndError(why)
            await asyncio.sleep(0.05)

    async def _until(self, what: str, reached: Callable[[ClusterState], bool], away: str = "") -> None:
        await self.cluster.until(self.session, what, reached, ignore=[away])

    async def _begin(self) -> None:
        """The topics of a former round go, those of every story are there, in sync, and hold records."""
        for name in (await cluster_reader.look(self.session)).topics:
            await self.session.create(f"{znode_paths.DELETE_TOPICS}/{name}", b"")
        await self._until(
            "the former topics are deleted", lambda cluster_state: self._settled(cluster_state, {})
        )
        for name, partitions in BEFORE.items():
            assignment = {number: tuple(ids) for number, ids in partitions.items()}
            info = TopicInfo(name, new_topic_id(), assignment, {}, {}, -1, 0)
            await self.session.create(f"{znode_paths.TOPIC_CONFIGS}/{name}", codecs.encode_config({}))
            await self.session.create(znode_paths.topic_path(name), codecs.encode_topic(info))
        await self._until("the topics", lambda s: len(s.brokers) == BROKERS and self._settled(s, BEFORE))
        await self._write(BEFORE)

    async def _write(self, topics: Assignments) -> None:
        """One record to each partition, held by every replica once it is acknowledged."""
        cluster_state = await cluster_reader.look(self.session)
        addresses = [
            f"{b.control_endpoint.host}:{b.control_endpoint.port}" for b in cluster_state.brokers.values()
        ]
        async with Producer(addresses) as producer:
            await asyncio.gather(
                *(
                    producer.send(topic, number, [(None, f"{topic}-{number}".encode())])
                    for topic, partitions in topics.items()
                    for number in partitions
                )
            )

    def _settled(self, cluster_state: ClusterState, wanted: Assignments) -> bool:
        """Exactly these replicas, in sync and on disk, and nothing left to do."""
        infos = cluster_state.topics.values()
        present = {i.name: {number: list(ids) for number, ids in i.partitions.items()} for i in infos}
        return (
            present == wanted
            and not cluster_state.deleting
            and not any(i.adding or i.removing or i.original or i.queued or i.stray for i in infos)
            and all(_in_sync(cluster_state, partition) for partition in cluster_state.partitions)
            and all(self._folders(b) == _held_by(b, wanted) for b in range(1, BROKERS + 1))
        )

    def _folders(self, broker_id: int) -> set[str]:
        directory = self.cluster.data_dir(broker_id)
        return {p.name for p in directory.iterdir() if p.is_dir()} if directory.exists() else set()

    # what is compared

    async def end_state(self) -> EndState:
        """Everything durable but epochs, versions and ids."""
        disks = {
            broker_id: {
                name: _records(self.cluster.data_dir(broker_id) / name)
                for name in sorted(self._folders(broker_id))
            }
            for broker_id in range(1, BROKERS + 1)
        }
        return {"znodes": await self._tree("/"), "disks": disks}

    async def _tree(self, path: str) -> dict[str, Any]:
        try:
            data, _ = await self.session.get(path)
            children = await self.session.children(path)
        except NoNodeError:
            return {}
        found = {path: _without_counters(data)}
        for name in sorted(children):
            child = f"{path.rstrip('/')}/{name}"
            if child not in VOLATILE:
                found.update(await self._tree(child))
        return found


def _in_sync(cluster_state: ClusterState, partition: PartitionInfo) -> bool:
    return cluster_state.is_led(partition) and not partition.under_replicated()


def _held_by(broker_id: int, topics: Assignments) -> set[str]:
    return {
        f"{topic}-{number}"
        for topic, partitions in topics.items()
        for number, ids in partitions.items()
        if broker_id in ids
    }


def _records(folder: Path) -> list[tuple[int, int]] | str:
    log = read_replica(folder)
    return log.problem or [(record.offset, record.content.crc) for record in log.records]


def _without_counters(data: bytes) -> Any:
    """A znode's content; ISRs in order, as followers join in any."""
    try:
        fields = json.loads(data)
    except ValueError:
        return data
    if not isinstance(fields, dict):
        return fields
    assert "partitions" not in fields or set(fields) == _KAFKAS, f"more than Kafka's fields: {fields}"
    found = {key: value for key, value in fields.items() if key not in COUNTERS}
    if "isr" in found:
        found["isr"] = sorted(found["isr"])
    return found


def difference(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Where two end states differ, in words."""
    if not isinstance(wanted, Mapping) or not isinstance(found, Mapping):
        return [] if wanted == found else [f"{path}: {found!r} instead of {wanted!r}"]
    lines = []
    for key in dict.fromkeys([*wanted, *found]):
        if key not in found:
            lines.append(f"{path} {key}: missing")
        elif key not in wanted:
            lines.append(f"{path} {key}: should not be there: {found[key]!r}")
        else:
            lines += difference(wanted[key], found[key], f"{path} {key}")
    return lines


# --- clusters --------------------------------------------------------------------------------------------


@asynccontextmanager
async def lane(zookeeper: str, directory: Path) -> AsyncIterator[Lane]:
    """A cluster below a connect string. Small batches make many commits; nothing else in it is special."""
    cluster = Playground(directory, 2, BROKERS, zookeeper, CONTROLLER_TIMEOUT_MS)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(cluster_reader.connected(cluster.connect, 20_000))
        made = Lane(cluster, session)
        cluster.prepare()
        made.proxies.update(await behind_proxies(cluster, stack))
        for id_ in range(1, cluster.controllers + 1):
            member = cluster.members[f"controller-{id_}"]
            program = [sys.executable, "-m", "tests.provers.durability.small_batches"]
            member.command = [*program, *member.command[1:]]
            member.environment = {**member.environment, "PYTHONPATH": str(ROOT)}
        for id_ in range(1, BROKERS + 1):
            member = cluster.members[f"broker-{id_}"]
            member.command = _without(member.command, "session-timeout-ms", str(BROKER_TIMEOUT_MS))
        try:
            for member in cluster.members.values():
                member.start()
            yield made
        finally:
            # Blocks, and the proxies must serve meanwhile.
            await asyncio.to_thread(cluster.stop)


async def behind_proxies(cluster: Playground, stack: AsyncExitStack) -> dict[int, Proxy]:
    """Between each controller that is yet to be started and ZooKeeper; by controller id."""
    proxies: dict[int, Proxy] = {}
    for id_ in range(1, cluster.controllers + 1):
        proxy = proxies[id_] = await stack.enter_async_context(proxied(cluster.connect))
        member = cluster.members[f"controller-{id_}"]
        member.command = _without(member.command, "zookeeper", proxy.connect)
    return proxies


def _without(command: Sequence[str], flag: str, value: str) -> list[str]:
    """A command line with another value of one flag."""
    return [*(word for word in command if not word.startswith(f"--{flag}=")), f"--{flag}={value}"]


# --- many rounds -----------------------------------------------------------------------------------------


class DifferentEndError(Exception):
    """A story that was interrupted ended otherwise than undisturbed, or what it left did not stay so."""


@dataclass
class Outcome:
    """Of one story: how many commits it has undisturbed, and the rounds in which the controller was killed."""

    story: Story
    wanted: EndState
    commits: int
    killed: list[Round] = field(default_factory=list)


Report = Callable[[str], None]


async def undisturbed(lane_: Lane, story: Story) -> Outcome:
    played = await lane_.play(story, None, landed=False)
    _check(story, "undisturbed", played.again, played.end)
    return Outcome(story, played.end, len(played.steps))


async def crash(lane_: Lane, outcome: Outcome, step: int, *, landed: bool, report: Report) -> bool:
    """Kill at one commit, compare the end. Whether there was such a commit. Raises DifferentEndError."""
    played = await lane_.play(outcome.story, step, landed=landed)
    if not played.killed_at:
        return False
    when = f"killed {'after' if landed else 'before'} commit {step + 1}, {played.killed_at}"
    _check(outcome.story, when, played.end, outcome.wanted)
    _check(outcome.story, f"{when}, later", played.again, outcome.wanted)
    outcome.killed.append(played)
    report(f"{outcome.story.name}: {when}: the same end after {played.took_s:.1f} s")
    return True


def _check(story: Story, when: str, found: EndState, wanted: EndState) -> None:
    if lines := difference(wanted, found):
        raise DifferentEndError(f"{story.name}, {when}: " + "; ".join(lines))


async def sweep(lanes: Sequence[Lane], report: Report, stories: Sequence[Story] = STORIES) -> list[Outcome]:
    """Every commit of every story, before it and after it."""

    async def whole(lane_: Lane, story: Story) -> Outcome:
        outcome = await undisturbed(lane_, story)
        for landed in (False, True):
            step = 0
            while await crash(lane_, outcome, step, landed=landed, report=report):
                step += 1
        return outcome

    return await _shared(lanes, stories, whole)


async def sample(lanes: Sequence[Lane], report: Report, seed: int) -> list[Outcome]:
    """Of each story one commit, drawn, before or after it."""

    async def one(lane_: Lane, story: Story) -> Outcome:
        random = Random(f"{seed} {story.name}")
        outcome = await undisturbed(lane_, story)
        step, landed = random.randrange(outcome.commits), random.random() < 0.5
        # How many there are depends a little on when followers join.
        while not await crash(lane_, outcome, step, landed=landed, report=report):
            step -= 1
        return outcome

    return await _shared(lanes, STORIES, one)


async def _shared(
    lanes: Sequence[Lane], stories: Sequence[Story], play: Callable[[Lane, Story], Awaitable[Outcome]]
) -> list[Outcome]:
    """Each lane takes the next story when it is done with one."""
    source: Iterator[Story] = iter(stories)
    outcomes: list[Outcome] = []

    async def work(lane_: Lane) -> None:
        for story in source:
            outcomes.append(await play(lane_, story))

    async with asyncio.TaskGroup() as group:
        for lane_ in lanes:
            group.create_task(work(lane_))
    return outcomes


async def run(
    zookeeper: str, directory: Path, report: Report, *, lanes: int, seed: int | None = None
) -> list[Outcome]:
    """All rounds, or with a seed some of them, in clusters of their own below one connect string.

    Raises DifferentEndError, PlaygroundError, RefusedError, TimeoutError (in an ExceptionGroup).
    """
    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(lane(f"{zookeeper}/lane-{n}", directory / f"lane-{n}"))
            for n in range(lanes)
        ]
        return await (sweep(made, report) if seed is None else sample(made, report, seed))
