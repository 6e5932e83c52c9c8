"""Lines of a log, good and bad, and what every reader must make of them."""

from __future__ import annotations

from typing import Any

from tests.support.analysis.records import record, text

GOOD = text(record("partition", topic="t", partition=0, old="NewPartition", to="OnlinePartition"))


def without(name: str) -> str:
    fields = record("partition", topic="t", partition=0, to="OnlinePartition")
    del fields[name]
    return text(fields)


def changed(**fields: Any) -> str:
    base = record("partition", topic="t", partition=0, old="NewPartition", to="OnlinePartition")
    return text({**base, **{("from" if name == "old" else name): value for name, value in fields.items()}})


#: Line, status, problem.
JUDGEMENTS: list[tuple[str | bytes, str, str | None]] = [
    (GOOD, "ok", None),
    (GOOD + "\r", "ok", None),
    (GOOD.replace(":", " : "), "malformed", "ts: not a time in UTC"),
    (GOOD.replace('","', '" , "'), "ok", None),
    (changed(topic='ünïcode ✓ " \\ } {'), "ok", None),
    (changed(reason='a quoted "topic":5 is only text'), "ok", None),
    (changed(reason='{"schema":1} is only text'), "ok", None),
    (changed(extra={"from": ["a", "newer", "writer"]}), "ok", None),
    (changed(extra=[1]), "ok", None),
    (changed(kind="unheard-of"), "ok", None),
    (changed(isr=[1, 2], leader=-1, count=0, duration_us=10**14), "ok", None),
    (GOOD[:-9], "torn", "torn"),
    ('{"sche', "torn", "torn"),
    (changed(reason="é").encode()[:-3], "torn", "torn"),
    ("", "malformed", "empty line"),
    ("garbage", "malformed", "not JSON"),
    (b"\x00" * 64, "malformed", "not JSON"),
    (b"\x93\xff\xfe\x80", "malformed", "not UTF-8"),
    (changed(reason="X").encode().replace(b"X", b"\xff\xfe"), "malformed", "not UTF-8"),
    ("[1,2]", "malformed", "not a JSON object"),
    ("null", "malformed", "not a JSON object"),
    ("'single': 1}", "malformed", "not JSON"),
    ("{}", "malformed", "schema: missing"),
    (GOOD + " and more", "malformed", "text after the record"),
    (GOOD + GOOD, "malformed", "two records in one line"),
    (GOOD[:40] + GOOD, "malformed", "two records in one line"),
    (changed(schema=2), "newer_schema", "schema version 2"),
    (changed(schema=7, node={"id": 1}, kind=5), "newer_schema", "schema version 7"),
    (changed(schema=0), "malformed", "schema: out of range"),
    (changed(schema="1"), "malformed", "schema: not an integer"),
    *((without(name), "malformed", f"{name}: missing") for name in ("schema", "ts", "role", "node")),
    *((without(name), "malformed", f"{name}: missing") for name in ("controller_epoch", "event_id", "cause")),
    *((without(name), "malformed", f"{name}: missing") for name in ("kind", "topic", "partition", "to")),
    (changed(node="1"), "malformed", "node: not an integer"),
    (changed(node=1.5), "malformed", "node: not an integer"),
    (changed(node=None), "malformed", "node: missing"),
    (changed(partition=[3]), "malformed", "partition: not an integer"),
    (changed(isr="[1]"), "malformed", "isr: not a list of integers"),
    (changed(topic=5), "malformed", "topic: not a string"),
    (changed(old=1), "malformed", "from: not a string"),
    (changed(ts=1768384800), "malformed", "ts: not a string"),
    (changed(ts="yesterday"), "malformed", "ts: not a time in UTC"),
    (changed(ts="2026-01-14T10:00:00.000000"), "malformed", "ts: not a time in UTC"),
    (changed(ts="2026-01-14T12:00:00.000000+02:00"), "malformed", "ts: not a time in UTC"),
    (changed(ts="2026-02-30T10:00:00.000000Z"), "malformed", "ts: not a time in UTC"),
    (changed(ts="9999-01-14T10:00:00.000000Z"), "malformed", "ts: out of range"),
    (changed(role="king"), "malformed", "role: not controller or broker"),
    (changed(node=2**31), "malformed", "node: out of range"),
    (changed(event_id=-1), "malformed", "event_id: out of range"),
    (changed(count=10**30), "malformed", "count: not an integer"),
    (changed(duration_us=2**63 - 1), "malformed", "duration_us: out of range"),
    (changed(kind="leader", old="1", to="[2]"), "malformed", "to: not a broker id"),
    (changed(kind="reject"), "malformed", "error: missing"),
    ('{"schema":1,"node":' + "9" * 5000 + "}", "malformed", "not JSON"),
    ('{"schema":1,"isr":' + "[" * 5000 + "]" * 5000 + "}", "malformed", "not JSON"),
    (changed(topic="x" * 3_000_000), "ok", None),
]
