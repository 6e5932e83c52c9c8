"""What a standby keeps ready, topic by topic: nothing stays of what is gone."""

from __future__ import annotations

from controller.core.model import LeaderAndIsr, Partition, Topic
from controller.core.standby.prepared import Prepared

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


def test_two_topics_of_one_id_are_both_special() -> None:
    prepared = Prepared()
    for name in ("one", "two"):
        prepared.put(topic(name, "a", 5))
    assert prepared.special == {"one", "two"}
