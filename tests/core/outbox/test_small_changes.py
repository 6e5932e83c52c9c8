"""Small changes go before large ones, and neither keeps the other waiting for ever."""

from __future__ import annotations

import pytest

from tests.support.core.network import LISR, SR, UMR, Net, shape
from tests.support.core.world import state


def test_a_small_change_goes_before_a_large_one_that_came_first() -> None:
    net = Net(partitions=8, small_max=2)
    net.outbox.leader_and_isr([([1], p) for p in net.partitions[:6]], False, 1, "large")
    net.change(*range(6))
    net.lead(1, 7, is_new=True)
    net.change(7)
    pushes = shape(net.drain(1, count_max=3))
    assert pushes[0] == (LISR.value, [7])
    assert [push for push in pushes if push[1] == [7]] == [(LISR.value, [7]), (UMR.value, [7])]
    assert pushes.index((UMR.value, [7])) == 1
    assert net.metadata[1] == {**dict.fromkeys(range(6), 1), 6: 0, 7: 1}


def test_what_changes_again_is_told_once_at_its_newest() -> None:
    net = Net(partitions=8, small_max=2)
    net.change(0, 1, 2, 3)
    net.change(1)
    assert shape(net.drain(1)) == [(UMR.value, [1]), (UMR.value, [0, 2, 3])]
    net.change(4)
    net.change(4, 5, 6)
    assert shape(net.drain(1)) == [(UMR.value, [4, 5, 6])]
    assert net.metadata[1] == {0: 1, 1: 2, 2: 1, 3: 1, 4: 2, 5: 1, 6: 1, 7: 0}
    assert net.outbox.pending(2) == 7


def test_leadership_of_a_small_change_keeps_its_place_in_a_large_one() -> None:
    net = Net(partitions=5, small_max=1)
    net.lead(1, 0, is_new=True)
    net.outbox.leader_and_isr([([1], p) for p in net.partitions], False, 1, "large")
    first, rest = net.drain(1)
    assert shape([first, rest]) == [(LISR.value, [0]), (LISR.value, [1, 2, 3, 4])]
    assert (list(first.flags), any(rest.flags)) == ([True], False)


def test_what_the_broker_leads_goes_first() -> None:
    net = Net(partitions=3)
    net.partitions[0].leadership = state(2, (1, 2))
    for number in (0, 1):
        net.lead(1, number)
    assert shape(net.drain(1)) == [(LISR.value, [1, 0])]


@pytest.mark.parametrize("whole", [False, True])
def test_that_a_replica_is_new_is_kept_until_it_is_told(whole: bool) -> None:
    """``whole``: the whole state of the broker waits, too."""
    net = Net(partitions=3)
    if whole:
        net.everything(1)
        net.outbox.compared(net.cluster.brokers[1], None)
    for is_new in (False, True, False):
        net.lead(1, 0, is_new)
    net.lead(1, 1)
    told = [push for push in net.drain(1) if push.kind is LISR]
    flags = {p.number: new for push in told for p, new in zip(push.partitions, push.flags, strict=True)}
    assert flags[0] is True
    assert not any(new for number, new in flags.items() if number)


def test_small_changes_and_leaderships_go_before_the_whole_state() -> None:
    net = Net(partitions=6, small_max=1)
    net.everything(1)
    net.outbox.compared(net.cluster.brokers[1], None)
    net.partitions[2].leadership = state(2, (1, 2))
    net.outbox.leader_and_isr([([1], p) for p in net.partitions[2:5]], False, 1, "large")
    net.lead(1, 5)
    net.outbox.leader_and_isr([([1], p) for p in net.partitions[4:]], False, 1, "large")
    told = [p.number for push in net.drain(1, count_max=1) if push.kind is LISR for p in push.partitions]
    assert (told[:4], set(told[4:])) == ([5, 3, 4, 2], {0, 1})


