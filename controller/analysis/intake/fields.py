"""Which fields of a record are needed: by its kind to be one, and by the report's tables. Imports no Spark."""

from __future__ import annotations

from proto.statelog.schema import INT_FIELDS, KINDS, LIST_FIELDS, TEXT_CHARS_MAX

_INTS = tuple(field.name for field in INT_FIELDS if field.name != "schema")
#: Fields that no table shows.
_UNUSED = ("leader_epoch", "partition_epoch", *LIST_FIELDS)
_STATES = ("partition", "replica", "controller", "broker", "leader")
#: Decisions of controllers, of which a table looks at single records; so it does at what happens seldom.
COMMIT_KINDS = ("partition", "leader", "isr")
EVENT_KINDS = ("broker", "topic", "reassignment", "request", "reject")
_STEPS = ("topic", "reassignment")
#: Kinds of which a table needs the field; of the others all need it. Absent values cost nothing.
_KINDS_WITH = {
    "from": (*_STATES, "topic"),
    "to": (*_STATES, *_STEPS, "push", "ack", "failover", "request", "log"),
    "cause": ("partition",),
    "reason": ("partition", "leader", "reject", "ack", "request", *_STEPS),
    "topic": (*COMMIT_KINDS, *_STEPS, "reject"),
    "partition": (*COMMIT_KINDS, "reassignment", "reject"),
    "leader": ("partition",),
    "event_id": ("partition", "broker", "reject", *_STEPS),
    "silent_us": ("partition", "broker"),
    "replica": ("push", "ack", "broker"),
    "principal": ("request",),
    "address": ("request",),
    "subject": ("request",),
    "error": ("reject", "ack", "request"),
    "duration_us": ("ack", "failover"),
}
#: Kinds whose ``from`` and ``to`` are states; those of `leader` and `isr` are broker ids.
STATE_KINDS = ("partition", "replica", "controller", "broker")
#: The kinds of which a field tells condensed records apart.
CONDENSED_KINDS = {
    "from": (*STATE_KINDS, "leader"),
    "to": (*STATE_KINDS, "leader", "push", "ack", "failover", "log"),
    "replica": ("push", "ack"),
    "error": ("reject", "ack"),
    "duration_us": ("ack",),
}
#: Fields beyond the envelope, and the kinds that cannot be without them.
NEEDED_BY = {
    name: tuple(kind for kind, needs in KINDS.items() if name in needs)
    for name in dict.fromkeys(name for names in KINDS.values() for name in names)
}


def fields_kept(complete: bool) -> dict[str, tuple[str, ...] | None]:
    """The fields of a record, beside its time, that are kept, and the kinds of which they are (None: of all).

    ``complete``: all of all kinds, not only what the report's tables need.
    """
    names = (*TEXT_CHARS_MAX, *_INTS, *LIST_FIELDS)
    if complete:
        return dict.fromkeys(names)
    return {name: _KINDS_WITH.get(name) for name in names if name not in _UNUSED}
