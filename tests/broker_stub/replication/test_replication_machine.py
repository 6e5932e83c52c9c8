"""Three brokers' replication under everything that may happen to it: what is acknowledged is never lost.

`replication_cluster` says what may happen and what must hold. Hypothesis finds short stories; long walks find
what takes many steps; what was broken on purpose shows that both can see.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_stub.control.replicas import Replica
from broker_stub.replication.partition import Partition
from broker_stub.replication.ports import IsrProposal, IsrResult
from tests.support.broker.replication_cluster import BROKERS, ReplicationCluster, walk
from tests.support.broker.replication_fakes import FOO, content

NODE = st.sampled_from(BROKERS)
PICK = st.integers(0, 7)


class ReplicationMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = ReplicationCluster()
        self.begun = False

    @initialize(least=st.sampled_from([1, 2]), on_fetch=st.booleans())
    def begin(self, least: int, on_fetch: bool) -> None:
        self.world.begin(least, on_fetch)
        self.begun = True

    def teardown(self) -> None:
        try:
            if self.begun:
                self.world.heal()
        finally:
            self.world.close()

    @precondition(lambda self: self.world.messages)
    @rule(pick=PICK)
    def deliver(self, pick: int) -> None:
        self.world.deliver(pick)

    @precondition(lambda self: self.world.messages)
    @rule(pick=PICK)
    def deliver_again_later(self, pick: int) -> None:
        self.world.deliver_again_later(pick)

    @precondition(lambda self: self.world.messages)
    @rule(pick=PICK, noticed=st.booleans())
    def lose(self, pick: int, noticed: bool) -> None:
        self.world.lose(pick, noticed)

    @rule(node=NODE)
    def control(self, node: int) -> None:
        self.world.control(node)

    @rule(rounds=st.integers(1, 6), apart=st.sampled_from([None, *BROKERS]), orders=st.booleans())
    def calm(self, rounds: int, apart: int | None, orders: bool) -> None:
        self.world.calm(rounds, apart, orders)

    @rule(pause_ms=st.sampled_from([20, 100, 500, 1100, 11_000]))
    def time_passes(self, pause_ms: int) -> None:
        self.world.time_passes(pause_ms)

    @rule(node=NODE)
    def produce(self, node: int) -> None:
        self.world.produce(node)

    @rule(count=st.integers(1, 3))
    def produce_to_the_leader(self, count: int) -> None:
        self.world.produce_to_the_leader(count)

    @rule(node=NODE)
    def consume(self, node: int) -> None:
        self.world.consume(node)

    @rule(node=NODE, checkpointed=st.booleans())
    def crash(self, node: int, checkpointed: bool) -> None:
        self.world.crash(node, checkpointed)

    @rule(node=NODE)
    def restart(self, node: int) -> None:
        self.world.restart(node)

    @rule(node=NODE)
    def session_ends(self, node: int) -> None:
        self.world.session_ends(node)

    @rule(node=NODE)
    def registers(self, node: int) -> None:
        self.world.registers(node)

    @rule(pick=PICK)
    def elect_another(self, pick: int) -> None:
        self.world.elect_another(pick)

    @invariant()
    def all_is_well(self) -> None:
        self.world.check()


TestReplication = ReplicationMachine.TestCase
TestReplication.settings = settings(
    deadline=None, max_examples=30, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)


def test_walks_lose_nothing_acknowledged() -> None:
    acknowledged = elections = 0
    for seed in range(20):
        world = walk(seed)
        acknowledged += len(world.acknowledged)
        elections += world.controller.leader_epoch
    assert acknowledged > 50
    assert elections > 50


@pytest.mark.slow
def test_many_walks_lose_nothing_acknowledged() -> None:
    """``WALKS=2000`` for a long one."""
    for seed in range(int(os.environ.get("WALKS", "30"))):
        walk(seed)


def test_a_walk_is_the_same_each_time() -> None:
    one, other = walk(7), walk(7)
    assert (one.acknowledged, one.committed) == (other.acknowledged, other.committed)
    assert one.controller.leader_epoch == other.controller.leader_epoch


# --- broken on purpose: each of these loses records or leaves somebody behind --------------------------------


def cut_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """What followers did before KIP-101."""
    make_follower = Partition.make_follower

    def cutting(self: Partition, state: Replica) -> bool:
        changed = make_follower(self, state)
        self.truncate(self.high_watermark)
        return changed

    patch.setattr(Partition, "make_follower", cutting)


def count_the_committed_isr_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "maximal_isr", property(lambda self: frozenset(self.isr)))


def count_the_proposed_isr_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "maximal_isr", property(lambda self: frozenset(self.proposed_isr or self.isr)))


def let_anyone_join(patch: pytest.MonkeyPatch) -> None:
    """Without looking how far its log goes."""

    def propose(
        self: Partition, replica_id: int, now_ms: int, is_alive: Callable[[int], bool]
    ) -> IsrProposal | None:
        if replica_id in self.isr or now_ms < self.isr_retry_ms or not is_alive(replica_id):
            return None
        return self._propose((*self.isr, replica_id)) if self._may_propose() else None

    patch.setattr(Partition, "propose_expansion", propose)


def take_requests_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    require = Partition.require_leader
    patch.setattr(Partition, "require_leader", lambda self, _epoch=None: require(self))


def find_no_divergence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "divergence", lambda *_: None)
    patch.setattr(Partition, "truncation_offset", lambda self, *_: self.log.log_end_offset)


def forget_a_fenced_proposal(patch: pytest.MonkeyPatch) -> None:
    """It may be durable all the same: its first answer may have been lost."""
    apply_isr_result = Partition.apply_isr_result

    def settle_and_forget(self: Partition, result: IsrResult, now_ms: int) -> bool:
        changed: bool = apply_isr_result(self, result, now_ms)
        self.proposed_isr = None
        return changed

    patch.setattr(Partition, "apply_isr_result", settle_and_forget)


@pytest.mark.parametrize(
    ("fault", "first"),
    [
        (cut_to_the_high_watermark, 0),
        (count_the_committed_isr_only, 0),
        (count_the_proposed_isr_only, 0),
        (let_anyone_join, 0),
        (find_no_divergence, 0),
        # A rare one: near a seed that showed it last.
        (forget_a_fenced_proposal, 355),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_walks_find_planted_faults(
    fault: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def walk_until_it_shows() -> None:
        for seed in range(first, first + 2000):
            walk(seed)

    fault(monkeypatch)
    with pytest.raises(AssertionError, match=r"ISR without|differs below|stuck|another|not committed|safe"):
        walk_until_it_shows()


def a_late_fetch() -> None:
    """A fetch that broker 2 sent to 0 arrives when 0 leads again, and 2 has other records than it had then."""
    world = ReplicationCluster()
    try:
        world.begin(1, False)
        world.produce_to_the_leader(1)
        world.calm(1, apart=1)
        (late,) = [message for message in world.messages if message.name == "2 to 0: fetch"]
        world.messages.remove(late)
        world.elect_another(1)  # broker 1, which has nothing yet
        world.calm(3)
        world.produce_to_the_leader(1)
        world.calm(3, apart=2)
        assert [len(content(node.logs.by_key[FOO])) for node in world.nodes] == [1, 1, 0]
        world.elect_another(0)
        world.control(0)
        world.control(1)
        late.deliver()
        world.calm(3, apart=2)
        world.check()
        world.heal()
    finally:
        world.close()


def test_a_late_fetch_says_nothing_of_a_later_term(monkeypatch: pytest.MonkeyPatch) -> None:
    a_late_fetch()
    take_requests_of_any_epoch(monkeypatch)
    with pytest.raises(AssertionError, match="2 is in the ISR without all records"):
        a_late_fetch()
