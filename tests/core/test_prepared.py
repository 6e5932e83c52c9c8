"""What a standby keeps ready, topic by topic: nothing stays of what is gone."""

from __future__ import annotations

import msgspec

from controller.core.model import (
    Broker,
    LeaderAndIsr,
    Partition,
    PartitionState,
    ReplicaState,
    Topic,
)
from controller.core.standby.prepared import KNOWN_MIN, Prepared
from tests.support.core.world import a_broker

BROKER = Broker(1, 7, ())
STATE = LeaderAndIsr(1, 3, (1, 2), 4, 1)


def topic(name: str, id_: str, czxid: int, partitions: int = 2) -> Topic:
    made = Topic(name, id_)
    made.czxid = czxid
    for number in range(partitions):
        made.partitions[number] = Partition(made, number, (1, 2))
    return made


def test_partitions_keep_their_state_only_within_one_incarnation() -> None:
    prepared = Prepared()
    for partition in prepared.put(topic("t", "a", 5)):
        prepared.keep(partition, STATE)
    again = topic("t", "a", 5, 3)
    assert prepared.put(again) == [again.partitions[2]]
    anew = topic("t", "b", 9, 3)
    assert prepared.put(anew) == list(anew.partitions.values())
    assert prepared.replicas == 6


def test_of_a_topic_that_is_gone_nothing_stays() -> None:
    prepared = Prepared()
    gone = topic("gone", "a", 5)
    prepared.put(gone)
    assert prepared.unread() == list(gone.partitions.values())
    assert prepared.withdraw("gone") is gone
    assert (prepared.unread(), prepared.replicas) == ([], 0)
    prepared.put(topic("next", "a", 6))
    assert not prepared.special, "the id is free again"


def test_a_topic_is_complete_once_each_partition_has_a_state() -> None:
    prepared = Prepared()
    whole, unread, stale = topic("whole", "a", 5), topic("unread", "b", 6), topic("stale", "c", 7)
    for one in (whole, unread, stale):
        for partition in prepared.put(one):
            prepared.keep(partition, STATE)
    prepared.keep(unread.partitions[1], None)
    prepared.close([stale.partitions[0]])
    assert [one.complete for one in (whole, unread, stale)] == [True, False, False]
    assert prepared.unread() == [unread.partitions[1], stale.partitions[0]]


def test_what_is_to_be_looked_at_has_the_states_of_what_nobody_has_looked_at() -> None:
    prepared = Prepared()
    one = topic("t", "a", 5)
    for partition in prepared.put(one):
        prepared.keep(partition, STATE)
    assert prepared.unsettled({1: BROKER, 2: BROKER}, everything=False) == []
    found = prepared.unsettled({1: BROKER}, everything=False)
    assert found == list(one.partitions.values())
    assert {partition.state for partition in found} == {PartitionState.NON_EXISTENT}
    assert {tuple(partition.replica_states) for partition in found} == {(ReplicaState.NON_EXISTENT,) * 2}


def test_brokers_of_former_assignments_are_let_go() -> None:
    """A standby stands by for months, and each move of a large topic names other brokers."""
    prepared = Prepared()
    for number in range(3 * KNOWN_MIN):
        moved = topic("t", "a", 5)
        moved.partitions[0].replicas = (number, number + 1)
        prepared.put(moved)
    assert len(prepared._known_brokers) <= KNOWN_MIN + 3
    assert prepared._topics_on.keys() == {3 * KNOWN_MIN - 1, 3 * KNOWN_MIN, 1, 2}


def test_a_disk_that_was_replaced_long_ago_makes_nothing_unsettled() -> None:
    prepared = Prepared()
    partitions = prepared.put(topic("t", "a", 5))
    brokers = {id_: a_broker(id_, 10, directories=(7,)) for id_ in (1, 2)}
    for directory in (6, 7):
        for partition in partitions:
            prepared.keep(partition, msgspec.structs.replace(STATE, directories=(directory, 7)))
        unsettled = prepared.unsettled(brokers, everything=False)
        assert unsettled == (partitions if directory == 6 else [])


def test_two_topics_of_one_id_are_both_special() -> None:
    prepared = Prepared()
    for name in ("one", "two"):
        prepared.put(topic(name, "a", 5))
    assert prepared.special == {"one", "two"}
