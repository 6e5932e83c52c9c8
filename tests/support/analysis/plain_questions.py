"""The tables of ``controller.analysis.questions`` by plain loops over the records: slow, and easy to check by eye."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proto.statelog.schema import GONE, NEW, ONLINE

Line = tuple[int, dict[str, Any]]
Rows = list[dict[str, Any]]
HOUR_US = 3_600_000_000


def in_order(lines: Sequence[Line], kinds: Iterable[str]) -> list[Line]:
    """The controllers' records of these kinds, in the order of their events."""
    wanted = set(kinds)
    numbered = [
        ((row["controller_epoch"], row["event_id"], ts_us, number), (ts_us, row))
        for number, (ts_us, row) in enumerate(lines)
        if row["kind"] in wanted and row["role"] == "controller"
    ]
    return [line for _, line in sorted(numbered, key=lambda each: each[0])]


def intervals(lines: Sequence[Line], end_us: int) -> Rows:
    """Every interval without a leader."""
    moves: dict[Any, list[Line]] = defaultdict(list)
    for ts_us, row in in_order(lines, ["partition"]):
        moves[row["topic"], row["partition"]].append((ts_us, row))
    ready: dict[int, int] = {}
    for ts_us, row in in_order(lines, ["failover"]):
        if row["to"] == "ready":
            epoch = row["controller_epoch"]
            ready[epoch] = min(ready.get(epoch, ts_us), ts_us)
    return [found for rows in moves.values() for found in _intervals_of(rows, ready, end_us)]


def _intervals_of(rows: list[Line], ready: Mapping[int, int], end_us: int) -> Rows:
    edges: list[tuple[int, dict[str, Any], int]] = []
    worst = 0
    for ts_us, row in rows:
        state = {ONLINE: 0, GONE: 0, NEW: 1}.get(row["to"], 2)
        now = 0 if state == 0 else max(worst, state)
        if now != worst:
            edges.append((ts_us, row, now))
        worst = now
    last_epoch = max(row["controller_epoch"] for _, row in rows)
    later = sorted(epoch for epoch in ready if epoch > last_epoch)
    found = []
    for place, (ts_us, row, state) in enumerate(edges):
        if state == 0:
            continue
        following = edges[place + 1] if place + 1 < len(edges) else None
        if following is not None:
            until, ended_by = (
                following[0],
                {ONLINE: "online", GONE: "deleted"}.get(following[1]["to"], "offline"),
            )
        else:
            until, ended_by = (ready[later[0]], "failover") if later else (end_us, "nothing")
        same = following is not None and all(
            following[1][name] == row[name] for name in ("controller_epoch", "event_id")
        )
        deleted = (same and ended_by == "deleted") or "delet" in row["cause"].lower()
        start = ts_us - row.get("silent_us", 0)
        found.append(
            {
                **{
                    name: row[name]
                    for name in ("topic", "partition", "cause", "controller_epoch", "event_id")
                },
                "class": "creation" if state == 1 else "deletion" if deleted else "outage",
                "start": start,
                "end": until,
                "duration": max(0, until - start),
                "ended_by": ended_by,
                "open": ended_by == "nothing",
                "lost_leader": row["leader"] if row.get("leader", -1) >= 0 else None,
                "detection": row.get("silent_us"),
            }
        )
    return found


def outages(found: Rows) -> Rows:
    return [row for row in found if row["class"] == "outage"]


def by_dimension(found: Rows, racks: Mapping[int, str]) -> dict[Any, Any]:
    groups: dict[Any, Rows] = defaultdict(list)
    for row in outages(found):
        broker = row["lost_leader"]
        groups["all", "all"].append(row)
        groups["cause", row["cause"]].append(row)
        groups["broker", None if broker is None else str(broker)].append(row)
        groups["rack", racks.get(broker)].append(row)
    return {key: _measured(rows) for key, rows in groups.items()}


