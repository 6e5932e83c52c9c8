"""The playground's script of an operator's day: its steps are ``pctl`` commands, run as processes."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path

from controller.exit_codes import EXIT_REFUSED
from controller.playground.cluster import Playground, PlaygroundError, console, shell_with
from controller.playground.scripts import WRITTEN_TOPIC, in_sync, kill_broker, prepare, rejoined, restart
from controller.runtime.zookeeper.session import Session
from controller.workload.writers import now_us

#: Lines of a command's output that are shown.
LINES_SHOWN = 12
#: A topic that the script creates and deletes.
TOPIC = "audit"


async def _pctl(playground: Playground, command: str, expected: int = 0) -> None:
    """Run ``pctl`` and show its output. Raises PlaygroundError when it ends with another exit code."""
    playground.say(f"$ pctl {command}", "yellow")
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "pctl"),
        f"--zookeeper={playground.connect}",
        "--timeout=60",
        *shlex.split(command),
        env=shell_with(playground.operator_environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    lines = (await process.communicate())[0].decode().splitlines()
    for line in lines[:LINES_SHOWN]:
        console.print(f"            {line}", style="dim", markup=False)
    if len(lines) > LINES_SHOWN:
        console.print(f"            ({len(lines) - LINES_SHOWN} lines more)", style="dim")
    if process.returncode != expected:
        text = "\n".join(lines)
        raise PlaygroundError(f"pctl {command} ended with {process.returncode}, not {expected}: {text}")


async def operations(playground: Playground, session: Session) -> None:
    """Plan, drain, kill a broker and explain, reassign, and delete; all under load. Needs 4 brokers."""
    if playground.brokers < 4:
        raise PlaygroundError(f"script operations: needs at least 4 brokers, there are {playground.brokers}")
    _, workload = await prepare(playground, session)
    playground.say("may a broker stop? what happens if one is lost?", "green")
    await _pctl(playground, "stoppable 1")
    await _pctl(playground, "stoppable 1,2", EXIT_REFUSED)
    await _pctl(playground, "plan broker-loss 1")

    playground.say("broker 1 gets a new disk: it must lead nothing during that", "green")
    await _pctl(playground, "maintenance drain 1 --reason 'a new disk' --author 'the playground' --yes")
    await _pctl(playground, "brokers")
    await _pctl(playground, "maintenance undrain 1 --reason 'disk replaced' --author 'the playground' --yes")
    await _pctl(playground, "elect --all")

    event_us = now_us()
    await kill_broker(playground, session, 2)
    await workload.wait_for_writes(event_us, "the kill")
    await _pctl(playground, f"explain partition {WRITTEN_TOPIC} 1")
    await _pctl(playground, "history --broker 2 --kind leader --limit 5")
    await restart(playground, session, "broker-2")
    await rejoined(playground, session)

    playground.say("a topic is created, reassigned, and deleted", "green")
    await _pctl(playground, f"topics create {TOPIC} --replica-assignment 1:2,2:3")
    await _pctl(playground, f"reassign execute --topic {TOPIC} --partition 0 --replicas 4,3 --yes --dry-run")
    await _pctl(playground, f"reassign execute --topic {TOPIC} --partition 0 --replicas 4,3 --yes")
    await _pctl(playground, f"topics describe {TOPIC}")
    await _pctl(playground, f"topics delete {TOPIC} --yes --reason playground")
    await _pctl(playground, f"history --topic {TOPIC} --kind topic")
    await playground.until(session, "every replica in sync", in_sync)
    await workload.verdict(session)
