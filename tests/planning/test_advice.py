"""Advice of explanations: it works, and where anything would work there is some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, combinations, product
from typing import Any

import msgspec
import pytest

from controller.core.context import CoreSettings
from controller.core.effects import FeatureAnswer
from controller.core.explain.partitions import PartitionExplanation, explain_partition
from controller.core.explain.remedies import Remedy
from controller.core.model import Attribution, FeatureRange, Freeze, Maintenance
from controller.planning import advice as module
from controller.planning.advice import checked, of_partition
from controller.planning.context import cluster_of
from controller.planning.executor import Executor
from controller.planning.snapshot import Snapshot, unclean_allowed
from tests.support.planning.clusters import Small

ANN = Attribution("disks", "ann")
KEY = ("t", 0)
SUBSETS = [frozenset(s) for s in chain.from_iterable(combinations((1, 2, 3), n) for n in range(4))]
SUSPENSIONS = {
    "none": Maintenance(),
    "paused": Maintenance(paused=ANN),
    "maintenance": Maintenance(entered=ANN),
    "automatic": Maintenance(entered=ANN, automatic=True),
    "both": Maintenance(paused=ANN, entered=ANN),
    "drained": Maintenance(drained={1: ANN}),
    "frozen": Maintenance(freeze=Freeze("quiet", "ann", 1)),
}


def a_snapshot(
    online: Sequence[int], leader: int, isr: Sequence[int], maintenance: Maintenance, unclean: bool = False
) -> Snapshot:
    configs = {"t": {"unclean.leader.election.enable": "true"}} if unclean else {}
    # Broker 4 is another one, so that somebody is there.
    small = Small((*online, 4), {KEY: ((1, 2, 3), leader, isr)}, configs)
    return replace(small.snapshot(), maintenance=maintenance)


def proposed(snapshot: Snapshot) -> PartitionExplanation:
    cluster = cluster_of(snapshot)
    partition = cluster.partition(*KEY)
    assert partition is not None
    return explain_partition(cluster, partition, unclean_allowed=unclean_allowed(snapshot, "t"))


def advice(snapshot: Snapshot) -> tuple[str, ...]:
    return checked(snapshot, proposed(snapshot)).changes


@pytest.mark.slow
@pytest.mark.parametrize("suspension", SUSPENSIONS)
@pytest.mark.parametrize("unclean", [False, True])
def test_every_partition_without_leader_gets_advice_that_works(suspension: str, unclean: bool) -> None:
    for online, isr in product(SUBSETS, SUBSETS[1:]):
        for leader in (-1, *sorted(isr - online)):
            snapshot = a_snapshot(sorted(online), leader, sorted(isr), SUSPENSIONS[suspension], unclean)
            found = checked(snapshot, proposed(snapshot))
            planned = [change for change in found.advice if change.steps is not None]
            assert planned, (online, isr, leader)
            if any(not change.steps for change in planned):
                led = Executor(snapshot).store.states[KEY].leader
                assert led in online, (online, isr, leader)


def test_a_broker_that_returns_has_its_own_data_not_that_of_another() -> None:
    snapshot = a_snapshot((), 1, (1,), Maintenance())
    told = {b: msgspec.structs.replace(found, directories=(b,)) for b, found in snapshot.brokers.items()}
    states = {KEY: msgspec.structs.replace(snapshot.states[KEY], directories=(77,))}
    found = advice(replace(snapshot, brokers=told, states=states))
    assert any("the return of any of [1] (ISR [1]): it leads at once" in text for text in found), found


@pytest.mark.parametrize("suspension", SUSPENSIONS)
def test_a_partition_that_was_never_led(suspension: str) -> None:
    snapshot = a_snapshot((), -1, (1,), SUSPENSIONS[suspension])
    (change,) = checked(replace(snapshot, states={}), proposed(replace(snapshot, states={}))).advice
    assert change.steps is not None
    assert (Remedy.RETURN in change.steps, change.brokers) == (True, (1, 2, 3))


def test_in_maintenance_a_setting_alone_elects_nobody() -> None:
    in_maintenance = a_snapshot((3,), -1, (1,), Maintenance(entered=ANN))
    lost = "3 leads, and records that only [1] hold are lost"
    assert "unclean.leader.election.enable=true for topic t: " + lost in proposed(in_maintenance).changes
    assert advice(in_maintenance) == (
        "the return of any of [1] (ISR [1]): it leads at once, nothing is lost",
        f"unclean.leader.election.enable=true for topic t: {lost}; once the controller is no longer in maintenance, "
        "entered by ann: disks (pctl maintenance leave ends that)",
        f"pctl elect unclean --partition t-0: {lost}",
    )
    followed = a_snapshot((3,), -1, (1,), Maintenance(entered=ANN), unclean=True)
    assert advice(followed)[1:] == (
        "the end of being in maintenance, entered by ann: disks (pctl maintenance leave ends that): 3 is elected "
        "uncleanly then",
        f"pctl elect unclean --partition t-0: {lost}",
    )


def test_in_a_pause_a_return_alone_elects_nobody() -> None:
    paused = advice(a_snapshot((), -1, (1, 2), Maintenance(paused=ANN)))
    assert paused == (
        "the return of any of [1, 2] (ISR [1, 2]): it leads at once, nothing is lost; once the controller is no longer "
        "paused by ann: disks (pctl maintenance resume ends that)",
    )


def test_a_failed_disk_and_a_broker_that_shuts_down() -> None:
    snapshot = a_snapshot((1, 2), 1, (1, 2), Maintenance())
    failed = replace(snapshot, offline_dirs={1: frozenset({KEY}), 2: frozenset({KEY})})
    assert advice(failed) == ("the failed disk of any of [1, 2] is repaired",)


def test_a_preferred_election_that_is_promised_is_possible() -> None:
    moved = a_snapshot((1, 2), 2, (1, 2), Maintenance())
    assert advice(moved)[0] == "a preferred election gives it to 1 (pctl elect)"
    explained = proposed(moved)
    promised = [replace(explained, advice=(explained.advice[0]._replace(leader=b),)) for b in (1, 2, 3)]
    assert [len(checked(moved, one).advice) for one in promised] == [1, 0, 0]
    drained = replace(moved, maintenance=msgspec.structs.replace(moved.maintenance, drained={1: ANN}))
    assert advice(drained)[0].startswith("preferred replica 1 takes over once this is solved: 1 is kept free")


@pytest.mark.parametrize("levels", [None, (), (FeatureRange("f", 3, 3),)])
def test_whoever_returns_to_a_cluster_without_brokers_has_its_features(
    levels: tuple[FeatureRange, ...] | None,
) -> None:
    snapshot = Small((), {KEY: ((1, 2), -1, (1,))}).snapshot()
    snapshot = replace(snapshot, feature=None if levels is None else FeatureAnswer(True, 0, levels))
    assert advice(snapshot) == ("the return of any of [1] (ISR [1]): it leads at once, nothing is lost",)


def test_of_a_partition_all_is_kept_and_nothing_of_others() -> None:
    both: dict[str, Any] = {
        name: {0: (4,), 1: (5,)} for name in ("adding", "removing", "original", "queued", "stray")
    }
    small = Small(
        (1, 2), {KEY: ((1, 2), 1, (1, 2)), ("t", 1): ((2, 1), 2, (1, 2)), ("u", 0): ((1,), 1, (1,))}
    )
    whole = small.snapshot()
    whole = replace(
        whole,
        topics={**whole.topics, "t": replace(whole.topics["t"], **both)},
        deleting=("t", "u"),
        maintenance=Maintenance(entered=ANN, automatic=True, accepted=(3,)),
        settings=CoreSettings(maintenance_offline_brokers_percentage=50, delete_topic_enable=False),
    )
    found = of_partition(whole, KEY)
    kept: dict[str, Any] = {name: {0: (4,)} for name in both}
    assert found.topics == {"t": replace(whole.topics["t"], partitions={0: (1, 2)}, **kept)}
    assert found.states == {KEY: whole.states[KEY]}
    assert (found.deleting, found.maintenance) == (("t",), Maintenance(entered=ANN))
    assert found.settings == CoreSettings(delete_topic_enable=False)
    assert found.brokers == whole.brokers


def test_a_broker_that_registers_again_is_as_it_was_or_has_its_own_data() -> None:
    snapshot = Small((1, 2), {("t", 0): ((1, 9), 1, (1,))}).snapshot()
    brokers = {b: msgspec.structs.replace(known, directories=(b,)) for b, known in snapshot.brokers.items()}
    snapshot = replace(snapshot, brokers=brokers)
    assert module._broker(snapshot, 1) is brokers[1]
    returned = module._broker(snapshot, 9)
    assert (returned.id, returned.directories, returned.endpoints) == (9, (), brokers[1].endpoints)
