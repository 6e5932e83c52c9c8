"""Moments of a cluster's past: a time, or an event of a controller epoch. Imports no Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from controller.analysis.errors import ReportError
from controller.analysis.lines import time_or_age

#: Who wrote: role and node.
Writer = tuple[str, int]
Corrections = Mapping[Writer, int]
_EVENT = re.compile(r"(\d{1,10})(?::(\d{1,18}))?")


@dataclass(frozen=True)
class Moment:
    """``at_us``: microseconds since 1970; None: of ``epoch``, after ``event`` (None: after its failover)."""

    shown: str
    at_us: int | None = None
    epoch: int = -1
    event: int | None = None


@dataclass(frozen=True)
class Term:
    """A controller epoch in the logs. Times as its controller wrote them, microseconds since 1970; None: not in the
    logs.

    ``last_us``: its last decision; ``ready_us`` and ``ready_event``: the end of its failover; ``brokers`` and
    ``partitions``: how many it found then, the latter at ``counted_us``; ``named``: of how many brokers it says so.
    """

    epoch: int
    node: int
    began_us: int
    last_us: int | None = None
    ready_us: int | None = None
    ready_event: int | None = None
    resigned_us: int | None = None
    brokers: int | None = None
    partitions: int | None = None
    counted_us: int | None = None
    named: int = 0

    @property
    def names_all_brokers(self) -> bool:
        """False: lines are lost, or of a version that did not name them."""
        return self.brokers is not None and self.named >= self.brokers


@dataclass(frozen=True)
class Cut:
    """What came before a moment: all of earlier epochs than ``term``'s, and of this one what was written until
    ``until_us`` (microseconds since 1970, by corrected clocks), or events up to ``event``.

    ``base``: the newest epoch whose failover was over, None: none in the logs.
    """

    shown: str
    term: Term
    base: Term | None
    until_us: int | None = None
    event: int | None = None


def corrected(us: int, term: Term, corrections: Corrections) -> int:
    """A time that the term's controller wrote, by corrected clocks."""
    return us + corrections.get(("controller", term.node), 0)


def parse_moment(when: str | int | datetime) -> Moment:
    """A time (RFC 3339 with its offset from UTC, a datetime with one, or an age), a controller epoch, or
    ``EPOCH:EVENT``.

    Raises ReportError.
    """
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise ReportError(f"{when.isoformat()}: a time needs its offset from UTC")
        when = when.astimezone(UTC).isoformat()
    text = str(when)
    if found := _EVENT.fullmatch(text):
        return Moment(text, epoch=int(found[1]), event=None if found[2] is None else int(found[2]))
    try:
        return Moment(text, at_us=time_or_age(text))
    except ValueError:
        epochs = "a controller epoch like 7, or an event of one like 7:12"
        wanted = f"a time like 2026-01-14T10:15:00Z, an age like 10m, {epochs}"
        raise ReportError(f"{text!r}: must be {wanted}") from None


def cut_at(moment: Moment, terms: Sequence[Term], corrections: Corrections) -> Cut:
    """What the logs have of the time before the moment. ``terms``: in order of their epochs.

    Raises ReportError if they have nothing of it.
    """
    if not terms:
        raise ReportError("no controller's records in the logs: only brokers' logs were given, or empty ones")
    return _at_event(moment, terms) if moment.at_us is None else _at_time(moment, terms, corrections)


def _at_event(moment: Moment, terms: Sequence[Term]) -> Cut:
    place = next((n for n, term in enumerate(terms) if term.epoch == moment.epoch), None)
    epochs = f"{terms[0].epoch} to {terms[-1].epoch}"
    if place is None:
        raise ReportError(f"controller epoch {moment.epoch}: not in the logs, which have {epochs}")
    term = terms[place]
    event = term.ready_event if moment.event is None else moment.event
    if event is None:
        why = "the logs do not have the end of its failover"
        raise ReportError(f"controller epoch {term.epoch}: {why}; an event of it is {term.epoch}:EVENT")
    ready = term.ready_event is not None and term.ready_event <= event
    return Cut(moment.shown, term, _base(terms, place, ready), event=event)


def _at_time(moment: Moment, terms: Sequence[Term], corrections: Corrections) -> Cut:
    assert moment.at_us is not None
    began_us = [corrected(term.began_us, term, corrections) for term in terms]
    places = [n for n, us in enumerate(began_us) if us <= moment.at_us]
    if not places:
        began = min(began_us)
        raise ReportError(f"{moment.shown}: before the logs' first record of a controller, of {shown(began)}")
    term = terms[places[-1]]
    ready = term.ready_us is not None and corrected(term.ready_us, term, corrections) <= moment.at_us
    return Cut(moment.shown, term, _base(terms, places[-1], ready), until_us=moment.at_us)


def _base(terms: Sequence[Term], place: int, ready: bool) -> Term | None:
    over = [term for term in terms[:place] if term.ready_us is not None]
    return terms[place] if ready else over[-1] if over else None


def shown(us: int) -> str:
    """Microseconds since 1970 as the log writes them."""
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
