"""``pctl brokers decommission``, ``replace``, ``swap``, ``forget``: what is on whole brokers goes elsewhere, or is
given up.

What is under way is in ZooKeeper alone, as reassignments: whoever runs a verb again goes on where it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, wraps
from typing import Any, NamedTuple, NoReturn

import click
from google.protobuf.message import Message

from controller.cli.common.cluster_state import brokers_text, fail_without_brokers
from controller.cli.common.confirmation import confirm, nothing_to_do
from controller.cli.common.lists import broker_ids
from controller.cli.common.options import BROKER, Options, Verb, on_cluster
from controller.cli.common.output import fail, note
from controller.cli.common.progress import Progress, follow, no_wait_option
from controller.cli.common.requests import refusals, report
from controller.cli.computed.dry_run import print_dry_run, run_on_copy
from controller.cli.pctl.maintenance import (
    Given,
    Step,
    change_options,
    drain_step,
    dry_run_steps,
    refusals_of,
    send_steps,
)
from controller.cli.pctl.moving.load import note_copied, print_load, sizes_of, targets
from controller.cli.pctl.moving.throttle import lift, limit_steps, limited_for, throttle_option, throttled
from controller.cli.pctl.reassign import MOVE_SAFETY, Wanted, changes_request, ongoing_moves, send_changes
from controller.core.effects import TopicInfo
from controller.core.model import BrokerIds
from controller.core.names import counted
from controller.core.partitions.replica_placement import PlacementError
from controller.core.reassignment.vacating import Key, Sizes, swapped, vacated
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from proto.gen import maintenance_pb2 as pb

#: Partitions in one request.
_BATCH = 1000

#: New replicas of the partitions that change, from all as they are and their sizes. Raises PlacementError.
Plan = Callable[[ClusterState, Mapping[Key, BrokerIds], Sizes], dict[Key, BrokerIds]]


class Work(NamedTuple):
    """``leaving``: nothing is to be left on these brokers. ``drain``: of these, those that get no leaderships
    meanwhile. ``question``: asked before it begins."""

    plan: Plan
    leaving: tuple[int, ...]
    drain: tuple[int, ...]
    question: str


class How(NamedTuple):
    """The options of verbs that move replicas."""

    given: Given
    no_wait: bool
    throttle: int | None


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of verbs that move replicas; collected as ``how``."""

    @wraps(command)
    def collected(
        options: Options, /, given: Given, no_wait: bool, throttle: int | None, **values: Any
    ) -> Any:
        return command(options, how=How(given, no_wait, throttle), **values)

    found: Callable[..., Any] = click.pass_obj(collected)
    found = no_wait_option("everything is moved")(found)
    return change_options(reason_required=True)(throttle_option(found))


@click.command(cls=Verb)
@click.argument("brokers", nargs=-1, required=True, callback=broker_ids, metavar="BROKER...")
@click.option(
    "--to",
    "to_text",
    multiple=True,
    callback=broker_ids,
    help="move to these brokers: 1,2,3 [default: all others]",
)
@_options
@on_cluster
async def decommission(
    options: Options, session: Session, brokers: tuple[int, ...], to_text: tuple[int, ...], how: How
) -> None:
    """Move every replica off brokers, so that they can go for good. Run it again to go on.

    Racks are kept, and load is spread by bytes where brokers tell sizes, else by replicas. The brokers are drained
    first, and stay so. They may be gone already: those are not drained.
    """

    def plan(state: ClusterState, current: Mapping[Key, BrokerIds], sizes: Sizes) -> dict[Key, BrokerIds]:
        fail_without_brokers(state, to_text, "--to: ")
        chosen = [b for id_, b in state.brokers.items() if not to_text or id_ in to_text]
        # Whoever stays keeps its replicas: only where new ones go is chosen.
        others = [b for id_, b in state.brokers.items() if id_ not in brokers]
        return vacated(
            current, brokers, chosen if to_text else others, sizes=sizes, avoided=state.maintenance.drained
        )

    question = f"Move all replicas off {brokers_text(brokers)}?"
    await _move(options, session, Work(plan, brokers, brokers, question), how)