def test_nothing_waits_for_ever_for_small_changes_that_keep_coming() -> None:
    net = Net(partitions=20, small_max=2)
    net.begin_again(1)
    net.outbox.compared(net.cluster.brokers[1], None)
    net.outbox.leader_and_isr([([1], p) for p in net.partitions[:6]], False, 1, "large")
    net.change(*range(2, 12))
    net.stop(1, 15, delete=True)
    taken = []
    for _ in range(40):
        net.change(0)
        net.lead(1, 1)
        push = net.take(1, count_max=4)
        assert push is not None
        taken.append((push.kind, [p.number for p in push.partitions]))
    assert (SR, [15]) in taken
    assert {n for kind, numbers in taken if kind is UMR for n in numbers} >= set(range(1, 20))
    assert {n for kind, numbers in taken if kind is LISR for n in numbers} >= set(range(6))
    stopped = taken.index((SR, [15]))
    assert any(11 in numbers for kind, numbers in taken[:stopped] if kind is UMR), "metadata that came before"
    drained = net.drain(1)
    assert net.outbox.pending(1) == 0, drained


def test_leadership_goes_before_the_metadata_of_the_same_small_change_when_changes_keep_coming() -> None:
    net = Net(partitions=30, small_max=2)
    told, known = list[int](), set[int]()
    for number in range(30):
        net.lead(1, number)
        net.change(number)
        push = net.take(1)
        assert push is not None
        numbers = [p.number for p in push.partitions]
        if push.kind is LISR:
            told += numbers
        assert push.kind is LISR or set(numbers) <= set(told)
        known.update(numbers if push.kind is UMR else ())
    assert known >= set(range(20)), "metadata does not wait for the end of all changes either"


def test_replicas_stop_after_the_metadata_that_came_before_them() -> None:
    net = Net(partitions=6, small_max=2)
    net.change(3, 4, 5)
    net.change(0)
    net.stop(1, 0, delete=True)
    net.change(1)
    kinds = [push.kind for push in net.drain(1, count_max=2)]
    assert kinds[-1] is SR
    assert SR not in kinds[:-1]


def test_replicas_do_not_stop_in_between_metadata_that_came_before_them() -> None:
    net = Net(partitions=6, small_max=1)
    for number in (0, 1, 2, 3):
        net.change(number)
    net.stop(1, 3, delete=True)
    assert [push.kind for push in net.drain(1, count_max=1)] == [UMR, UMR, UMR, UMR, SR]


def test_small_changes_do_not_wait_while_much_else_does() -> None:
    net = Net(partitions=8, small_max=2)
    net.change(*range(6))
    assert net.outbox.can_wait(1, few=3)
    net.change(7)
    assert not net.outbox.can_wait(1, few=3)
    net.take(1)
    assert net.outbox.can_wait(1, few=3)


def test_a_new_replica_stays_new_when_it_is_told_again_before_everything() -> None:
    net = Net(partitions=3)
    for number in range(3):
        net.lead(1, number)
    net.drain(1)
    net.begin_again(1)
    net.lead(1, 0, is_new=True)
    net.lead(1, 0)
    push = net.take(1, count_max=1000)
    while push is not None and push.kind is not LISR:
        push = net.take(1)
    assert push is not None
    assert dict(zip((p.number for p in push.partitions), push.flags, strict=True))[0]


def test_replicas_stop_after_the_same_metadata_when_positions_are_renumbered() -> None:
    net = Net(partitions=6, small_max=1)
    net.change(5)
    for _ in range(9_999):
        net.change(0)
    net.change(1)
    net.stop(1, 1)
    before = net.stream.generation
    while net.stream.generation == before:
        net.change(0)
    for _ in range(2):
        net.change(0)
    pushes = shape(net.drain(1, count_max=1))
    assert pushes.index((UMR.value, [1])) < pushes.index((SR.value, [1])) < pushes.index((UMR.value, [0]))
