"""Requests whose controller dies, or loses ZooKeeper, while they are under way: callers are told, nothing is half done,
and asking again gives the right answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from proto.gen import admin_service_pb2 as pb
from proto.gen import controller_service_pb2
from tests.provers.durability.pairs import Pair, pair
from tests.provers.durability.requests_at_death import CASES

pytestmark = pytest.mark.slow

#: Clusters side by side, each below a chroot of its own.
LANES = 3
#: What only looks.
_LOOKING = ("Audit", "Describe", "List", "Explain", "Plan", "DryRun", "Check", "Watch")
#: They end a term or begin one, which tests/runtime/election/test_takeover.py and tests/attack/test_poison.py look at.
_WHO_LEADS = {"ResignController", "ClaimController", "ReleaseQuarantine"}


def test_every_rpc_that_changes_something_has_a_case() -> None:
    services = (
        pb.DESCRIPTOR.services_by_name["AdminService"],
        controller_service_pb2.DESCRIPTOR.services_by_name["ControllerService"],
    )
    methods = {method.name for service in services for method in service.methods}
    assert {name for name in methods if not name.startswith(_LOOKING)} - _WHO_LEADS == set(CASES)


async def play(made: Pair, rounds: Sequence[tuple[str, bool]]) -> list[str]:
    """Kill at each request of a lane; what went wrong, in words."""
    failures = []
    for number, (method, landed) in enumerate(rounds):
        when = f"{method}, killed {'after' if landed else 'before'} its first write"
        try:
            asked = await CASES[method](made, f"topic-{number}")
            await made.idle()
            await made.killed_while(method, asked.request, landed=landed)
            await asked.check(await made.ask(method, asked.request), landed)
            await made.idle()
        except (AssertionError, pytest.fail.Exception) as error:
            failures.append(f"{when}: {error}")
    return failures


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_the_controller_is_killed_while_a_request_is_under_way(
    zookeeper_server: str, zookeeper: str, tmp_path: Path
) -> None:
    """Each request once, before or after its first write, drawn anew each time; CRASH_SEED repeats a draw, CRASH_ALL=1
    plays both."""
    seed = int(os.environ.get("CRASH_SEED", Random().randrange(10**6)))
    print(f"CRASH_SEED={seed}")
    draw = Random(seed)
    drawn = {method: draw.choice((False, True)) for method in CASES}
    both = os.environ.get("CRASH_ALL") == "1"
    rounds = [(m, landed) for m in CASES for landed in (False, True) if both or landed is drawn[m]]

    async def lane(number: int) -> list[str]:
        async with pair(f"{zookeeper}/lane-{number}", tmp_path / f"lane-{number}") as made:
            return await play(made, rounds[number::LANES])

    failures = await asyncio.gather(*(lane(number) for number in range(LANES)))
    assert [failure for found in failures for failure in found] == []
