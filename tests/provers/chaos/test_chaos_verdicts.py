"""Verdicts can be bad: each finds what was put into its input, and nothing in the same input without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.effects import TopicInfo
from controller.core.model import Broker, LeaderAndIsr
from controller.runtime.zookeeper.cluster_reader import ClusterState, ControllerInfo, PartitionInfo
from controller.workload.checker import ReplicaLog, Stored, Verdict, check
from controller.workload.history import History, Write, content_of, value_of
from tests.provers.chaos.apply import Skew, Struck, away
from tests.provers.chaos.operators import ControllerRequest, Outcome, Verb
from tests.provers.chaos.plan import Kind
from tests.provers.chaos.processes import odd_lines, of_full_disks
from tests.provers.chaos.run import Outcome as RunOutcome
from tests.provers.chaos.run import Run, longest_writes
from tests.provers.chaos.verdicts import (
    Distribution,
    Finding,
    Line,
    Played,
    What,
    attributed,
    leaderless,
    stuck,
    true_time,
    two_masters,
)

S = 1_000_000


def line(at_s: float, role: str, node: int, epoch: int, kind: str, **more: Any) -> Line:
    record = {"role": role, "node": node, "controller_epoch": epoch, "kind": kind, **more}
    return Line(round(at_s * S), record)


def led(at_s: float, epoch: int, version: int, before: int, after: int, **more: Any) -> Line:
    """Controllers have the ids of their epochs."""
    fields = {"topic": "t", "partition": 0, "from": str(before), "to": str(after), "leader": after}
    fields |= {"leader_epoch": version, "partition_epoch": version, "isr": [1, 2, 3], "reason": "offline"}
    return line(at_s, "controller", more.pop("node", epoch), epoch, "leader", **{**fields, **more})


def broker_took(epoch: int, node: int = 1) -> Line:
    return line(1, "broker", node, epoch, "replica", topic="t", partition=0, to="leader")


# --- two controllers -------------------------------------------------------------------------------------

IN_ORDER = [
    line(0, "controller", 1, -1, "controller", to="started"),
    line(1, "controller", 1, 1, "controller", to="active"),
    led(2, 1, 1, -1, 1),
    line(3, "controller", 2, 2, "controller", to="active"),
    led(4, 2, 2, 1, 2),
    broker_took(1),
    broker_took(2),
]


def test_one_controller_an_epoch_is_good() -> None:
    assert two_masters(IN_ORDER) == []


def words_of(findings: list[Finding]) -> str:
    assert findings
    assert {finding.what for finding in findings} <= {What.EPOCHS, What.STUCK}
    return " / ".join(finding.words for finding in findings)


def test_two_controllers_in_one_epoch_are_found() -> None:
    second = line(3.5, "controller", 3, 2, "controller", to="active")
    found = two_masters([*IN_ORDER, second])
    assert "controllers 2 and 3 both acted in controller epoch 2" in words_of(found)
    assert found[0].at_us == 3.5 * S


def test_a_write_of_a_deposed_controller_is_found() -> None:
    late = led(5, 1, 3, 2, 1)
    assert "version 3 was written in controller epoch 1, after 2" in words_of(two_masters([*IN_ORDER, late]))


def test_a_push_of_a_deposed_controller_that_a_broker_took_is_found() -> None:
    found = words_of(two_masters([*IN_ORDER, broker_took(1)]))
    assert "broker-1 took an order of controller epoch 1 after one of epoch 2" in found


def test_another_broker_or_a_restarted_one_may_take_older_orders() -> None:
    again = line(2, "broker", 1, -1, "broker", to="started")
    assert two_masters([*IN_ORDER, broker_took(1, node=2), again, broker_took(1)]) == []


def test_two_leaders_in_one_leader_epoch_are_found() -> None:
    other = led(5, 2, 3, 2, 3, leader_epoch=2)
    assert "has leaders 2 and 3 in leader epoch 2" in words_of(two_masters([*IN_ORDER, other]))


# --- operations ------------------------------------------------------------------------------------------


def cluster() -> ClusterState:
    """Whole: topic t with one partition on all of five brokers."""
    brokers = {n: Broker(n, n, ()) for n in range(1, 6)}
    info = TopicInfo("t", "id", {0: (1, 2, 3)}, {}, {}, 1, 0)
    state = LeaderAndIsr(1, 0, (1, 2, 3), 0, 1)
    candidates = [ControllerInfo(n, "", "", n == 1) for n in (1, 2, 3)]
    return ClusterState(
        1,
        "h:1",
        1,
        candidates,
        brokers=brokers,
        topics={"t": info},
        partitions=[PartitionInfo("t", 0, (1, 2, 3), state)],
    )


def asked(verb: Verb, partition: int = -1, target: tuple[int, ...] = (), **more: Any) -> ControllerRequest:
    fields = {"topic": "t", "at_us": S, "episode": 3, "outcome": Outcome.ACCEPTED, **more}
    return ControllerRequest(verb, partition=partition, target=target, **fields)


def test_everything_done_is_good() -> None:
    done = [asked(Verb.CREATE), asked(Verb.MOVE, 0, (1, 2, 3)), asked(Verb.DELETE, topic="gone")]
    assert stuck(done, cluster(), {}) == []


def test_a_stuck_deletion_is_found_with_its_explanation() -> None:
    cluster_state = cluster()
    cluster_state.deleting = ["t"]
    found = stuck([asked(Verb.DELETE)], cluster_state, {"t": "broker 4 is not registered"})
    assert "t is still being deleted; explain: broker 4 is not registered" in words_of(found)


def test_a_deletion_that_was_forgotten_is_found() -> None:
    assert "the topic is there" in words_of(stuck([asked(Verb.DELETE)], cluster(), {}))
    assert stuck([asked(Verb.DELETE, outcome=Outcome.UNANSWERED)], cluster(), {}) == []


def test_a_stuck_move_is_found() -> None:
    cluster_state = cluster()
    cluster_state.topics["t"] = replace(
        cluster_state.topics["t"], adding={0: (4,)}, partitions={0: (4, 1, 2, 3)}
    )
    found = stuck([asked(Verb.MOVE, 0, (4, 2, 3))], cluster_state, {"t-0": "copying"})
    assert "t-0 is still being moved (move t-0 to [4, 2, 3], asked in episode 3, accepted)" in words_of(found)
    assert "explain: copying" in words_of(found)


def test_a_move_that_was_forgotten_is_found_unless_another_came_after_it() -> None:
    move = asked(Verb.MOVE, 0, (4, 5, 1))
    assert "the replicas are [1, 2, 3]" in words_of(stuck([move], cluster(), {}))
    for verb, outcome in ((Verb.CANCEL, Outcome.ACCEPTED), (Verb.MOVE, Outcome.UNANSWERED)):
        later = asked(verb, 0, (1, 2, 3), at_us=2 * S, outcome=outcome)
        assert stuck([move, later], cluster(), {}) == []
    refused = asked(Verb.CANCEL, 0, at_us=2 * S, outcome=Outcome.REFUSED)
    assert stuck([move, refused], cluster(), {})


def test_a_creation_that_was_forgotten_is_found() -> None:
    lost = asked(Verb.CREATE, topic="new")
    assert "there is no such topic" in words_of(stuck([lost], cluster(), {}))
    assert stuck([lost, asked(Verb.DELETE, topic="new")], cluster(), {}) == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (None, "t-0 is not led (no state)"),
        (LeaderAndIsr(-1, 0, (1, 2, 3), 0, 1), "t-0 is not led (leader -1)"),
        (LeaderAndIsr(1, 0, (1, 2), 0, 1), "t-0: [3] not in sync with leader 1"),
    ],
)
def test_what_is_not_whole_at_the_end_is_found(state: LeaderAndIsr | None, words: str) -> None:
    cluster_state = cluster()
    cluster_state.partitions = [PartitionInfo("t", 0, (1, 2, 3), state)]
    assert words in words_of(stuck([], cluster_state, {}))


def test_a_controller_that_is_not_there_at_the_end_is_found() -> None:
    cluster_state = cluster()
    del cluster_state.controllers[2]
    assert "controller-3 is no candidate" in words_of(stuck([], cluster_state, {}))


def test_a_broker_that_is_not_there_at_the_end_is_found() -> None:
    cluster_state = cluster()
    del cluster_state.brokers[5]
    assert "broker-5 is not registered" in words_of(stuck([], cluster_state, {}))


# --- records ---------------------------------------------------------------------------------------------


def outcome_of(verdict: Verdict, history: History) -> RunOutcome:
    run = Run.__new__(Run)
    run.outcome = RunOutcome()
    run.check_records(verdict, history)
    return run.outcome


def test_a_lost_record_makes_the_verdict_bad() -> None:
    content = content_of(value_of(1, 0, 20))
    history = History((Write(1, 0, "t", 0, content.crc, 1, offset=0, begun_us=1, ended_us=22),))
    kept = ReplicaLog(0, 1, (), (Stored(0, 0, content),))
    assert outcome_of(check(history, {("t", 0): {1: kept, 2: kept}}, {("t", 0): 1}), history).ok
    bad = outcome_of(check(history, {("t", 0): {1: ReplicaLog(), 2: kept}}, {("t", 0): 1}), history)
    assert not bad.ok
    assert bad.count(What.RECORDS) == 2, "lost, and the replicas differ"
    assert bad.findings[0].at_us == 22, "when it was acknowledged"


def test_nothing_judged_is_bad() -> None:
    assert not outcome_of(Verdict(), History()).ok


# --- times -----------------------------------------------------------------------------------------------


def test_time_without_a_leader_counts_from_the_fault() -> None:
    killed = [Struck("broker-1", Kind.KILL, 1, 10 * S, 14 * S)]
    one = leaderless([led(1, 1, 1, -1, 1), led(13, 1, 2, 1, 2)], away(killed, {1: 20 * S}), 99 * S)
    assert [(i.since_us, i.until_us, i.counted) for i in one] == [(10 * S, 13 * S, True)]


def test_who_became_leader_under_a_fault_led_from_then_on() -> None:
    full = [Struck("broker-1", Kind.DISK_FULL, 1, 10 * S, 30 * S)]
    (gap,) = leaderless([led(12, 1, 1, -1, 1), led(14, 1, 2, 1, 2)], full, 99 * S)
    assert gap.took_s == 2.0


NOT_WRITTEN = '{"why": "No space left on device", "event": "state_log_not_written", "level": "error"}'


@pytest.mark.parametrize(
    ("words", "at_s", "excused"),
    [
        ("broker-1 ended by itself with 1", 20, True),
        ("broker-1 ended by itself with 1", 32, True),
        ("broker-1 ended by itself with 1", 9, False),
        ("broker-1 ended by itself with 1", 34, False),
        ("broker-1 ended by itself with -11", 20, False),
        ("broker-2 ended by itself with 1", 20, False),
        ("broker-3 ended by itself with 1", 20, False),
        ('broker-1: {"error": "no data directory works any more", "event": "broker failed"}', 20, True),
        ('broker-1: {"count": 2, "event": "data directory failed: its replicas are offline"}', 20, True),
        ('broker-1: {"error": "KeyError: 7", "event": "unexpected error"}', 20, False),
        (f"controller-1: {NOT_WRITTEN}", 20, True),
        (f"controller-1: {NOT_WRITTEN}", 34, False),
        (f"controller-2: {NOT_WRITTEN}", 20, False),
        (f"broker-1: {NOT_WRITTEN}", 20, False),
        ('controller-1: {"error": "KeyError: 7", "event": "bug"}', 20, False),
    ],
)
def test_who_has_a_full_disk_may_say_so_and_a_broker_may_end(words: str, at_s: int, excused: bool) -> None:
    struck = [
        Struck("broker-1", Kind.DISK_FULL, 1, 10 * S, 30 * S),
        Struck("broker-2", Kind.CUT, 1, 10 * S, 30 * S),
        Struck("controller-1", Kind.STATE_LOG_FULL, 1, 10 * S, 30 * S),
    ]
    assert of_full_disks(Finding(What.PROCESSES, words, at_s * S), struck) is excused


def test_a_hand_over_takes_no_time() -> None:
    """Its leader lives until the next one leads."""
    hand_over = led(13, 1, 2, 1, 2, reason="controlled_shutdown")
    assert (
        leaderless([led(1, 1, 1, -1, 1), hand_over], [Struck("broker-1", Kind.ROLL, 1, 1, 20 * S)], 99 * S)
        == []
    )


def test_time_without_anybody_to_lead_is_apart_and_may_never_end() -> None:
    all_gone = [Struck(f"broker-{n}", Kind.KILL, 1, 10 * S, 40 * S) for n in (1, 2, 3)]
    records = [led(1, 1, 1, -1, 1), led(12, 1, 2, 1, -1), led(30, 1, 3, -1, 2)]
    assert [(i.took_s, i.counted) for i in leaderless(records, all_gone, 99 * S)] == [(20.0, False)]
    (endless,) = leaderless(records[:2], all_gone, 99 * S)
    assert endless.until_us == 99 * S


def test_what_is_being_deleted_needs_no_leader() -> None:
    marked = line(11, "controller", 1, 1, "topic", topic="t", to="deleting")
    records = [led(1, 1, 1, -1, 1), marked, led(12, 1, 2, 1, -1)]
    assert leaderless(records, [], 99 * S) == []
    assert leaderless([records[0], records[2]], [], 99 * S)


def test_percentiles_are_measured_values() -> None:
    spread = Distribution.of(range(1, 101))
    assert (spread.count, spread.p50, spread.p90, spread.p99, spread.longest) == (100, 50, 90, 99, 100)
    assert Distribution.of([3.0]) == Distribution(1, 3.0, 3.0, 3.0, 3.0)
    assert Distribution.of([]) == Distribution()


def test_a_wrong_clock_is_put_right_while_it_is_wrong() -> None:
    skews = [Skew("broker-1", 3600 * S, 10 * S, 20 * S)]
    assert true_time(3612 * S, "broker-1", skews) == 12 * S
    assert true_time(12 * S, "broker-1", skews) == 12 * S
    assert true_time(3612 * S, "broker-2", skews) == 3612 * S


def test_the_longest_write_of_each_episode_and_partition() -> None:
    played = [Played(1, "", 10, recovered_us=20), Played(2, "", 30, recovered_us=40)]
    writes = [
        Write(1, n, "t", partition, 0, 1, 0, begun, begun + took)
        for n, (partition, begun, took) in enumerate(
            [(0, 11, 5), (0, 12, 3), (1, 11, 2), (0, 35, 9), (0, 25, 99)]
        )
    ]
    writes.append(writes[0]._replace(offset=None, ended_us=1000))
    assert sorted(longest_writes(History(tuple(writes)), played)) == [2e-6, 5e-6, 9e-6]


def test_a_finding_names_the_episode_it_is_in() -> None:
    played = [Played(1, "one", 10), Played(2, "two", 30)]
    assert attributed(Finding(What.EPOCHS, "x", 29), played).fault == "one"
    assert attributed(Finding(What.EPOCHS, "x", 30), played).episode == 2
    assert attributed(Finding(What.EPOCHS, "x", 5), played).episode == 0


# --- logs of processes -----------------------------------------------------------------------------------

GOOD = '{"event":"registered","level":"info","timestamp":"2026-01-01T00:00:01Z"}\n'


@pytest.mark.parametrize(
    "bad",
    [
        '{"event":"unexpected error","level":"error","timestamp":"2026-01-01T00:00:02Z"}\n',
        '{"event":"replicas are offline","level":"error","exception":"Traceback ...","timestamp":""}\n',
        '{"event":"bug","level":"info"}\n',
        'Traceback (most recent call last):\n  File "x.py", line 1\nKeyError: 1\n',
        "Task exception was never retrieved\n",
    ],
)
def test_what_no_program_should_say_is_found_once(bad: str) -> None:
    assert list(odd_lines([GOOD])) == []
    (odd,) = odd_lines([GOOD, *bad.splitlines(keepends=True), GOOD])
    assert odd.at_us


def test_clear_errors_are_no_findings() -> None:
    offline = '{"event":"replicas are offline","level":"error","timestamp":"2026-01-01T00:00:02Z"}\n'
    assert list(odd_lines([GOOD, offline, "\n"])) == []