def _measured(rows: Rows) -> tuple[Any, ...]:
    mended = sorted(row["duration"] for row in rows if row["ended_by"] in ("online", "failover"))
    told = [row for row in rows if row["detection"] is not None]

    def at(percent: int) -> int | None:
        return mended[math.ceil(len(mended) * percent / 100) - 1] if mended else None

    return (
        *(len(rows), sum(row["open"] for row in rows), sum(row["duration"] for row in rows)),
        *(sum(min(row["detection"], row["duration"]) for row in told), len(told), len(mended)),
        *(at(50), at(95), at(100)),
    )


def by_hour(found: Rows) -> dict[int, tuple[int, int]]:
    hours: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in outages(found):
        start, end = row["start"], row["start"] + row["duration"]
        hours[start // HOUR_US][0] += 1
        for hour in range(start // HOUR_US, end // HOUR_US + 1):
            hours[hour][1] += min(end, (hour + 1) * HOUR_US) - max(start, hour * HOUR_US)
    return {hour: (begun, spent) for hour, (begun, spent) in hours.items() if begun or spent}


def partitions(lines: Sequence[Line], found: Rows, first_us: int, last_us: int) -> dict[Any, Any]:
    named: dict[Any, list[Line]] = defaultdict(list)
    for ts_us, row in in_order(lines, ["partition", "leader", "isr"]):
        named[row["topic"], row["partition"]].append((ts_us, row))
    rows = {}
    for key, told in named.items():
        created = [
            at for at, r in told if r["kind"] == "partition" and (r.get("from"), r["to"]) == (GONE, NEW)
        ]
        gone = [at for at, r in told if r["kind"] == "partition" and r["to"] == GONE]
        first, last = min(at for at, _ in told), max(at for at, _ in told)
        since = first if created and min(created) == first else first_us
        until = last if gone and max(gone) == last else last_us
        out = [row for row in outages(found) if (row["topic"], row["partition"]) == key]
        rows[key] = (
            sum(r["kind"] == "leader" and r["from"] != r["to"] for _, r in told),
            sum(r["kind"] == "isr" for _, r in told),
            len(out),
            sum(row["duration"] for row in out),
            max((row["duration"] for row in out), default=0),
            any(row["open"] for row in out),
            max(0, until - since),
        )
    return rows


def availability(rows: Mapping[Any, Any], slo: float) -> dict[Any, Any]:
    """By topic, None for all: partitions, outages, percent, percent of the error budget that was used."""
    sums: dict[Any, list[Any]] = defaultdict(list)
    for (topic, _), row in rows.items():
        sums[topic].append(row)
        sums[None].append(row)
    found = {}
    for topic, each in sums.items():
        seen, out = sum(row[6] for row in each), sum(row[3] for row in each)
        budget = seen * (100 - slo) / 100
        found[topic] = (
            *(len(each), sum(row[2] for row in each)),
            (seen - min(out, seen)) / seen * 100 if seen else None,
            out / budget * 100 if budget else None,
        )
    return found


def departures(lines: Sequence[Line], found: Rows, together_us: int) -> Rows:
    moves: dict[int, list[Line]] = defaultdict(list)
    for ts_us, row in in_order(lines, ["broker"]):
        if row["to"] in ("offline", "bounced", "online", "shutting_down", "found"):
            moves[row["replica"]].append((ts_us, row))
    left: Rows = []
    for broker, told in moves.items():
        for place, (ts_us, row) in enumerate(told):
            if row["to"] not in ("offline", "bounced"):
                continue
            following = told[place + 1] if place + 1 < len(told) else None
            bounced, back = row["to"] == "bounced", None
            if bounced:
                back = ts_us
            elif following and (following[1].get("from"), following[1]["to"]) == ("offline", "online"):
                back = following[0]
            before = [r["to"] for _, r in told[:place] if r["to"] != "found"]
            began = ts_us - row.get("silent_us", 0)
            event = (broker, row["controller_epoch"], row["event_id"])
            caused = [
                r["duration"]
                for r in outages(found)
                if (r["lost_leader"], r["controller_epoch"], r["event_id"]) == event
            ]
            left.append(
                {
                    "broker": broker,
                    "left": began,
                    "recorded": ts_us,
                    "to": row["to"],
                    "back": back,
                    "controlled": before[-1:] == ["shutting_down"],
                    "away": None if back is None else max(0, back - began),
                    "returned": bounced or following is not None,
                    "detection": row.get("silent_us"),
                    "partitions": len(caused),
                    "leaderless": sum(caused),
                }
            )
    left.sort(key=lambda row: (row["left"], row["recorded"], row["broker"]))
    number = 1
    for place, row in enumerate(left):
        earlier = left[:place]
        ends = [max(r["left"], r["left"] if r["back"] is None else r["back"]) for r in earlier]
        away = [r["back"] or (r["left"] if r["returned"] else math.inf) for r in earlier]
        number += bool(earlier) and row["left"] - max(ends) > together_us
        row["together"] = number
        row["overlapping"] = bool(earlier) and max(away) > row["left"]
    return left


def stability(left: Rows, window_us: int, losses: int) -> dict[int, Any]:
    found = {}
    for broker in {row["broker"] for row in left}:
        own = [row for row in left if row["broker"] == broker]
        lost = [row["left"] for row in own if not row["controlled"]]
        most = {at: sum(at <= other <= at + window_us for other in lost) for at in lost}
        peak = max(most.values(), default=0)
        away = [row["away"] for row in own if row["away"] is not None]
        found[broker] = (
            *(len(own), len(own) - len(lost), len(lost), sum(away), max(away, default=None)),
            *(peak, min((at for at in lost if most[at] == peak), default=None), peak >= losses),
            *(sum(row[name] for row in own) for name in ("partitions", "leaderless")),
        )
    return found


def rolling_restarts(left: Rows) -> dict[int, Any]:
    found = {}
    for number in {row["together"] for row in left}:
        own = [row for row in left if row["together"] == number]
        brokers = sorted({row["broker"] for row in own})
        controlled, overlapping = (sum(row[name] for row in own) for name in ("controlled", "overlapping"))
        if len(brokers) < 2 or len(own) - overlapping < 2:
            continue
        wrong = {
            "uncontrolled": controlled < len(own),
            "overlapping": overlapping > 0,
            "leaderless": any(row["partitions"] for row in own),
            "repeated": len(brokers) < len(own),
            "not back": not all(row["returned"] for row in own),
        }
        found[number] = (
            brokers,
            len(own),
            controlled,
            overlapping,
            [name for name, is_so in wrong.items() if is_so],
        )
    return found


def operations(lines: Sequence[Line], end_us: int) -> list[Any]:
    begins, ends = {"moving", "settling", "deleting"}, {"moved", "cancelled", "deleted", "vanished", "known"}
    waits = {"held up", "waiting for deletion", "ineligible for deletion"}
    running: dict[Any, list[tuple[int, str, str | None]]] = {}
    found = []

    def close(key: Any) -> None:
        steps = running.pop(key)
        asked, last = min(at for at, _, _ in steps), [at for at, step, _ in steps if step in ends]
        begun = [at for at, step, _ in steps if step in begins]
        until = last[0] if last else end_us
        reasons = [reason for _, _, reason in steps if reason is not None]
        found.append(
            (
                *key,
                next((step for _, step, _ in steps if step in ends), "open"),
                max(0, (min(begun) if begun else until) - asked),
                max(0, until - asked),
                len(begun),
                sum(step in waits for _, step, _ in steps),
                reasons[-1] if reasons else None,
            )
        )

    for ts_us, row in in_order(lines, ["reassignment", "topic", "reject"]):
        topic, step = row.get("topic"), row.get("to")
        if row["kind"] == "reject":
            step = "held up" if row["error"] == "REASSIGNMENT_HELD_UP" else None
        elif (
            row["kind"] == "topic"
            and row.get("from") in ("known", "created")
            and step in ("vanished", "deleted")
        ):
            continue
        if topic is None or step not in {"queued"} | begins | ends | waits:
            continue
        name = "deletion" if row["kind"] == "topic" else "reassignment"
        key = (name, topic, row.get("partition"))
        running.setdefault(key, []).append((ts_us, step, row.get("reason")))
        if step in ends:
            close(key)
    for key in list(running):
        close(key)
    return sorted(found, key=str)
