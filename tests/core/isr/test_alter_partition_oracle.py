"""AlterPartition's table against an oracle read off the reference anew (section 8.4; section 14, point 9)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from controller.core.isr.alter_partition import evaluate
from controller.core.model import RECOVERED, RECOVERING, LeaderAndIsr
from controller.core.requests.brokers import Proposal
from controller.core.requests.errors import ErrorCode
from tests.support.core.harness import bare
from tests.support.core.world import state

LEADER_EPOCH, PARTITION_EPOCH = 5, 7


@dataclass(frozen=True)
class Setting:
    """One partition of [1, 2, 3] and what is asked for it."""

    leader: int
    isr: tuple[int, ...]
    recovering: bool
    dead: frozenset[int]
    sender: int
    versioned: bool
    le: int
    pe: int
    new: tuple[int, ...]
    recovery: int


def expected(s: Setting) -> ErrorCode | None:
    """The table read off the reference, with section 14, point 9; None is success without a write."""
    cached_recovery = RECOVERING if s.recovering else RECOVERED
    outsiders = set(s.new) - {1, 2, 3} - set(s.isr)
    joining_dead = (set(s.new) - set(s.isr)) & s.dead
    same = s.sender == s.leader and s.recovery == cached_recovery and set(s.new) == set(s.isr)
    rows = [
        (s.pe > PARTITION_EPOCH or s.le > LEADER_EPOCH, ErrorCode.NOT_CONTROLLER),
        (s.le < LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH),
        (same and len(s.new) == len(s.isr), None),
        (s.pe < PARTITION_EPOCH, ErrorCode.INVALID_UPDATE_VERSION),
        (s.recovery == RECOVERING and (len(s.new) > 1 or not s.recovering), ErrorCode.INVALID_REQUEST),
        (s.sender != s.leader or s.leader not in s.new, ErrorCode.INVALID_REQUEST),
        (len(set(s.new)) < len(s.new) or bool(outsiders), ErrorCode.INVALID_REQUEST),
        (
            bool(joining_dead),
            ErrorCode.INELIGIBLE_REPLICA if s.versioned else ErrorCode.OPERATION_NOT_ATTEMPTED,
        ),
    ]
    return next((answer for broken, answer in rows if broken), ErrorCode.NONE)


SETTINGS = st.builds(
    Setting,
    leader=st.sampled_from([-1, 1, 2]),
    isr=st.lists(st.integers(1, 3), min_size=1, max_size=3, unique=True).map(tuple),
    recovering=st.booleans(),
    dead=st.frozensets(st.integers(1, 3)),
    sender=st.integers(1, 2),
    versioned=st.booleans(),
    le=st.sampled_from([5, 5, 5, 4, 6]),
    pe=st.sampled_from([7, 7, 7, 6, 8]),
    new=st.lists(st.integers(1, 4), max_size=4).map(tuple),
    recovery=st.sampled_from([0, 0, 0, 1]),
)


@given(SETTINGS)
def test_the_table_against_an_oracle(s: Setting) -> None:
    if s.leader not in (*s.isr, -1):
        s = replace(s, isr=(s.leader, *[b for b in s.isr if b != s.leader]))
    recovery = RECOVERING if s.recovering else RECOVERED
    cached = state(s.leader, s.isr, LEADER_EPOCH, PARTITION_EPOCH, recovery=recovery)
    rig = bare([b for b in (1, 2, 3) if b not in s.dead], {("t", 0): [1, 2, 3]}, {("t", 0): cached})
    partition = rig.partition()
    topic_id = partition.topic.id if s.versioned else ""
    verdict = evaluate(
        rig.cluster, partition, s.sender, Proposal("t", topic_id, 0, s.le, s.new, s.recovery, s.pe)
    )
    wanted = expected(s)
    assert verdict.error == (wanted or ErrorCode.NONE)
    assert bool(verdict.why) == (verdict.error is not ErrorCode.NONE)
    if wanted is ErrorCode.NONE:
        assert verdict.new == LeaderAndIsr(s.leader, LEADER_EPOCH, s.new, PARTITION_EPOCH + 1, 1, s.recovery)
    else:
        assert verdict.new is None
