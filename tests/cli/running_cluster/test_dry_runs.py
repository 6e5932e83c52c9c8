"""What a dry run prints is what is written then: each verb tried, and carried out, on a running cluster."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.exceptions import NoNodeError

from tests.support.cli.operator import Operator
from tests.support.runtime.callers import calling

pytestmark = pytest.mark.slow

Tree = dict[str, Any]
NOTIFIED = "/config/changes/config_change_"
SIGNED = ("--reason=new disks", "--author=ann")
#: What brokers and controllers write of their own accord, whatever is asked.
OTHERS = re.compile(
    r"/(brokers/ids|controller|controller_epoch|controllers/ids|isr_change_notification|"
    r"log_dir_event_notification|latest_producer_id_block)(/|$)"
)
#: Differ from one time to the next.
ASIDE = ("leader_epoch", "controller_epoch", "topic_id", "at_ms")


def tree(operator: Operator, path: str = "") -> Tree:
    """Every znode's text, by path."""
    found: Tree = {}
    try:
        for name in operator.zk.get_children(path or "/"):
            below = f"{path}/{name}"
            if not OTHERS.match(below):
                found[below] = operator.zk.get(below)[0].decode()
                found.update(tree(operator, below))
    except NoNodeError:
        pass
    return found


def plain(path: str, text: str | None) -> Any:
    """What a znode says, without epochs, versions and ids; None where it is absent."""
    if not text:
        return text

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: sorted(v) if k == "isr" else without(v) for k, v in value.items() if k not in ASIDE}
        return value

    return without(json.loads(text))


def changes(before: Tree, after: Tree) -> Tree:
    """By path what is there afterwards, where that is something else. Notifications have numbers of their own."""
    changed = {}
    for path in before.keys() | after.keys():
        was, now = plain(path, before.get(path)), plain(path, after.get(path))
        if was != now:
            changed[re.sub(r"config_change_\d+$", "config_change_", path)] = now
    return changed


def planned(before: Tree, tried: Any) -> Tree:
    """The same of a dry run: the last write of each path counts."""
    last = {row["path"]: row["new"] for row in tried["writes"]}
    return changes(
        {p: t for p, t in before.items() if p in last}, {p: t for p, t in last.items() if t is not None}
    )


def automatic(operator: Operator) -> None:
    del operator


def hand_over(operator: Operator) -> None:
    operator.ok("elect", "leader", "2", "--partition=tried-0")


def lose_the_leader(operator: Operator) -> None:
    with operator.controller_away():
        operator.topic_by_hand("tried-lost", [98, 1], 98, [98])
    operator.wait(lambda: operator.state("tried-lost", 0)["leader"] == -1)


@contextmanager
def frozen_broker(operator: Operator) -> Iterator[None]:
    """Broker 3 copies nothing."""
    member = operator.cluster.members["broker-3"]
    member.signal(signal.SIGSTOP)
    try:
        operator.ok(
            *("reassign", "execute", "--topic=tried", "--partition=0", "--replicas=3", "--yes", "--no-wait")
        )
        yield
    finally:
        member.signal(signal.SIGCONT)


class Case(NamedTuple):
    """A verb; what is done before, and what goes on meanwhile."""

    verb: tuple[str, ...]
    before: Callable[[Operator], None] = automatic
    meanwhile: Callable[[Operator], AbstractContextManager[None]] = lambda _: nullcontext()
    options: tuple[str, ...] = ("--yes",)


MOVE = ("reassign", "execute", "--topic=tried", "--partition=0")
CASES = [
    Case(("topics", "create", "tried", "--replica-assignment=1:2,2:3", "--config=retention.ms=5")),
    Case(("topics", "alter", "tried", "--partitions=3", "--replica-assignment=3:1")),
    Case(("config", "set", "retention.ms=7", "x=y", "--topic=tried", "--force")),
    Case(("config", "delete", "x", "--topic=tried")),
    Case(("config", "set", "log.retention.ms=7", "--broker=1")),
    Case(("config", "set", "unclean.leader.election.enable=false", "--all-brokers")),
    Case(("elect", "leader", "2", "--partition=tried-0")),
    Case(("elect", "preferred", "--topic=tried")),
    Case(("elect", "--topic=tried"), hand_over),
    Case(("elect", "unclean", "--topic=tried-lost"), lose_the_leader),
    Case(("maintenance", "drain", "1", *SIGNED)),
    Case(("maintenance", "undrain", "1", "--author=ann")),
    Case(("maintenance", "pause", *SIGNED)),
    Case(("maintenance", "resume")),
    Case(("maintenance", "enter", *SIGNED)),
    Case(("maintenance", "leave")),
    Case(("stoppable", "3", "--override", *SIGNED)),
    Case(("stoppable", "3", "--withdraw")),
    Case((*MOVE, "--replicas=3,1")),
    Case((*MOVE, "--replicas=1,3")),
    Case((*MOVE, "--replicas=2")),
    Case(("reassign", "cancel", "--all"), meanwhile=frozen_broker, options=("--yes", "--no-wait")),
    # The second one has a replica on a broker that is not there: it stays, and so does its marker.
    Case(("topics", "delete", "tried", "tried-lost"), options=("--yes", "--no-wait")),
]