@click.command(cls=Verb)
@click.argument("old", type=BROKER)
@click.argument("new", type=BROKER)
@_options
@on_cluster
async def replace(options: Options, session: Session, old: int, new: int, how: How) -> None:
    """Move every replica of broker OLD to broker NEW, in the same places of the order of preference.

    What NEW holds already goes to other brokers. OLD may be gone. Run it again to go on.
    """
    if old == new:
        raise click.UsageError("OLD and NEW are the same broker")

    def plan(state: ClusterState, current: Mapping[Key, BrokerIds], sizes: Sizes) -> dict[Key, BrokerIds]:
        fail_without_brokers(state, [new])
        drained = state.maintenance.drained
        others = state.brokers.values()
        return vacated(current, [old], others, sizes=sizes, avoided=drained, preferred=[new])

    question = f"Move all replicas of broker {old} to broker {new}?"
    await _move(options, session, Work(plan, (old,), (old,), question), how)


@click.command(cls=Verb)
@click.argument("one", type=BROKER)
@click.argument("other", type=BROKER)
@_options
@on_cluster
async def swap(options: Options, session: Session, one: int, other: int, how: How) -> None:
    """Exchange all replicas of two brokers, such as of two racks or of different disks."""
    if one == other:
        raise click.UsageError("ONE and OTHER are the same broker")

    def plan(state: ClusterState, current: Mapping[Key, BrokerIds], sizes: Sizes) -> dict[Key, BrokerIds]:
        del sizes
        fail_without_brokers(state, [one, other])
        if moving := [f"{topic}-{number}" for topic, number in _moving(state, (one, other))]:
            # Run again, it would swap back what is on its way.
            fail(
                f"{counted(len(moving), 'partition')} of these brokers are being reassigned ({', '.join(moving[:5])}): "
                "pctl wait, then swap what is left",
                EXIT_REFUSED,
            )
        return swapped(current, one, other)

    question = f"Exchange all replicas of brokers {one} and {other}?"
    await _move(options, session, Work(plan, (), (), question), how)


async def _move(options: Options, session: Session, work: Work, how: How) -> None:
    given = how.given
    cluster_state = await cluster_reader.look(session)
    unknown = [b for b in work.leaving if not _known(cluster_state, b)]
    if unknown:
        fail(f"{brokers_text(unknown)}: not registered, and no partition names it")
    current = targets(cluster_state)
    sizes = await sizes_of(options, session)
    try:
        planned = work.plan(cluster_state, current, sizes)
    except PlacementError as error:
        fail(str(error), EXIT_REFUSED)
    drain = [
        drain_step(b, True, given)
        for b in work.drain
        if b in cluster_state.brokers and b not in cluster_state.maintenance.drained
    ]
    waiting = [*planned, *(key for key in _moving(cluster_state, work.leaving) if key not in planned)]
    moved = {key: planned.get(key, current[key]) for key in waiting}
    if given.dry_run:
        limit = limit_steps(cluster_state, moved, how.throttle) if moved else []
        await _dry_run(options, session, cluster_state, current, planned, sizes, drain, limit)
    if not waiting and not drain:
        if work.leaving:
            _say_empty(cluster_state, work.leaving)
        nothing_to_do(options, "no replica is to be moved")
        sys.exit(await _lift(options, session, work, how, ()))
    print_load(options, cluster_state, current, planned, sizes)
    note_copied(current, planned, sizes)
    if already := len(waiting) - len(planned):
        note(f"{counted(already, 'partition')} more are on their way already")
    confirm(work.question, yes=given.yes)
    if code := await send_steps(options, session, drain):
        sys.exit(code)
    if how.throttle is not None:
        await throttled(options, session, cluster_state, moved, how.throttle)
    code = await _send(options, session, planned, given.reason)
    if how.no_wait:
        note("run it again to see how far it is")
        sys.exit(code)
    await _follow(options, session, work, waiting)
    code = await _lift(options, session, work, how, {topic for topic, _ in moved}) or code
    if work.leaving:
        _say_empty(await cluster_reader.look(session), work.leaving)
    sys.exit(code)


