"""The daemon's own log holds no flood of rejections."""

from __future__ import annotations

from structlog.testing import capture_logs

from controller.core.records import Rejection
from controller.runtime.observe.rejection_log import LINES_MAX, RejectionLog
from proto.rate_limit import WINDOW_S


def test_each_error_has_some_lines_in_a_minute_and_then_a_count() -> None:
    now_s = 0.0
    told = RejectionLog(lambda: now_s)
    with capture_logs() as logs:
        for event_id in range(100):
            told.tell([Rejection("INELIGIBLE_REPLICA", "broker 3 is shutting down")] * 3, event_id)
        told.tell([Rejection("CONFLICT", "another writer")], 101)
    assert [(line["event"], line["error"]) for line in logs] == [
        *[("rejected", "INELIGIBLE_REPLICA")] * LINES_MAX,
        ("rejected_more", "INELIGIBLE_REPLICA"),
        ("rejected", "CONFLICT"),
    ]
    now_s = WINDOW_S
    with capture_logs() as logs:
        told.tell([Rejection("INELIGIBLE_REPLICA", "again"), Rejection("CONFLICT", "again")], 102)
    assert [(line["event"], line["error"], line.get("count")) for line in logs] == [
        ("rejected", "INELIGIBLE_REPLICA", 300 - LINES_MAX + 1),
        ("rejected", "CONFLICT", None),
    ]
    now_s = WINDOW_S + 1.0
    with capture_logs() as logs:
        told.tell([Rejection("CONFLICT", "and again")] * 10, 103)
    assert [line["event"] for line in logs] == [*["rejected"] * (LINES_MAX - 1), "rejected_more"]
