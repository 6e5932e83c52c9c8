"""What a handler does by its context: whom it tells what, and what it reports."""

from __future__ import annotations

import msgspec

from controller.core.config_keys import UNCLEAN
from controller.core.context import CoreSettings, EventContext, Handler
from controller.core.effects import Problem
from controller.core.model import Partition
from controller.core.partitions.leader_epochs import raise_leader_epochs
from controller.core.reasons import NewerController
from controller.core.records import Rejection
from controller.core.znode_paths import BROKER_DEFAULTS
from tests.support.core.harness import MachineHarness, bare
from tests.support.core.world import World, state


def test_another_problem_of_the_same_znode_is_reported_too() -> None:
    rig = MachineHarness.active(World(1))

    def report(context: EventContext) -> None:
        for problem in ("first", "first", "second"):
            context.problem(Problem("/brokers/ids/1", problem))

    rig.do(report)
    assert [r.reason for r in rig.recorded(Rejection)] == ["/brokers/ids/1: first", "/brokers/ids/1: second"]


def test_nobody_is_told_what_a_newer_controller_wrote() -> None:
    newer = state(-1, [1], 3, 3, controller_epoch=9)
    rig = bare((1, 2), {("t", 0): [1, 2], ("t", 1): [1, 2]}, {("t", 0): newer, ("t", 1): state(1, [1, 2])})
    rig.forget()

    def tell(context: EventContext) -> None:
        partitions = [rig.partition("t", 0), rig.partition("t", 1)]
        for partition in partitions:
            context.push_leadership([((1, 2), partition)])
        context.push_metadata(partitions)

    rig.do(tell)
    assert {line.split()[2] for line in rig.lines("LISR", "UMR")} == {"t-1"}


def test_what_everybody_was_told_before_a_failure_is_not_told_after_it() -> None:
    rig = bare((1, 2), {("t", 0): [1, 2], ("t", 1): [1, 2]}, {("t", 0): state(1, [1, 2])})
    known, unknown = rig.partition("t", 0), rig.partition("t", 1)
    untold: list[list[Partition]] = []

    def tell(context: EventContext) -> None:
        untold.append(context.unnotified([known, unknown]))
        context.push_everything()
        untold.append(context.unnotified([known, unknown]))
        context.forget_notified()
        untold.append(context.unnotified([known, unknown]))

    rig.do(tell)
    assert untold == [[known, unknown], [unknown], [known, unknown]]


def test_a_topic_made_again_is_another_one() -> None:
    world = World(1)
    world.create_topic("t", {0: [1]})
    rig = MachineHarness.active(world)
    former = rig.partition()
    world.delete_topic("t")
    rig.run()
    world.create_topic("t", {0: [1]})
    rig.run()
    present: list[bool] = []
    rig.do(lambda context: present.extend(map(context.is_present, (former, rig.partition()))))
    assert present == [False, True]


def test_the_default_of_the_brokers_goes_over_the_controller_s_own_setting() -> None:
    world = World(1)
    world.put_node(BROKER_DEFAULTS, {UNCLEAN: "false"})
    rig = MachineHarness.active(world, settings=CoreSettings(unclean_leader_election_enable=True))
    found: list[bool] = []
    rig.do(lambda context: found.append(context.unclean_default))
    assert found == [False]


def test_a_new_leader_epoch_is_above_the_floor() -> None:
    keys = [("t", n) for n in range(3)]
    rig = bare((1,), {key: [1] for key in keys}, {key: state(1, [1], 5, 5) for key in keys})
    rig.world.edited.update(keys)
    floors = dict(zip(rig.cluster.partitions(), (5, 6, 7), strict=True))
    rig.drive(lambda context: raise_leader_epochs(context, floors, "test"))
    assert [rig.stored(*key)[1] for key in keys] == [6, 7, 8]


def test_what_has_no_state_or_a_newer_controller_s_gets_no_new_leader_epoch() -> None:
    keys = [("t", n) for n in range(2)]
    newer = msgspec.structs.replace(state(1, [1], 5, 5), controller_epoch=9)
    rig = bare((1,), {key: [1] for key in keys}, {keys[0]: newer})
    failed: list[object] = []

    def handler(context: EventContext) -> Handler[None]:
        found = yield from raise_leader_epochs(context, dict.fromkeys(rig.cluster.partitions(), 9), "test")
        failed.extend(found.items())

    rig.drive(handler)
    assert failed == [(rig.partition("t", 0), NewerController(9, rig.cluster.controller_epoch))]
    assert rig.commits() == []
