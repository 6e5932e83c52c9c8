"""Producer ids: no id is ever given out twice (reference, section 8.6)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.cluster.producer_ids import LAST_ID, ProducerIdBlock
from controller.core.handlers import not_controller
from controller.core.requests.brokers import AllocateProducerIds, AllocateProducerIdsReply
from controller.core.requests.errors import ErrorCode
from controller.core.znode_paths import PRODUCER_IDS
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World


def allocate(rig: MachineHarness, broker_id: int = 1, difference: int = 0) -> Any:
    (reply,) = rig.ask(AllocateProducerIds(broker_id, rig.world.brokers[1].epoch + difference))
    return reply


def test_blocks_follow_each_other() -> None:
    rig = MachineHarness.active(World(1, 2))
    assert allocate(rig) == AllocateProducerIdsReply(ErrorCode.NONE, 0, 1000)
    assert rig.world.nodes[PRODUCER_IDS].value == ProducerIdBlock(1, 0, 999)
    assert allocate(rig) == AllocateProducerIdsReply(ErrorCode.NONE, 1000, 1000)
    # The next controller goes on from what is stored.
    assert allocate(MachineHarness(rig.world, epoch=2).failover()).start == 2000


@pytest.mark.parametrize(
    ("broker_id", "difference", "error"),
    [
        (9, 0, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (1, 1, ErrorCode.STALE_BROKER_EPOCH),
        (1, -1, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_who_is_refused(broker_id: int, difference: int, error: ErrorCode) -> None:
    rig = MachineHarness.active(World(1))
    assert allocate(rig, broker_id, difference) == AllocateProducerIdsReply(error)
    assert PRODUCER_IDS not in rig.world.nodes
    assert error.name in rig.rejects()


def test_the_end_of_the_numbers_and_an_unreadable_node() -> None:
    rig = MachineHarness.active(World(1))
    rig.world.put_node(PRODUCER_IDS, ProducerIdBlock(1, 0, LAST_ID - 1000))
    assert allocate(rig).start == LAST_ID - 999
    assert allocate(rig).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.world.nodes[PRODUCER_IDS].value.end == LAST_ID
    rig.world.put_node(PRODUCER_IDS, ProducerIdBlock(1, 0, LAST_ID - 999))
    assert allocate(rig).error is ErrorCode.UNKNOWN_SERVER_ERROR
    rig.world.unreadable[PRODUCER_IDS] = "block_end: expected str"
    assert allocate(rig).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.cluster.problems[PRODUCER_IDS] == "block_end: expected str"


def test_another_writer_in_between() -> None:
    rig = MachineHarness.active(World(1))
    rivals = iter([ProducerIdBlock(7, 0, 999)])

    def fate(_: object) -> Fate:
        for block in rivals:
            rig.world.put_node(PRODUCER_IDS, block)
        return Fate.ANSWERED

    rig.fate = fate
    assert allocate(rig).start == 1000
    assert rig.world.nodes[PRODUCER_IDS].value == ProducerIdBlock(1, 1000, 1999)


@given(st.lists(st.sampled_from(Fate), max_size=12))
def test_no_id_is_given_out_twice(fates: list[Fate]) -> None:
    rig = MachineHarness.active(World(1))
    script = iter(fates)
    rig.fate = lambda _: next(script, Fate.ANSWERED)
    starts = [reply.start for reply in (allocate(rig) for _ in range(6)) if reply.error is ErrorCode.NONE]
    assert len(set(starts)) == len(starts)
    assert rig.world.nodes[PRODUCER_IDS].value.end >= max(starts) + 999


def test_a_block_whose_answer_is_lost_is_the_one_that_landed() -> None:
    rig = MachineHarness.active(World(1))
    fates = iter([Fate.LANDED, Fate.ANSWERED, Fate.LANDED])
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    assert [allocate(rig).start for _ in range(4)] == [0, 1000, 2000, 3000]


def test_nobody_is_left_without_an_answer() -> None:
    assert not_controller(AllocateProducerIds(1, 1)).error is ErrorCode.NOT_CONTROLLER


def test_the_first_controller_names_the_cluster() -> None:
    world = World(1)
    del world.nodes["/cluster/id"]
    rig = MachineHarness.active(world)
    assert rig.cluster.cluster_id == "generated-1" == world.nodes["/cluster/id"].value
    assert MachineHarness(world, epoch=2).failover().cluster.cluster_id == "generated-1"


def test_a_cluster_that_lost_its_name_gets_back_what_most_brokers_know() -> None:
    world = World(1, 2, 3, 4)
    del world.nodes["/cluster/id"]
    for broker_id, known in ((1, "typed"), (2, "first"), (3, "first")):
        world.brokers[broker_id] = msgspec.structs.replace(world.brokers[broker_id], cluster_id=known)
    assert MachineHarness.active(world).cluster.cluster_id == "first" == world.nodes["/cluster/id"].value


def test_a_lost_race_for_the_name_is_no_second_name() -> None:
    world = World(1)
    del world.nodes["/cluster/id"]
    rig = MachineHarness(world)

    def fate(_: object) -> Fate:
        world.nodes.setdefault("/cluster/id", world.nodes.get("/cluster/id") or _stored("theirs"))
        return Fate.ANSWERED

    rig.fate = fate
    assert rig.failover().cluster.cluster_id == "theirs"


def _stored(value: str) -> Any:
    world = World()
    world.put_node("/cluster/id", value)
    return world.nodes["/cluster/id"]
