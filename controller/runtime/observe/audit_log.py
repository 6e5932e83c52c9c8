"""The audit log: a record of every request that changes something, and of those that were denied (kind ``request``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from controller.core.names import first_few
from controller.core.records import LogBatch, RequestRecord
from controller.core.requests.errors import ErrorCode
from controller.runtime.observe.history import Journal
from proto.rate_limit import RateLimit

#: Things that a record names; more are counted.
NAMED_MAX = 10
#: Errors of answers that are denials.
_DENIED = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
    }
)
#: Fields whose two values are opposite requests.
_SWITCHES = ("paused", "entered", "frozen", "drained")
#: Of elections, in both protocols.
_UNCLEAN = 1
#: Answers that say nothing about the request: the caller asks another controller.
_NOT_HERE = frozenset({"NOT_CONTROLLER", "STALE_CONTROLLER_EPOCH"})


class AuditLog:
    """Writes the records. Denials are bounded (``proto.rate_limit``)."""

    def __init__(self, journal: Journal, limit: RateLimit | None = None) -> None:
        self._journal, self._limit = journal, limit or RateLimit()

    def answered(
        self, method: str, caller: tuple[str, str], request: Any, answer: Any, epoch: int, *, changes: bool
    ) -> None:
        """A request was answered. ``caller``: principal and address; ``changes``: the method is one that does;
        ``epoch``: this controller's, -1 if it does not lead."""
        errors = errors_in(answer)
        error = next(errors, "") or _refused_for(answer)
        if not changes and error not in _DENIED:
            error = next((each for each in errors if each in _DENIED), error)
        # What was carried out beside a denial is no flood of denials: it has a record however many these are.
        if error in _DENIED and not (changes and _is_carried_out_in_part(answer)):
            self.denied(method, caller, error, request, epoch)
        elif changes and error not in _NOT_HERE:
            self._record(RequestRecord(method, *caller, *_about(request), error), epoch)

    def denied(
        self, method: str, caller: tuple[str, str], error: str, request: Any, epoch: int, subject: str = ""
    ) -> None:
        """A request was refused for what the caller is or may not. ``subject``: of one that has no message."""
        count = self._limit.admit()
        if count:
            about = (subject, "") if subject else _about(request)
            record = RequestRecord(method, *caller, *about, error, None if count == 1 else count)
            self._record(record, epoch)

    def _record(self, record: RequestRecord, epoch: int) -> None:
        self._journal.record(LogBatch([record], "", record.method), epoch)


def _about(request: Any) -> tuple[str, str]:
    """What a request is about, shortened, and its reason."""
    if request is None:
        return "", ""
    return subject_of(request), str(getattr(request, "reason", "")).strip()


def subject_of(request: Any) -> str:
    """The topics, partitions or brokers that a request of gRPC or of Kafka's protocol names, as text, and what tells it
    from its opposite, or from one that loses nothing."""
    named = first_few(list(dict.fromkeys(_names(request))), NAMED_MAX)
    return ", ".join(filter(None, [named, *_asked(request)]))


def _asked(request: Any) -> Iterator[str]:
    for name in _SWITCHES:
        if isinstance(value := getattr(request, name, None), bool):
            yield f"{name}={str(value).lower()}"
    if getattr(request, "election_type", None) == _UNCLEAN:
        yield "UNCLEAN"
    if getattr(request, "override", False) is True:
        yield "override"


def _names(message: Any) -> Iterator[str]:
    for name, value in _fields(message):
        if name == "broker_id":
            yield f"broker {value}"
        elif name == "broker_ids":
            yield from (f"broker {id_}" for id_ in value)
        elif name == "check":
            yield from _names(value)
        elif name == "topic_names":
            yield from map(str, value)
        elif _is_list(value):
            yield from (found for entry in value if (found := _name_of(entry)))


def _name_of(entry: Any) -> str:
    """A topic or partition, or what else has a name, in an entry of a list; empty: it is none."""
    resource = entry.resource if _has_resource(entry) else entry
    for field in ("topic", "name", "topic_name", "resource_name", "resource_name_filter"):
        found = getattr(resource, field, None)
        if found:
            number = getattr(entry, "partition", None)
            return f"{found}-{number}" if isinstance(number, int) else str(found)
    topic_id = getattr(entry, "topic_id", "")
    return f"topic id {topic_id}" if topic_id and isinstance(topic_id, str) else ""


#: By type of an entry. To ask each of very many costs an exception each.
_with_resource: dict[type, bool] = {}


def _has_resource(entry: Any) -> bool:
    found = _with_resource.get(type(entry))
    if found is None:
        found = _with_resource[type(entry)] = hasattr(entry, "resource")
    return found


def errors_in(answer: Any) -> Iterator[str]:
    """The names of the errors in a response, that of the request first; of many entries, each error once."""
    inner: list[Sequence[Any]] = []
    for name, value in _fields(answer):
        if name == "error_code" and value:
            yield _name_of_error(value)
        elif _is_list(value):
            inner.append(value)
    for entries in inner:
        told: set[int] = set()
        for entry in entries:
            # There may be very many, with nothing below them that could have an error.
            if not _is_flat(entry):
                yield from errors_in(entry)
            elif (code := entry.error_code) and code not in told:
                told.add(code)
                yield _name_of_error(code)


def _refused_for(answer: Any) -> str:
    """The error that stands for an answer of no with its reasons, which is no error to whoever asks: ApproveStop's."""
    return "" if getattr(answer, "stoppable", True) else ErrorCode.POLICY_VIOLATION.name


@cache
def _name_of_error(code: int) -> str:
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"


def _is_carried_out_in_part(answer: Any) -> bool:
    lists = [value for _, value in _fields(answer) if _is_list(value)]
    return any(not getattr(entry, "error_code", 1) for entries in lists for entry in entries)


def _is_flat(entry: Any) -> bool:
    """Whether an entry has an error code, and no lists of messages."""
    descriptor = getattr(entry, "DESCRIPTOR", None)
    return descriptor is not None and _is_flat_message(descriptor)


@cache
def _is_flat_message(descriptor: Any) -> bool:
    return "error_code" in descriptor.fields_by_name and not any(
        field.message_type for field in descriptor.fields
    )


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _fields(message: Any) -> Iterator[tuple[str, Any]]:
    if (names := getattr(message, "__struct_fields__", None)) is not None:
        return ((name, getattr(message, name)) for name in names)
    if (listed := getattr(message, "ListFields", None)) is not None:
        return ((field.name, value) for field, value in listed())
    return iter(())
