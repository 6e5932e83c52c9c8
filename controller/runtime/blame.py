"""What an unexpected exception was about: read from the event, and from the variables along its traceback."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import PurePath
from types import FrameType, TracebackType
from typing import NamedTuple

from controller.core.cluster.quarantine import TEXT_MAX, Quarantine, Subject, SubjectKind
from controller.core.effects import TopicInfo
from controller.core.events import DiskReport, Event, EventKind, StopReport
from controller.core.failover import part_of_failover
from controller.core.model import Broker, Partition, Topic
from controller.core.requests.api import ControllerRequest
from controller.core.requests.brokers import AllocateProducerIds, AlterPartition, ControlledShutdown
from controller.core.znode_paths import BROKER_IDS, child_of, topic_of
from proto.texts import printable

#: Requests that brokers repeat until they are answered: what they are about is a topic or a broker.
_OF_BROKERS = (AlterPartition, ControlledShutdown, AllocateProducerIds)
#: Modules through which every exception of an event passes.
_OF_EVENTS = ("controller.core.machine", "controller.runtime.zookeeper.store")
#: Hexadecimal digits of a digest.
DIGITS = 12
#: What raised outside any event.
NO_EVENT = "Push"


class Blame(NamedTuple):
    """``detail``: the partition, where one is known."""

    subject: Subject
    event: str
    detail: str
    error: str
    digest: str


def blame(error: BaseException, event: Event | None, quarantine: Quarantine) -> Blame:
    """The subject of an exception that ended a term. ``event``: the one that was being handled."""
    digest = traceback_digest(error)
    if not _is_of_event(error):
        event = None
    name = event.kind.value if event is not None else NO_EVENT
    found, detail = _in_traceback(error)
    body = event.body if event is not None else None
    possible: list[Subject] = []
    if isinstance(body, ControllerRequest) and not isinstance(body, _OF_BROKERS):
        possible.append(_request(name, body))
    else:
        if found is not None:
            possible.append(found)
        if event is not None and event.topic:
            possible.append(Subject(SubjectKind.TOPIC, event.topic))
        if isinstance(body, ControllerRequest):
            possible.append(_request(name, body))
        if isinstance(body, DiskReport | StopReport):
            possible.append(Subject(SubjectKind.BROKER, str(body.broker_id)))
        if (part := _part_of_failover(error)) is not None:
            possible.append(Subject(SubjectKind.EVENT, part.value))
    possible.append(Subject(SubjectKind.EVENT, name))
    words = printable(f"{type(error).__name__}: {error}")[:TEXT_MAX]
    subject = quarantine.blamed(possible, digest)
    return Blame(subject, name, detail if subject == found else "", words, digest)


def _request(event: str, body: ControllerRequest) -> Subject:
    return Subject(SubjectKind.REQUEST, f"{event}-{request_digest(body)}")


def request_digest(request: ControllerRequest) -> str:
    """Equal for requests of the same content."""
    return hashlib.sha256(repr(request).encode(errors="replace")).hexdigest()[:DIGITS]


def traceback_digest(error: BaseException) -> str:
    """Equal for exceptions of one type from the same lines."""
    lines = [
        f"{PurePath(frame.f_code.co_filename).name}:{number}"
        for frame, number in _frames(error.__traceback__)
    ]
    return hashlib.sha256("\n".join([type(error).__name__, *lines]).encode()).hexdigest()[:DIGITS]


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """Outermost first, each with the line where it raised."""
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _is_of_event(error: BaseException) -> bool:
    """Whether the machine or its effects raised; a sender or a timer works beside the events."""
    return any(frame.f_globals.get("__name__") in _OF_EVENTS for frame, _ in _frames(error.__traceback__))


def _part_of_failover(error: BaseException) -> EventKind | None:
    """The part that a failover can do without and that raised."""
    for frame, _ in _frames(error.__traceback__):
        if frame.f_code is part_of_failover.__code__:
            part: EventKind = frame.f_locals["part"]
            return part
    return None


def _in_traceback(error: BaseException) -> tuple[Subject | None, str]:
    """The topic or broker that the innermost frame with one was about, and the partition's name. Frames around a part
    of failover are about other parts."""
    for frame, _ in reversed(list(_frames(error.__traceback__))):
        if frame.f_code is part_of_failover.__code__:
            break
        values = frame.f_locals.items()
        for value in (value for _, value in values):
            if isinstance(value, Partition):
                return Subject(SubjectKind.TOPIC, value.topic.name), value.name
        for name, value in values:
            topic = value.name if isinstance(value, Topic | TopicInfo) else None
            if name == "path" and isinstance(value, str):
                topic = topic_of(value)
            if topic:
                return Subject(SubjectKind.TOPIC, topic), ""
        for name, value in values:
            broker = str(value.id) if isinstance(value, Broker) else None
            if name == "path" and isinstance(value, str):
                broker = child_of(BROKER_IDS, value)
            elif name == "broker_id" and type(value) is int:
                broker = str(value)
            if broker:
                return Subject(SubjectKind.BROKER, broker), ""
    return None, ""