async def _lift(options: Options, session: Session, work: Work, how: How, topics: Collection[str]) -> int:
    """With ``--throttle``: remove the limits on these topics, and on those that an earlier run, which was interrupted,
    set them on. Returns an exit code."""
    if how.throttle is None:
        return 0
    now = await cluster_reader.look(session, states=False, configs=True)
    ongoing = await ongoing_moves(options, session, [])
    return await lift(options, session, {*topics, *limited_for(now, work.leaving)}, (), ongoing)


async def _dry_run(
    options: Options,
    session: Session,
    cluster_state: ClusterState,
    current: Mapping[Key, BrokerIds],
    planned: Wanted,
    sizes: Sizes,
    drain: Sequence[Step],
    limit: Sequence[tuple[str, Message]],
) -> NoReturn:
    """Print the load before and after, and all writes until the end; ends the program."""
    if options.output == "table":
        print_load(options, cluster_state, current, planned, sizes)
    note_copied(current, planned, sizes)
    steps = [(step.method, step.request) for step in drain]
    if not planned:
        await dry_run_steps(options, session, drain)
        sys.exit(0)
    moves = ("AlterPartitionReassignments", changes_request(planned))
    trial = await run_on_copy(options, session, *steps, *limit, moves)
    if code := report(refusals_of(drain, trial.answers)):
        # No replica moves then.
        sys.exit(code)
    print_dry_run(options, trial)
    answers = trial.answers[-1].responses
    sys.exit(report(refusals((f"{r.topic}-{r.partition}", r) for r in answers), MOVE_SAFETY))


async def _send(options: Options, session: Session, planned: Wanted, reason: str) -> int:
    """Returns the exit code, as of one request: a failure counts more than what is refused for safety."""
    keys, codes = list(planned), [0]
    for start in range(0, len(keys), _BATCH):
        part = {key: planned[key] for key in keys[start : start + _BATCH]}
        codes.append((await send_changes(options, session, part, reason))[0])
    if EXIT_FAILED in codes:
        return EXIT_FAILED
    return max(codes)


# --- how far it is --------------------------------------------------------------------------------------------


def _known(cluster_state: ClusterState, broker_id: int) -> bool:
    return broker_id in cluster_state.brokers or any(
        broker_id in _named(info, number)
        for info in cluster_state.topics.values()
        for number in info.partitions
    )


def _named(info: TopicInfo, number: int) -> set[int]:
    """Brokers that hold or get a replica, stray ones included."""
    return {*info.partitions[number], *info.queued.get(number, ()), *info.stray.get(number, ())}


def _moving(cluster_state: ClusterState, ids: Collection[int]) -> list[Key]:
    """Partitions that still have a replica or a stray one on one of these brokers, and are reassigned or cleaned up;
    stray ones on brokers that are gone are deleted when these return, so that nothing waits for them."""
    found = []
    for name, info in cluster_state.topics.items():
        for number, replicas in info.partitions.items():
            reassigned = any(number in field for field in (info.adding, info.removing, info.queued))
            left = (set(replicas) if reassigned else set()) | {
                b for b in info.stray.get(number, ()) if b in cluster_state.brokers
            }
            if left.intersection(ids):
                found.append((name, number))
    return found