def test_dry_runs_say_what_is_written_then(operator: Operator) -> None:
    for case in CASES:
        case.before(operator)
        with case.meanwhile(operator):
            before = tree(operator)
            tried = operator.json(*case.verb, "--dry-run")
            assert tried["source"] == "controller", case.verb
            assert tree(operator) == before, f"{case.verb}: a dry run changes nothing"
            expected = planned(before, tried)
            operator.ok("--timeout=60", *case.verb, *case.options)
        operator.wait(lambda: changes(before, tree(operator)) == expected)  # noqa: B023
        assert expected or case.verb[:2] == ("elect", "preferred"), f"{case.verb}: nothing was planned"


def test_a_throttle_is_part_of_a_dry_run(operator: Operator, tmp_path: Path) -> None:
    operator.ok("topics", "create", "slowly", "--replica-assignment=1:2")
    before = tree(operator)
    move = ("reassign", "execute", "--topic=slowly", "--partition=0", "--replicas=3,2", "--throttle=9000000")
    done = operator.ok("-o", "json", *move, "--dry-run")
    tried = json.loads(done.stdout)
    assert "the limits are removed when everything is moved" in done.stderr
    expected = planned(before, tried)
    assert {"/config/topics/slowly", *(f"/config/brokers/{n}" for n in (1, 2, 3))} <= expected.keys()
    operator.ok(*move, "--yes", "--no-wait")

    def as_planned() -> bool:
        # Of notifications each has a znode of its own.
        found = changes(before, tree(operator))
        return {**found, NOTIFIED: None} == {**expected, NOTIFIED: None}

    operator.wait(as_planned)
    plan = tmp_path / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"slowly","partition":0,"replicas":[3,2]}]}')
    assert "the throttle is removed" in operator.ok("reassign", "verify", str(plan)).stderr
    operator.ok("topics", "delete", "slowly", "--yes")


def test_draining_that_is_refused_is_said_before_anything_moves(operator: Operator) -> None:
    """A broker that is the last to lead cannot be drained, and so not be emptied."""
    operator.ok("topics", "create", "stuck", "--replica-assignment=1:2")
    operator.ok("maintenance", "drain", "2", "3", "--yes", *SIGNED)
    try:
        asked = ("brokers", "decommission", "1", *SIGNED)
        tried, done = (operator.run(*asked, option) for option in ("--dry-run", "--yes"))
        assert (tried.exit_code, done.exit_code) == (3, 3)
        for found in tried, done:
            assert "POLICY_VIOLATION: drain: broker 1 is the last one" in found.stderr.splitlines()[-1]
        assert "stuck" not in tried.stdout
    finally:
        operator.ok("maintenance", "undrain", "2", "3", "--yes")
        operator.ok("topics", "delete", "stuck", "--yes")


def test_what_only_the_controller_knows_counts(operator: Operator) -> None:
    """A broker that is about to leave leads nothing; ZooKeeper does not say so."""
    operator.ok("topics", "create", "leaving", "--replica-assignment=1:2:3")

    async def leave() -> None:
        async with calling(json.loads(operator.zk.get("/controller")[0])["endpoint"]) as caller:
            await caller.shut_down(2, operator.zk.get("/brokers/ids/2")[1].czxid)

    asyncio.run(leave())
    try:
        tried = operator.json("maintenance", "drain", "1", *SIGNED, "--dry-run")
        (state,) = [row for row in tried["writes"] if row["path"].startswith("/brokers/topics/leaving/")]
        assert json.loads(state["new"])["leader"] == 3
    finally:
        operator.ok("maintenance", "cancel-shutdown", "2", "--yes")
    operator.wait(lambda: len(operator.state("leaving", 0)["isr"]) == 3)


def test_without_a_controller_it_is_made_from_zookeeper_and_said_so(operator: Operator) -> None:
    operator.ok("topics", "create", "unled", "--replica-assignment=1:2")
    with operator.controller_away():
        for verb in (
            ("topics", "create", "later", "--partitions=1", "--replication-factor=1"),
            ("topics", "alter", "unled", "--partitions=2"),
            ("topics", "delete", "unled"),
            ("reassign", "execute", "--topic=unled", "--partition=0", "--replicas=3,2"),
            ("elect", "leader", "2", "--topic=unled"),
            ("config", "set", "--topic=unled", "retention.ms=9"),
            ("maintenance", "drain", "1", *SIGNED),
        ):
            done = operator.ok("-o", "json", *verb, "--dry-run")
            made = json.loads(done.stdout)
            assert (made["source"], made["writes"] != []) == ("zookeeper", True), verb
            assert "from ZooKeeper alone (no controller is active)" in done.stderr
        refused = operator.run("stoppable", "3", "--approve", *SIGNED, "--dry-run")
        assert (refused.exit_code, "no controller is active" in refused.stdout) == (3, True)
    assert operator.zk.exists("/brokers/topics/unled")


def test_the_table_shows_the_whole_course(operator: Operator) -> None:
    operator.ok("topics", "create", "shown", "--replica-assignment=1:2")
    move = ("reassign", "execute", "--topic=shown", "--partition=0", "--replicas=3,2", "--dry-run")
    lines = operator.ok(*move).stdout.splitlines()
    assert [line for line in lines if line.endswith(":")] == [
        "at once:",
        "once the new replicas are in sync:",
        "once brokers have deleted their replicas:",
        "partitions pushed to each broker:",
    ]
    assert not [line for line in lines if line != line.rstrip()]
    needless = operator.ok("-o", "json", "elect", "--topic=shown", "--dry-run")
    assert (json.loads(needless.stdout)["writes"], "nothing to do" in needless.stderr) == ([], True)
    operator.ok("topics", "delete", "shown", "--yes")
