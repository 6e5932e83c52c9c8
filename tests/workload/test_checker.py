"""The checker finds nothing in correct runs and exactly the planted fault in others: it can see."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.workload.checker import Finding, Kind, ReplicaLog, StoredBatch, Verdict, check
from controller.workload.history import Content, History, Read, Write
from tests.support.workload.generated import LEADER, Run, content, log_of, runs

KEY = ("t", 0)


def kinds(verdict: Verdict) -> list[Kind]:
    return [finding.kind for finding in verdict.findings]


def only(verdict: Verdict) -> Finding:
    (finding,) = verdict.findings
    return finding


def acknowledged(run: Run) -> list[Write]:
    return [write for write in run.history.writes if write.offset is not None]


def altered(run: Run, key: tuple[str, int], items: list[Content]) -> Run:
    return replace(run, logs={**run.logs, key: log_of(items)})


def laid(run: Run, key: tuple[str, int]) -> list[Content]:
    return [stored.content for stored in run.logs[key].records]


def verdict_of(run: Run) -> Verdict:
    return check(run.history, run.replicated(), run.leaders)


# --- correct runs --------------------------------------------------------------------------------------------


@given(runs())
def test_nothing_is_found_in_a_correct_run(run: Run) -> None:
    verdict = verdict_of(run)
    assert verdict.findings == []
    assert verdict.ok
    assert verdict.acknowledged == len(acknowledged(run))
    assert verdict.acknowledged + verdict.unacknowledged == len(run.history.writes)
    assert verdict.reads == len(run.history.reads)
    copies = sum(len(log.records) - len(set(laid(run, key))) for key, log in run.logs.items())
    assert verdict.extra_copies == copies
    assert verdict.line().startswith("GOOD: nothing lost")
    # Whose log counts does not matter when all are equal.
    assert check(run.history, run.replicated()).findings == []


def test_a_run_without_anything_is_not_good() -> None:
    verdict = check(History(), {})
    assert (verdict.findings, verdict.ok) == ([], False)
    assert verdict.line().startswith("NOTHING CHECKED: 0 acknowledged")
    # Nor is one in which nothing was acknowledged.
    assert not check(History(), {KEY: {1: log_of([])}}).ok


# --- one planted fault each ----------------------------------------------------------------------------------


@given(runs(), st.data())
def test_a_dropped_record_is_lost(run: Run, data: st.DataObject) -> None:
    """All copies give way to foreign records, so that no other offset changes."""
    victim = data.draw(st.sampled_from(acknowledged(run)))
    items = [Content(-1, -1, 7) if item == victim.content else item for item in laid(run, victim.key)]
    finding = only(verdict_of(altered(run.without_reads(), victim.key, items)))
    assert finding.kind is Kind.LOST
    assert (finding.writer, finding.sequence, finding.offset) == (
        victim.writer, victim.sequence, victim.offset,
    )  # fmt: skip
    assert "a foreign record" in finding.evidence
    assert "no replica has it" in finding.evidence


@given(runs(), st.data())
def test_a_log_cut_short_loses_what_was_behind_the_cut(run: Run, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(acknowledged(run))).key
    cut = data.draw(st.integers(0, run.logs[key].end_offset))
    kept = laid(run, key)[:cut]
    verdict = verdict_of(altered(run.without_reads(), key, kept))
    gone = {w.content for w in acknowledged(run) if w.key == key and w.offset is not None and w.offset >= cut}
    found = {content(f.writer, f.sequence): f.kind for f in verdict.findings}
    assert found == {item: Kind.MOVED if item in kept else Kind.LOST for item in gone}


@given(runs(), st.data())
def test_one_copy_too_many_is_a_duplicate(run: Run, data: st.DataObject) -> None:
    victim = data.draw(st.sampled_from(acknowledged(run)))
    assert victim.attempts is not None
    items = laid(run, victim.key)
    items += [victim.content] * (victim.attempts + 1 - items.count(victim.content))
    finding = only(verdict_of(altered(run, victim.key, items)))
    assert (finding.kind, finding.writer, finding.sequence) == (
        Kind.DUPLICATED, victim.writer, victim.sequence,
    )  # fmt: skip
    assert f"{victim.attempts + 1} copies" in finding.evidence


@given(runs(), st.data())
def test_a_copy_of_a_record_that_never_left_is_found(run: Run, data: st.DataObject) -> None:
    """Zero attempts: expired before it was sent."""
    key = data.draw(st.sampled_from(sorted(run.logs)))
    never = Write(9, 0, *key, content(9, 0).crc, 0, None)
    history = run.history._replace(writes=(*run.history.writes, never))
    changed = altered(replace(run, history=history), key, [*laid(run, key), never.content])
    assert kinds(verdict_of(changed)) == [Kind.DUPLICATED]


def two_in_order(first: int, second: int, acked: bool = True) -> History:
    return History(
        (
            Write(1, 0, *KEY, content(1, 0).crc, 1, first if acked else None),
            Write(1, 1, *KEY, content(1, 1).crc, 1, second),
        )
    )


@given(st.integers(0, 5), st.integers(0, 5))
def test_swapped_records_are_reordered(before: int, between: int) -> None:
    """The acknowledgements name the swapped offsets: only the order is wrong."""
    others = [Content(-1, -1, n) for n in range(12)]
    items = [*others[:before], content(1, 1), *others[before : before + between], content(1, 0)]
    first, second = len(items) - 1, before
    logs = {KEY: dict.fromkeys((1, 2, 3), log_of(items))}
    finding = only(check(two_in_order(first, second), logs))
    assert (finding.kind, finding.writer, finding.sequence) == (Kind.REORDERED, 1, 1)
    assert finding.offset == second
    # Given up and landed late: that is no disorder.
    assert check(two_in_order(first, second, acked=False), logs).findings == []


def test_records_that_changed_places_after_they_were_acknowledged_have_moved() -> None:
    logs = {KEY: {1: log_of([content(1, 1), content(1, 0)])}}
    verdict = check(two_in_order(0, 1), logs)
    assert kinds(verdict) == [Kind.MOVED, Kind.MOVED, Kind.REORDERED]
    assert "it is at 1" in verdict.findings[0].evidence


@given(runs(), st.data())
def test_a_phantom_read_is_found(run: Run, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(run.logs)))
    log = run.logs[key]
    offset = data.draw(st.integers(0, log.end_offset + 3))
    phantom = Read(5, *key, offset, *content(8, 8), offset + 1, 0)
    reads = (*run.history.reads, phantom)
    finding = only(verdict_of(replace(run, history=run.history._replace(reads=reads))))
    assert (finding.kind, finding.offset, finding.writer) == (Kind.READ_UNCOMMITTED, offset, 8)
    assert "reader 5 got record 8 of writer 8" in finding.evidence
    assert ("the log ends at" in finding.evidence) == (offset >= log.end_offset)


@given(runs(), st.data())
def test_a_read_at_or_beyond_the_high_watermark_is_found(run: Run, data: st.DataObject) -> None:
    victim = data.draw(st.sampled_from(acknowledged(run)))
    assert victim.offset is not None
    water = data.draw(st.integers(0, victim.offset))
    early = Read(5, *victim.key, victim.offset, *victim.content, water, 0)
    finding = only(verdict_of(replace(run, history=run.history._replace(reads=(*run.history.reads, early)))))
    assert (finding.kind, finding.offset) == (Kind.READ_UNCOMMITTED, victim.offset)
    assert f"under the high watermark {water}" in finding.evidence


@given(runs(), st.data())
def test_a_flipped_byte_in_one_replica_is_a_divergence(run: Run, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(acknowledged(run))).key
    log = run.logs[key]
    at = data.draw(st.integers(0, len(log.batches) - 1))
    batch = log.batches[at]
    flipped = bytes([batch.digest[0] ^ 1]) + batch.digest[1:]
    damaged: list[StoredBatch] = [*log.batches]
    damaged[at] = batch._replace(digest=flipped)
    replicas = run.replicated()
    replicas[key][3] = replace(log, batches=tuple(damaged))
    finding = only(check(run.history, replicas, run.leaders))
    assert (finding.kind, finding.offset) == (Kind.DIVERGED, batch.base_offset)
    assert f"broker {LEADER} has a batch" in finding.evidence
    assert "broker 3 has a batch" in finding.evidence
    assert finding.writer == log.records[batch.base_offset].content.writer


@given(runs(), st.data())
def test_replicas_that_end_differently_diverge(run: Run, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(acknowledged(run))).key
    log = run.logs[key]
    kept = data.draw(st.integers(0, len(log.batches) - 1))
    end = log.batches[kept].base_offset
    short = ReplicaLog(0, end, log.batches[:kept], log.records[:end])
    replicas = run.replicated()
    replicas[key][2] = short
    finding = only(check(run.history, replicas, run.leaders))
    assert (finding.kind, finding.offset) == (Kind.DIVERGED, end)
    assert f"ends at {log.end_offset}, broker 2 at {end}" in finding.evidence


# --- by example ----------------------------------------------------------------------------------------------


def test_a_record_that_only_a_follower_has_is_lost_and_the_replicas_diverge() -> None:
    write = Write(1, 0, *KEY, content(1, 0).crc, 1, 0)
    verdict = check(History((write,)), {KEY: {1: log_of([]), 2: log_of([content(1, 0)])}}, {KEY: 1})
    assert kinds(verdict) == [Kind.LOST, Kind.DIVERGED]
    assert "only 2 has it" in verdict.findings[0].evidence


def test_an_unreadable_replica_is_a_divergence_with_its_reason() -> None:
    good = log_of([content(1, 0)])
    write = Write(1, 0, *KEY, content(1, 0).crc, 1, 0)
    broken = ReplicaLog(problem="crc is wrong at 0")
    finding = only(check(History((write,)), {KEY: {1: good, 2: broken}}, {KEY: 1}))
    assert finding.kind is Kind.DIVERGED
    assert "broker 2: crc is wrong at 0" in str(finding)


def test_a_partition_without_any_replica_left_loses_all() -> None:
    write = Write(1, 0, *KEY, content(1, 0).crc, 1, 0)
    assert kinds(check(History((write,)), {})) == [Kind.LOST]


def test_the_name_of_a_writer_with_other_bytes_is_invented() -> None:
    write = Write(1, 0, *KEY, content(1, 0).crc, 1, 0)
    damaged = content(1, 0)._replace(crc=3)
    assert kinds(check(History((write,)), {KEY: {1: log_of([damaged])}})) == [Kind.LOST, Kind.INVENTED]


def test_what_lies_below_the_start_of_the_log_is_counted_and_not_checked() -> None:
    writes = tuple(Write(1, n, *KEY, content(1, n).crc, 1, n) for n in range(4))
    reads = (Read(0, *KEY, 0, *content(1, 0), 1, 0),)
    verdict = check(History(writes, reads), {KEY: {1: log_of([content(1, 2), content(1, 3)], start=2)}})
    assert (verdict.findings, verdict.not_checked) == ([], 2)
    assert "2 below the start of the log, not checked" in verdict.line()
    assert verdict.ok
    gone = check(History(writes, reads), {KEY: {1: log_of([], start=4)}})
    assert (gone.findings, gone.ok) == ([], False)
    assert gone.line().startswith("NOTHING CHECKED: 4 acknowledged")
    assert gone.line().endswith("; 4 below the start of the log, not checked")


def test_replicas_that_begin_differently_are_compared_where_both_have_records() -> None:
    items = [content(1, n) for n in range(4)]
    logs = {KEY: {1: log_of(items), 2: log_of(items[2:], start=2)}}
    write = Write(1, 3, *KEY, content(1, 3).crc, 1, 3)
    own = tuple(Write(1, n, *KEY, content(1, n).crc, 1, n) for n in range(3))
    assert check(History((*own, write)), logs).findings == []


def test_the_longest_write_is_one_that_was_acknowledged() -> None:
    acked = Write(1, 0, *KEY, content(1, 0).crc, 1, 0, 100, 130)
    given_up = Write(1, 1, *KEY, content(1, 1).crc, 1, None, 200, 900)
    verdict = check(History((acked, given_up)), {KEY: {1: log_of([content(1, 0)])}})
    assert verdict.longest_write_us == 30


def test_a_read_of_a_partition_that_has_neither_writes_nor_logs_is_found() -> None:
    finding = only(check(History((), (Read(0, "gone", 4, 0, *content(1, 0), 1, 0),)), {}))
    assert (finding.kind, finding.topic, finding.partition) == (Kind.READ_UNCOMMITTED, "gone", 4)


def test_of_replicas_without_a_leader_the_longest_counts() -> None:
    items = [content(1, 0), content(1, 1)]
    writes = tuple(Write(1, n, *KEY, content(1, n).crc, 1, n) for n in range(2))
    logs = {KEY: {1: log_of(items[:1]), 2: log_of(items), 3: log_of(items[:1])}}
    verdict = check(History(writes), logs)
    assert kinds(verdict) == [Kind.DIVERGED, Kind.DIVERGED]
    assert "broker 2 ends at 2, broker 1 at 1" in verdict.findings[0].evidence


def test_who_has_a_lost_record_at_another_offset_is_not_said_to_have_it() -> None:
    write = Write(1, 0, *KEY, content(1, 0).crc, 1, 0)
    foreign = Content(-1, -1, 7)
    logs = {KEY: {1: log_of([foreign, foreign]), 2: log_of([foreign, content(1, 0)])}}
    verdict = check(History((write,)), logs, {KEY: 1})
    assert "no replica has it there" in verdict.findings[0].evidence


def test_sends_in_any_order_and_several_records_that_stand_too_early() -> None:
    """Each is compared with the furthest before it: that 2 stands before 0 does not let 3 stand there, too."""
    places = {0: 3, 1: 2, 2: 0, 3: 1, 4: 4}
    items = [content(1, n) for n in sorted(places, key=places.__getitem__)]
    writes = tuple(Write(1, n, *KEY, content(1, n).crc, 1, places[n]) for n in (4, 0, 3, 1, 2))
    verdict = check(History(writes), {KEY: {1: log_of(items)}})
    assert [(f.kind, f.sequence) for f in verdict.findings] == [(Kind.REORDERED, n) for n in (1, 2, 3)]


def test_batches_that_begin_elsewhere_are_a_divergence() -> None:
    items = [content(1, n) for n in range(4)]
    writes = tuple(Write(1, n, *KEY, content(1, n).crc, 1, n) for n in range(4))
    logs = {KEY: {1: log_of(items, [2, 1, 1]), 2: log_of(items, [2, 1, 1])}}
    one, two = logs[KEY].values()
    logs[KEY][2] = replace(two, batches=(two.batches[0], two.batches[2]))
    finding = only(check(History(writes), logs, {KEY: 1}))
    assert (finding.kind, finding.offset, finding.sequence) == (Kind.DIVERGED, 2, 2)
    assert "broker 2 has no batch that begins there" in finding.evidence
    assert one.batches[0] == two.batches[0]


def test_a_killed_writer_allows_any_number_of_copies() -> None:
    write = Write(1, 0, *KEY, content(1, 0).crc, None, None)
    other = Write(1, 1, *KEY, content(1, 1).crc, 1, 5)
    items = [content(1, 0)] * 5 + [content(1, 1)]
    verdict = check(History((write, other)), {KEY: {1: log_of(items)}})
    assert (verdict.findings, verdict.extra_copies) == ([], 4)


@pytest.mark.parametrize("kind", Kind)
def test_a_bad_verdict_names_what_it_found(kind: Kind) -> None:
    verdict = Verdict([Finding(kind, "t", 3, 17, 1, 2, "why")] * 2, acknowledged=5, partitions=1, replicas=3)
    assert not verdict.ok
    assert verdict.count(kind) == 2
    assert verdict.line().startswith(f"BAD: 2 {kind.value} (5 acknowledged records")
    assert str(verdict.findings[0]) == f"{kind.value}: t-3@17, record 2 of writer 1: why"
