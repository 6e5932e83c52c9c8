"""What is remembered of exceptions, and when it is left out."""

from __future__ import annotations

import pytest

from controller.core.cluster.quarantine import (
    REMEMBERED_MS,
    REQUESTS_MAX,
    SUSPECTS_MAX,
    Quarantine,
    Subject,
    SubjectKind,
    Suspect,
)
from controller.core.events import EventKind
from tests.support.paths import DOCS

TOPIC = Subject(SubjectKind.TOPIC, "t")


def raised(subject: Subject = TOPIC, *, epoch: int = 1, digest: str = "d", at_ms: int = 0) -> Suspect:
    return Suspect(subject.kind, subject.name, "TopicChange", "KeyError: 1", digest, 7, epoch, at_ms)


def test_twice_in_one_term_is_once() -> None:
    found = Quarantine().remember(raised()).remember(raised())
    assert not found.skips(TOPIC)
    assert found.suspects["topic/t"].count == 2


@pytest.mark.parametrize("kind", SubjectKind)
def test_subjects_have_the_names_and_limits_of_the_runbook(kind: SubjectKind) -> None:
    runbook = (DOCS / "runbooks.md").read_text(encoding="utf-8")
    assert f"| `{Subject(kind, '')}" in runbook
    assert (SUSPECTS_MAX, REMEMBERED_MS, REQUESTS_MAX) == (100, 24 * 3600 * 1000, 3)


def test_what_raises_in_another_term_is_left_out() -> None:
    found = Quarantine().remember(raised()).remember(raised(epoch=2))
    assert found.skips(TOPIC)
    assert found.paths() == {
        "/brokers/topics/t": "in quarantine: TopicChange raised KeyError: 1 (2 times)",
    }
    assert not found.without("topic/t").skips(TOPIC)


def test_a_fault_that_is_known_already_needs_one_term() -> None:
    found = Quarantine().remember(raised()).remember(raised(epoch=2))
    other = Subject(SubjectKind.BROKER, "3")
    assert found.remember(raised(other, epoch=3)).skips(other)
    assert not found.remember(raised(other, epoch=3, digest="another")).skips(other)


def test_the_event_is_blamed_when_leaving_out_its_subject_did_not_help() -> None:
    event = Subject(SubjectKind.EVENT, "TopicChange")
    found = Quarantine()
    assert found.blamed([TOPIC, event], "d") == TOPIC
    found = found.remember(raised()).remember(raised(epoch=2))
    assert found.blamed([TOPIC, event], "d") == event
    found = found.remember(raised(event, epoch=3))
    assert found.events() == {EventKind.TOPIC_CHANGE}
    assert found.blamed([TOPIC, event], "d") == event


def test_no_controller_leads_without_a_failover() -> None:
    event = Subject(SubjectKind.EVENT, "ControllerFailover")
    found = Quarantine().remember(raised(event)).remember(raised(event, epoch=2))
    assert found.skips(event)
    assert found.events() == frozenset()


def test_a_kind_of_request_is_refused_after_some_of_it() -> None:
    requests = [Subject(SubjectKind.REQUEST, f"CreateTopics-{n}") for n in range(REQUESTS_MAX + 1)]
    event = Subject(SubjectKind.EVENT, "CreateTopics")
    found = Quarantine().remember(raised(requests[0], epoch=0))
    for epoch, request in enumerate(requests[:-1], start=1):
        assert found.blamed([request, event], "d") == request
        found = found.remember(raised(request, epoch=epoch))
    assert found.refuses(EventKind.CREATE_TOPICS, lambda: "1") is not None
    assert found.refuses(EventKind.CREATE_TOPICS, lambda: "9") is None
    assert found.refuses(EventKind.DELETE_TOPICS, lambda: "1") is None
    assert found.blamed([requests[-1], event], "d") == event
    assert found.blamed([requests[-1], event], "another") == requests[-1]
    before = Subject(SubjectKind.BROKER, "3")
    both = found.remember(raised(before, epoch=9)).remember(raised(before, epoch=10))
    assert both.skips(before)
    assert both.refuses(EventKind.CREATE_TOPICS, lambda: "1") is not None
    found = found.remember(raised(event, epoch=9))
    assert found.refuses(EventKind.CREATE_TOPICS, lambda: "9") is not None


def test_the_content_of_a_request_is_looked_at_only_where_one_like_it_is_in_quarantine() -> None:
    def digest() -> str:
        raise AssertionError("takes long")

    topic = Subject(SubjectKind.TOPIC, f"{EventKind.CREATE_TOPICS.value}-1")
    other = Subject(SubjectKind.REQUEST, f"{EventKind.DELETE_TOPICS.value}-1")
    for subject in (topic, other):
        found = Quarantine().remember(raised(subject)).remember(raised(subject, epoch=2))
        assert found.skips(subject)
        assert found.refuses(EventKind.CREATE_TOPICS, digest) is None


def test_memory_is_bounded_and_suspects_are_forgotten() -> None:
    found = Quarantine().remember(raised()).remember(raised(epoch=2))
    for n in range(SUSPECTS_MAX + 10):
        subject = Subject(SubjectKind.TOPIC, f"t{n}")
        found = found.remember(raised(subject, digest=str(n), at_ms=n))
    assert len(found.suspects) == SUSPECTS_MAX
    assert found.skips(TOPIC)
    assert "topic/t0" not in found.suspects
    late = found.remember(raised(Subject(SubjectKind.TOPIC, "late"), digest="x", at_ms=REMEMBERED_MS * 2))
    assert set(late.suspects) == {"topic/t", "topic/late"}
    first = Quarantine().remember(raised(at_ms=0))
    for at_ms, names in ((REMEMBERED_MS - 1, {"topic/t", "topic/late"}), (REMEMBERED_MS, {"topic/late"})):
        then = first.remember(raised(Subject(SubjectKind.TOPIC, "late"), digest="x", at_ms=at_ms))
        assert set(then.suspects) == names


def test_what_is_in_quarantine_stays_there_whatever_else_it_raises() -> None:
    found = Quarantine().remember(raised()).remember(raised(epoch=2))
    assert found.remember(raised(epoch=2, digest="another")).skips(TOPIC)


def test_requests_of_another_kind_are_not_counted() -> None:
    found = Quarantine()
    for n in range(REQUESTS_MAX):
        other = Subject(SubjectKind.REQUEST, f"DeleteTopics-{n}")
        found = found.remember(raised(other, epoch=1)).remember(raised(other, epoch=2))
    request, event = (
        Subject(SubjectKind.REQUEST, "CreateTopics-1"),
        Subject(SubjectKind.EVENT, "CreateTopics"),
    )
    assert found.blamed([request, event], "d") == request


def test_only_events_are_skipped_as_events() -> None:
    topic = Subject(SubjectKind.TOPIC, "TopicChange")
    found = Quarantine().remember(raised(topic)).remember(raised(topic, epoch=2))
    assert found.skips(topic)
    assert found.events() == frozenset()


@pytest.mark.parametrize(("later_ms", "kept"), [(REMEMBERED_MS - 1, True), (REMEMBERED_MS, False)])
def test_what_raised_once_is_forgotten_after_a_time(later_ms: int, kept: bool) -> None:
    began_ms = 10 * REMEMBERED_MS
    other = Subject(SubjectKind.BROKER, "3")
    found = Quarantine().remember(raised(at_ms=began_ms)).remember(raised(other, at_ms=began_ms + later_ms))
    assert list(found.suspects) == (["topic/t", "broker/3"] if kept else ["broker/3"])
