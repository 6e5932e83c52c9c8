"""The playground's game day: faults that operators meet, one after the other.

Each is made by signals and by hand in ZooKeeper. ``pctl`` has to say the right thing of it; then its advice is
followed, and the cluster has to be well again.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from controller.core import znode_paths
from controller.playground.cluster import Playground, PlaygroundError, shell_with
from controller.playground.scripts import prepare
from controller.runtime.zookeeper import jute
from controller.runtime.zookeeper.session import Session

#: How long pctl may take to say the right thing, and the cluster to be well again.
SAID_WITHIN_S, WELL_WITHIN_S = 120.0, 90
_WHO = "--author 'the playground' --yes"
_WHY = f"--reason 'game day' {_WHO}"


class Expected(NamedTuple):
    """A command of pctl and what its output has to contain; ``code``: its exit code, None: any."""

    command: str
    words: tuple[str, ...]
    code: int | None = None


class Day:
    """What faults are made with."""

    def __init__(self, playground: Playground, session: Session) -> None:
        self.playground, self.session = playground, session
        self._kept: dict[str, bytes] = {}

    async def pctl(self, command: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "pctl"),
            f"--zookeeper={self.playground.connect}",
            f"--timeout={WELL_WITHIN_S}",
            *shlex.split(command),
            env=shell_with(self.playground.operator_environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out = (await process.communicate())[0].decode()
        assert process.returncode is not None
        return process.returncode, out

    async def do(self, *commands: str) -> None:
        """Raises PlaygroundError when one fails."""
        for command in commands:
            self.playground.say(f"  $ pctl {command}", "dim")
            code, out = await self.pctl(command)
            if code:
                raise PlaygroundError(f"pctl {command} ended with {code}: {out}")

    async def write(self, path: str, data: bytes) -> None:
        """By hand, as somebody with zkCli would; what was there is kept for ``restore``."""
        self._kept[path] = (await self.session.get(path))[0]
        await self.session.multi([jute.op_set(self.session.packed_path(path), data, -1)])

    async def restore(self, path: str) -> None:
        await self.session.multi([jute.op_set(self.session.packed_path(path), self._kept[path], -1)])

    def kill(self, name: str) -> None:
        self.playground.members[name].kill()

    def start(self, name: str) -> None:
        self.playground.members[name].start()

    async def stop(self, name: str) -> None:
        """SIGTERM, and wait until it has ended."""
        self.send(name, signal.SIGTERM)
        process = self.playground.members[name].process
        assert process is not None
        await asyncio.to_thread(process.wait, SAID_WITHIN_S)

    def send(self, name: str, signum: int) -> None:
        self.playground.members[name].signal(signum)

    async def active(self) -> str:
        return f"controller-{(await self.playground.active(self.session))[0]}"

    async def says(self, expected: Expected) -> str:
        """Ask until it says so; "" once it does, else what it says instead."""
        deadline = time.monotonic() + SAID_WITHIN_S
        while True:
            code, out = await self.pctl(expected.command)
            missing = [word for word in expected.words if word not in out]
            if not missing and expected.code in (None, code):
                return ""
            if time.monotonic() > deadline:
                return f"pctl {expected.command} ended with {code}, without {missing}: {out}"
            await asyncio.sleep(0.5)


Act = Callable[[Day], Awaitable[None]]


class Fault(NamedTuple):
    """``mend``: what pctl advises, followed."""

    name: str
    make: Act
    expected: tuple[Expected, ...]
    mend: Act


# --- the faults ----------------------------------------------------------------------------------------------


def _commands(*commands: str) -> Act:
    return lambda day: day.do(*commands)


async def _nothing(day: Day) -> None:
    del day


async def _kill_broker(day: Day) -> None:
    day.kill("broker-2")


async def _start_broker(day: Day) -> None:
    day.start("broker-2")


async def _freeze_broker(day: Day) -> None:
    day.send("broker-2", signal.SIGSTOP)


async def _thaw_broker(day: Day) -> None:
    day.send("broker-2", signal.SIGCONT)


async def _flap(day: Day) -> None:
    await day.do(
        "config set auto_leader_rebalance_enable=true broker_flapping_hold_seconds=8"
        " leader_imbalance_check_interval_seconds=1 --all-controllers --yes"
    )
    for _ in range(2):
        day.kill("broker-2")
        await day.playground.until(day.session, "broker 2 is gone", lambda s: 2 not in s.brokers)
        day.start("broker-2")
        await day.playground.until(day.session, "broker 2 is back", lambda s: 2 in s.brokers)


async def _calm(day: Day) -> None:
    """It stays up, as the advice says; then the settings go back."""
    if problem := await day.says(Expected("health", ("well",), 0)):
        raise PlaygroundError(problem)
    await day.do(
        "config delete auto_leader_rebalance_enable broker_flapping_hold_seconds"
        " leader_imbalance_check_interval_seconds --all-controllers --yes"
    )


async def _stuck_deletion(day: Day) -> None:
    await day.do("topics create doomed --replica-assignment 1:2")
    day.kill("broker-2")
    await day.playground.until(day.session, "broker 2 is gone", lambda s: 2 not in s.brokers)
    await day.do("topics delete doomed --no-wait --yes --reason 'game day'")


async def _forget(day: Day) -> None:
    await day.do(f"brokers forget 2 {_WHY}")
    if problem := await day.says(Expected("explain deletion doomed", ("no topic 'doomed'",), 1)):
        raise PlaygroundError(problem)
    day.start("broker-2")


async def _lonely(day: Day) -> None:
    await day.do("topics create lonely --replica-assignment 2")
    day.kill("broker-2")


async def _end_lonely(day: Day) -> None:
    day.start("broker-2")
    await day.playground.until(day.session, "broker 2 is back", lambda s: 2 in s.brokers)
    await day.do("topics delete lonely --yes --reason 'game day'")


async def _strict(day: Day) -> None:
    await day.do("topics create strict --replica-assignment 1:2 --config min.insync.replicas=2")
    day.kill("broker-2")


async def _end_strict(day: Day) -> None:
    day.start("broker-2")
    await day.playground.until(day.session, "broker 2 is back", lambda s: 2 in s.brokers)
    await day.do("topics delete strict --yes --reason 'game day'")


async def _stuck_move(day: Day) -> None:
    # Frozen until its target is gone: a reassignment to a broker that is not there would be refused.
    await day.do(
        "topics create moving --replica-assignment 1",
        f"freeze {_WHY}",
        "reassign execute --topic moving --partition 0 --replicas 2 --no-wait --yes",
    )
    day.kill("broker-2")
    await day.playground.until(day.session, "broker 2 is gone", lambda s: 2 not in s.brokers)
    await day.do(f"unfreeze {_WHO}")


async def _end_move(day: Day) -> None:
    await day.do("reassign cancel --topic moving --partition 0 --no-wait --yes")
    day.start("broker-2")
    await day.playground.until(day.session, "broker 2 is back", lambda s: 2 in s.brokers)
    await day.do("topics delete moving --yes --reason 'game day'")


async def _fail_directory(day: Day) -> None:
    """Broker 2 gets a second data directory, where the next topic goes, and loses it while it runs."""
    broker = day.playground.members["broker-2"]
    first, second = day.playground.data_dir(2), _second_directory(day)
    broker.command = [p for p in broker.command if not p.startswith("--data-dir")]
    broker.command.append(f"--data-dirs={first},{second}")
    await _restart(day)
    await day.do("topics create spread --replica-assignment 2:1,1:2")
    shutil.rmtree(second)


def _second_directory(day: Day) -> Path:
    return day.playground.data_dir(2).with_name("broker-2-second")


async def _replace_directory(day: Day) -> None:
    """As advised: an empty disk is in its place, and the broker is restarted."""
    _second_directory(day).mkdir()
    await _restart(day)
    await day.do("wait --until stable", "topics delete spread --yes --reason 'game day'")


async def _restart(day: Day) -> None:
    await day.stop("broker-2")
    day.start("broker-2")
    await day.playground.until(day.session, "broker 2 is back", lambda s: 2 in s.brokers)


async def _wipe_topic(day: Day) -> None:
    """The folk remedy: its znodes are deleted by hand, and it is created anew while brokers still have its records."""
    await day.do("topics create wiped --replica-assignment 2")
    for path in reversed(await _below(day.session, znode_paths.topic_path("wiped"))):
        await day.session.delete(path)
    await day.playground.until(
        day.session, "the topic is gone", lambda s: all(p.topic != "wiped" for p in s.partitions)
    )
    # Its leader refuses: there is nothing to wait for.
    await day.pctl("--timeout=5 topics create wiped --replica-assignment 2")


async def _below(session: Session, path: str) -> list[str]:
    found = [path]
    for name in await session.children(path):
        found += await _below(session, f"{path}/{name}")
    return found


async def _move_folder(day: Day) -> None:
    await day.stop("broker-2")
    for directory in (day.playground.data_dir(2), _second_directory(day)):
        if (folder := directory / "wiped-0").exists():
            folder.rename(day.playground.directory / "wiped-0-former")
    day.start("broker-2")
    await day.playground.until(day.session, "broker 2 is back", lambda s: 2 in s.brokers)
    await day.do("wait --until stable", "topics delete wiped --yes --reason 'game day'")


_STATE = znode_paths.state_path("payments", 0)


async def _edit_state(day: Day) -> None:
    found = json.loads((await day.session.get(_STATE))[0])
    # One that makes sense, under an epoch that nobody decided.
    edited = {**found, "leader": found["isr"][-1], "leader_epoch": found["leader_epoch"] + 7}
    await day.write(_STATE, json.dumps(edited).encode())


async def _spoil_state(day: Day) -> None:
    await day.write(_STATE, b"oops")


async def _spoil_topic(day: Day) -> None:
    await day.write(znode_paths.topic_path("payments"), b'{"partitions": 7}')


async def _mend_topic(day: Day) -> None:
    await day.restore(znode_paths.topic_path("payments"))


async def _delete_controller(day: Day) -> None:
    await day.session.delete(znode_paths.CONTROLLER)


async def _steal_epoch(day: Day) -> None:
    epoch = int((await day.session.get(znode_paths.CONTROLLER_EPOCH))[0])
    await day.write(znode_paths.CONTROLLER_EPOCH, str(epoch + 10).encode())
    # Its next write finds out.
    await day.pctl("topics create noticed --replica-assignment 1")


async def _end_epoch(day: Day) -> None:
    await day.pctl("topics delete noticed --yes --reason 'game day'")


async def _kill_controllers(day: Day) -> None:
    for name in [name for name in day.playground.members if name.startswith("controller-")]:
        day.kill(name)


async def _start_controllers(day: Day) -> None:
    for name in [name for name in day.playground.members if name.startswith("controller-")]:
        day.start(name)


async def _freeze_controller(day: Day) -> None:
    frozen = await day.active()
    day.send(frozen, signal.SIGSTOP)
    try:
        await day.playground.active(day.session, other_than=int(frozen.rpartition("-")[2]))
    finally:
        day.send(frozen, signal.SIGCONT)


async def _forget_freeze(day: Day) -> None:
    await day.do(f"freeze --for 1m {_WHY}")
    found = json.loads((await day.session.get(znode_paths.MAINTENANCE))[0])
    found["freeze"]["until_ms"] = 1
    await day.write(znode_paths.MAINTENANCE, json.dumps(found).encode())


FAULTS = (
    Fault(
        "a broker is killed",
        _kill_broker,
        (Expected("health", ("broker 2 is gone",), 1), Expected("brokers", ("gone",))),
        _start_broker,
    ),
    Fault(
        "a broker is frozen",
        _freeze_broker,
        (
            Expected("health", ("broker 2 is gone",), 1),
            Expected("explain broker 2", ("it is not registered",)),
        ),
        _thaw_broker,
    ),
    Fault(
        "a broker comes and goes",
        _flap,
        (
            Expected("health", ("broker 2 comes and goes",), 1),
            Expected("brokers", ("flapping",)),
            Expected("explain broker 2", ("without a clean stop",)),
        ),
        _calm,
    ),
    Fault(
        "a partition has no leader",
        _lonely,
        (
            Expected("health", ("without a leader that is alive: lonely-0",), 1),
            Expected("explain partition lonely 0", ("the return of any of [2]",)),
        ),
        _end_lonely,
    ),
    Fault(
        "too few replicas in sync",
        _strict,
        (
            Expected("health", ("below min.insync.replicas",), 1),
            Expected("partitions --under-min-isr", ("strict",)),
            Expected("explain partition strict 0", ("broker 2 returns",)),
        ),
        _end_strict,
    ),
    Fault(
        "a deletion waits for a broker that never returns",
        _stuck_deletion,
        (Expected("explain deletion doomed", ("broker 2",)), Expected("health", ("broker 2 is gone",), 1)),
        _forget,
    ),
    Fault(
        "the target of a reassignment is gone",
        _stuck_move,
        (Expected("explain reassignment moving 0", ("2",)), Expected("health", ("broker 2 is gone",), 1)),
        _end_move,
    ),
    Fault(
        "a data directory fails",
        _fail_directory,
        (
            Expected("health", ("spread-0",), 1),
            Expected("explain partition spread 0", ("the failed disk of broker 2 is repaired",)),
            Expected("explain broker 2", ("repaired or replaced, and it is restarted",)),
        ),
        _replace_directory,
    ),
    Fault(
        "a topic is wiped and created anew",
        _wipe_topic,
        (
            Expected("health", ("broker 2 does not take all pushes", "INCONSISTENT_TOPIC_ID"), 1),
            Expected("explain partition wiped 0", ("refused to lead it", "move that replica's folder away")),
        ),
        _move_folder,
    ),
    Fault(
        "a partition state is edited by hand",
        _edit_state,
        (Expected("history --kind audit", ("payments-0", "somebody wrote")),),
        _nothing,
    ),
    Fault(
        "a partition state is garbage",
        _spoil_state,
        (Expected("history --kind audit", ("payments-0", "did not decode")),),
        _nothing,
    ),
    Fault(
        "a topic is garbage",
        _spoil_topic,
        (Expected("health", ("unreadable znode: /brokers/topics/payments",), 1),),
        _mend_topic,
    ),
    Fault(
        "somebody deletes the znode of the controller",
        _delete_controller,
        (Expected("history --kind controller", ("does not belong to this session",)),),
        _nothing,
    ),
    Fault(
        "the controller epoch is stolen",
        _steal_epoch,
        (Expected("controllers history", ("or it was fenced",)),),
        _end_epoch,
    ),
    Fault(
        "a controller is frozen",
        _freeze_controller,
        (Expected("controllers history", ("session",)),),
        _nothing,
    ),
    Fault(
        "no controller is left",
        _kill_controllers,
        (Expected("health", ("no controller is active",), 1),),
        _start_controllers,
    ),
    Fault(
        "a forgotten pause",
        _commands(f"maintenance pause {_WHY}"),
        (Expected("health", ("paused by the playground",), 1),),
        _commands(f"maintenance resume {_WHO}"),
    ),
    Fault(
        "a forgotten maintenance",
        _commands(f"maintenance enter {_WHY}"),
        (Expected("health", ("maintenance by the playground",), 1),),
        _commands(f"maintenance leave {_WHO}"),
    ),
    Fault(
        "a forgotten freeze",
        _forget_freeze,
        (
            Expected("health", ("frozen by the playground", "overdue: pctl unfreeze"), 1),
            Expected("explain controller", ("pctl unfreeze ends that",)),
        ),
        _commands(f"unfreeze {_WHO}"),
    ),
    Fault(
        "a forgotten drain",
        _commands(f"maintenance drain 1 {_WHY}"),
        (
            Expected("brokers", ("drained",)),
            Expected("explain broker 1", ("kept free of leaderships by the playground",)),
        ),
        _commands(f"maintenance undrain 1 {_WHO}"),
    ),
    Fault("a wrong chroot", _nothing, (), _nothing),
    Fault(
        "a typo in a configuration",
        _nothing,
        (Expected("config set retention.mss=1 --topic orders --yes", ("is not known", "retention.ms"), 1),),
        _nothing,
    ),
)


#: Faults of the short form.
SHORT = 3


async def gameday(playground: Playground, session: Session, faults: Sequence[Fault] = FAULTS) -> None:
    """The faults one by one, under load. Raises PlaygroundError at the first of which the wrong thing is said, or that
    does not mend."""
    _, workload = await prepare(playground, session)
    day = Day(playground, session)
    for number, fault in enumerate(faults, 1):
        playground.say(f"{number} of {len(faults)}: {fault.name}", "yellow")
        await fault.make(day)
        for expected in _expected(playground, fault):
            if problem := await day.says(expected):
                raise PlaygroundError(f"{fault.name}: {problem}")
            playground.say(f"  pctl {expected.command} says: {'; '.join(expected.words)}")
        await fault.mend(day)
        await day.playground.active(session)
        await day.do("wait --until stable")
        playground.say("  mended", "green")
    await workload.verdict(session)


async def short_gameday(playground: Playground, session: Session) -> None:
    """The first faults only. Raises PlaygroundError, as ``gameday``."""
    await gameday(playground, session, FAULTS[:SHORT])


def _expected(playground: Playground, fault: Fault) -> tuple[Expected, ...]:
    if fault.expected:
        return fault.expected
    above, _, name = playground.connect.rpartition("/")
    return (Expected(f"--zookeeper {above} cluster", ("there is no cluster at", f"/{name}"), 1),)