async def _follow(options: Options, session: Session, work: Work, keys: list[Key]) -> None:
    progress = await follow(
        options, "partitions are moved", partial(_progress, options, session, work, keys), patient=True
    )
    if progress.left:
        why = f" ({'; '.join(progress.reasons[:5])})" if progress.reasons else ""
        fail(
            f"nothing was done for {options.timeout_s:g} s: {progress.left} of {counted(len(keys), 'partition')} are "
            f"left{why}; it continues in the background, run it again to see how far it is"
        )


async def _progress(options: Options, session: Session, work: Work, keys: list[Key]) -> Progress:
    """A partition is done once it is not reassigned, and its old replica is deleted where its broker lives."""
    ongoing = {(m.topic, m.partition): m for m in await ongoing_moves(options, session, keys)}
    cluster_state = await cluster_reader.look(
        session, topics=sorted({topic for topic, _ in keys}), states=False
    )
    unclean = set(_moving(cluster_state, work.leaving)) & set(keys)
    left = [key for key in keys if key in ongoing or key in unclean]
    reasons = [
        f"{topic}-{number}: {'; '.join(ongoing[topic, number].reasons) or 'about to be completed'}"
        if (topic, number) in ongoing
        else f"{topic}-{number}: its old replica is being deleted"
        for topic, number in left
    ]
    return Progress(len(left), len(keys), tuple(reasons))


def _say_empty(cluster_state: ClusterState, ids: Collection[int]) -> None:
    """Say of each broker that nothing is left on it; ends the program where something is."""
    for broker_id in ids:
        assigned = [
            (name, number)
            for name, info in cluster_state.topics.items()
            for number in info.partitions
            if broker_id in info.partitions[number] or broker_id in info.queued.get(number, ())
        ]
        stray = sum(broker_id in ids for info in cluster_state.topics.values() for ids in info.stray.values())
        if assigned:
            deleting = sorted({name for name, _ in assigned} & set(cluster_state.deleting))
            when = f" once {', '.join(deleting[:10])} is deleted" if deleting else ""
            if deleting and broker_id not in cluster_state.brokers:
                when += f"; if the broker does not return, pctl brokers forget {broker_id}"
            named = ", ".join(f"{name}-{number}" for name, number in assigned[:10])
            fail(
                f"broker {broker_id} still has {counted(len(assigned), 'partition')}: {named}; run it again{when}"
            )
        if broker_id in cluster_state.brokers and not stray:
            note(f"nothing is left on broker {broker_id}: it may be stopped for good")
        elif broker_id in cluster_state.brokers:
            fail(f"broker {broker_id} has not yet deleted {counted(stray, 'old replica')}; run it again")
        else:
            back = f"; {counted(stray, 'old replica')} would be deleted if it came back" if stray else ""
            note(f"nothing is assigned to broker {broker_id}, which is gone{back}")


# --- forget --------------------------------------------------------------------------------------------------


@click.command(cls=Verb)
@click.argument("broker", type=BROKER)
@change_options(reason_required=True)
@click.pass_obj
@on_cluster
async def forget(options: Options, session: Session, broker: int, given: Given) -> None:
    """Declare that a broker will not return: deletions do not wait for it any more.

    What it may still hold is remembered, and deleted should it return after all. Its partitions stay assigned to it:
    pctl brokers decommission moves them.
    """
    request = pb.ForgetBrokerRequest(broker_id=broker, reason=given.reason, author=given.author)
    step = Step("ForgetBroker", request, f"broker {broker}")
    if given.dry_run:
        await dry_run_steps(options, session, [step])
        return
    confirm(
        f"Forget broker {broker}? The only copy of a record that it alone holds is given up.", yes=given.yes
    )
    if code := await send_steps(options, session, [step]):
        sys.exit(code)
    state = await cluster_reader.look(session)
    named = sum(broker in p.replicas for p in state.partitions)
    note(f"broker {broker} is forgotten: no deletion waits for it")
    if named:
        name = "names" if named == 1 else "name"
        note(f"{counted(named, 'partition')} still {name} it: pctl brokers decommission {broker}")
