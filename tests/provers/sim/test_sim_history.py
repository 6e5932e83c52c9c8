"""The judgement of a simulated run's clients: what is a finding, and what is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_stub.log import batches
from broker_stub.replication.service import OFFSETS_TOPIC
from controller.workload.checker import Finding, Kind
from proto.gen import broker_data_pb2 as wire
from tests.provers.sim.history import FinalPartition, History
from tests.provers.sim.zk_tree import NodeCreated, NodeDeleted, Transaction
from tests.support.broker.memory_log import MemoryLog

FOO = ("foo", 0)
ID_A, ID_B = "a" * 22, "b" * 22


class Log:
    """A leader's log that the history hears of."""

    def __init__(self, history: History, topic_id: str = ID_A) -> None:
        self.log, self._history, self._topic_id = MemoryLog(), history, topic_id

    def append(self, value: bytes, epoch: int = 1) -> int:
        records = batches.encode([(None, value)], 5)
        offset = self.log.append_as_leader(records, epoch).first_offset
        self._history.appended(FOO, self._topic_id, offset, records)
        return offset

    def final(self, *others: MemoryLog) -> list[FinalPartition]:
        logs = dict(enumerate([self.log, *others], 1))
        return [FinalPartition(*FOO[:1], self._topic_id, FOO[1], 1, logs)]


@pytest.fixture
def topic_ids() -> dict[str, str]:
    return {"foo": ID_A}


@pytest.fixture
def history(topic_ids: dict[str, str]) -> History:
    return History(lambda: 7, topic_ids.get)


def write(history: History, log: Log, acks: int = -1) -> bytes:
    value = history.sending(0, FOO, acks)
    history.sent(value, log.append(value))
    return value


def kinds(history: History) -> list[Kind]:
    found = []
    for finding in history.findings:
        assert isinstance(finding, Finding)
        found.append(finding.kind)
    return found


def test_what_is_where_it_was_acknowledged_is_good(history: History) -> None:
    log = Log(history)
    for _ in range(3):
        value = write(history, log)
    history.read(0, FOO, 2, value, 3)
    verdict = history.check_final(log.final())
    assert (verdict.ok, verdict.acknowledged, verdict.reads, history.findings) == (True, 3, 1, [])


def test_another_record_in_its_place_is_told_at_once(history: History) -> None:
    log = Log(history)
    write(history, log)
    log.log.truncate_to(0)
    write(history, log)
    assert kinds(history) == [Kind.MOVED]


@pytest.mark.parametrize("acks", [1, -1])
def test_only_what_all_have_must_stay(history: History, acks: int) -> None:
    log = Log(history)
    write(history, log, acks)
    log.log.truncate_to(0)
    history.check_final(log.final())
    assert kinds(history) == ([Kind.LOST] if acks == -1 else [])


def test_a_member_that_differs_is_found(history: History) -> None:
    log = Log(history)
    write(history, log)
    history.check_final(log.final(MemoryLog()))
    assert kinds(history) == [Kind.DIVERGED]


def test_reading_above_the_high_watermark_or_what_nobody_wrote(history: History) -> None:
    log = Log(history)
    value = write(history, log)
    history.read(0, FOO, 0, value, 0)
    history.read(0, FOO, 5, value, 9)
    assert kinds(history) == [Kind.READ_UNCOMMITTED, Kind.INVENTED]


def test_records_belong_to_one_topic_id(history: History, topic_ids: dict[str, str]) -> None:
    write(history, Log(history))
    topic_ids["foo"] = ID_B
    again = Log(history, ID_B)
    value = write(history, again)
    history.read(0, FOO, 0, value, 1)
    history.truncated(FOO, 5, 1)
    assert history.check_final(again.final()).acknowledged == 1
    assert history.findings == []


def test_a_log_that_ends_below_what_was_read(history: History) -> None:
    log = Log(history)
    history.read(0, FOO, 0, write(history, log), 1)
    history.truncated(FOO, 1, 0)
    assert kinds(history) == [Kind.LOST]


def test_what_a_fault_excuses_is_no_finding(history: History) -> None:
    log = Log(history)
    value = write(history, log)
    history.excuse("foo", ID_A, 0)
    log.log.truncate_to(0)
    write(history, log)
    history.truncated(FOO, 1, 0)
    history.check_final(log.final())
    assert value
    assert history.findings == []


def commit(history: History, number: int) -> Callable[[], None]:
    """What has that commit's request arrive at a broker."""
    offset = wire.CommittedOffset(topic="foo", partition=0, offset=number, leader_epoch=-1)
    request = wire.OffsetCommitRequest(group_id="g", offsets=[offset]).SerializeToString()
    return lambda: history.request_arrived("member-0", "broker-1", "/x.BrokerData/OffsetCommit", request)


def committed(history: History, *numbers: int) -> None:
    for number in numbers:
        assert history.committing("g", FOO) == number
        commit(history, number)()
        history.offset_committed("g", FOO, number)


@pytest.mark.parametrize("found", [None, 0, 3])
def test_a_committed_offset_that_went_back_or_is_none_or_another(history: History, found: int | None) -> None:
    committed(history, 0, 1)
    history.offset_fetched("g", FOO, found, history.last_acknowledged("g", FOO))
    assert len(history.findings) == 1
    assert "1 was acknowledged" in str(history.findings[0])


def test_an_older_commit_may_come_late(history: History) -> None:
    committed(history, 0, 1)
    history.offset_fetched("g", FOO, 1, 1)
    commit(history, 0)()
    history.offset_fetched("g", FOO, 0, 1)
    history.excuse(OFFSETS_TOPIC, ID_B, 0)
    history.offset_fetched("g", FOO, None, 1)
    assert history.findings == []


def test_offsets_go_with_their_topic(history: History) -> None:
    marker = "/admin/delete_topics/foo"
    committed(history, 0, 1)
    history.committing("g", FOO)
    history.agreed(Transaction(1, 0, (NodeCreated(marker, b"", 31, 0, 1),)))
    committed(history, 3)
    history.agreed(Transaction(2, 0, (NodeDeleted(marker),)))
    history.offset_committed("g", FOO, 2)
    for before in (0, 1, history.last_acknowledged("g", FOO)):
        history.offset_fetched("g", FOO, None, before)
    assert history.findings == []
    committed(history, 4)
    history.offset_fetched("g", FOO, None, 4)
    assert len(history.findings) == 1
