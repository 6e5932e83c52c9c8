"""What an unexpected exception was about, and what is left out because it raised again (docs/adr/0014).

One znode remembers, so that the next controller knows. What raises once is a suspect; what raises in another term, too,
is in quarantine: that topic, broker, request or kind of event is skipped, and everything else goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta

from controller.core.events import EventKind
from controller.core.names import counted
from controller.core.znode_paths import QUARANTINE, NodePath, broker_path, topic_path

#: Suspects remembered at once, and for how long one that did not raise again, ms.
SUSPECTS_MAX, REMEMBERED_MS = 100, 24 * 3600 * 1000
#: Characters of a text that is remembered.
TEXT_MAX = 300
#: Requests of a kind with the same fault in quarantine, from which on the kind is.
REQUESTS_MAX = 3

#: Events that no controller can lead without.
NEEDED = frozenset({EventKind.FAILOVER, EventKind.RECONNECTED})
_NEEDED = {kind.value for kind in NEEDED}

Text = Annotated[str, Meta(max_length=TEXT_MAX)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class SubjectKind(Enum):
    """What can be skipped; the value begins its name."""

    TOPIC = "topic"  #: as if its znode were unreadable
    BROKER = "broker"  #: as if it were not registered
    REQUEST = "request"  #: refused; named by its event and a digest of its content
    EVENT = "event"  #: a whole kind of event


class Subject(msgspec.Struct, frozen=True):
    """What an exception was about. ``name``: a topic, a broker's id, ``CreateTopics-1f0c...``, an event's name."""

    kind: SubjectKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value}/{self.name}"


class Suspect(msgspec.Struct, frozen=True):
    """A subject that raised. Controller, epoch and ``at_ms`` (ms since 1970) are of the last time; ``detail``: the
    partition, where one is known; ``digest``: of the traceback."""

    kind: SubjectKind
    name: Text
    event: Text
    error: Text
    digest: Text
    controller_id: Count
    controller_epoch: Count
    at_ms: Count
    detail: Text = ""
    count: Count = 1
    quarantined: bool = False

    @property
    def subject(self) -> Subject:
        return Subject(self.kind, self.name)

    def __str__(self) -> str:
        about = f" ({self.detail})" if self.detail else ""
        return f"{self.subject}{about}: {self.event} raised {self.error}"


class Quarantine(msgspec.Struct, frozen=True):
    """All suspects, by the name of their subject."""

    suspects: Mapping[str, Suspect] = {}

    def blamed(self, possible: list[Subject], digest: str) -> Subject:
        """The first possible subject that skipping has not been tried on; the last, if all are in quarantine.

        A kind of request takes the place of one request when ``REQUESTS_MAX`` of it have the same fault.
        """
        for subject in possible:
            if not self.skips(subject) and not self._is_one_of_many(subject, digest):
                return subject
        return possible[-1]

    def _is_one_of_many(self, subject: Subject, digest: str) -> bool:
        if subject.kind is not SubjectKind.REQUEST:
            return False
        kind = subject.name.rpartition("-")[0]
        alike = [
            s
            for s in self.quarantined()
            if s.kind is SubjectKind.REQUEST and s.digest == digest and s.name.rpartition("-")[0] == kind
        ]
        return len(alike) >= REQUESTS_MAX

    def remember(self, raised: Suspect) -> Quarantine:
        """The quarantine after one more exception. What raised in an earlier term, or has a fault that is known from a
        subject in quarantine, is in quarantine from now on."""
        suspects = {
            name: suspect
            for name, suspect in self.suspects.items()
            if suspect.quarantined or raised.at_ms - suspect.at_ms < REMEMBERED_MS
        }
        name = str(raised.subject)
        known = suspects.pop(name, None)
        again = known is not None and known.controller_epoch != raised.controller_epoch
        fault_known = any(s.digest == raised.digest for s in self.quarantined())
        quarantined = again or fault_known or (known is not None and known.quarantined)
        count = known.count + 1 if known is not None else 1
        if len(suspects) >= SUSPECTS_MAX:
            loose = [n for n, suspect in suspects.items() if not suspect.quarantined]
            if not loose:
                return self
            del suspects[min(loose, key=lambda n: suspects[n].at_ms)]
        suspects[name] = msgspec.structs.replace(raised, count=count, quarantined=quarantined)
        return Quarantine(suspects)

    def without(self, name: str) -> Quarantine:
        return Quarantine({n: suspect for n, suspect in self.suspects.items() if n != name})

    def quarantined(self) -> list[Suspect]:
        """Those that are skipped, by name."""
        return [suspect for _, suspect in sorted(self.suspects.items()) if suspect.quarantined]

    def skips(self, subject: Subject) -> bool:
        found = self.suspects.get(str(subject))
        return found is not None and found.quarantined

    def paths(self) -> dict[str, str]:
        """Znodes that count as unreadable, and why."""
        path_of = {SubjectKind.TOPIC: topic_path, SubjectKind.BROKER: broker_path}
        return {
            path_of[s.kind](s.name): f"in quarantine: {s.event} raised {s.error} ({counted(s.count, 'time')})"
            for s in self.quarantined()
            if s.kind in path_of
        }

    def events(self) -> frozenset[EventKind]:
        """Kinds of events that are skipped."""
        names = {s.name for s in self.quarantined() if s.kind is SubjectKind.EVENT} - _NEEDED
        return frozenset(kind for kind in EventKind if kind.value in names)

    def refuses(self, kind: EventKind, digest: Callable[[], str]) -> Suspect | None:
        """The suspect because of which a request is refused. ``digest``: of its content, asked for only if needed."""
        skipped = self.quarantined()
        prefix = f"{kind.value}-"
        names = {str(Subject(SubjectKind.EVENT, kind.value))}
        if any(s.kind is SubjectKind.REQUEST and s.name.startswith(prefix) for s in skipped):
            names.add(str(Subject(SubjectKind.REQUEST, f"{prefix}{digest()}")))
        return next((s for s in skipped if str(s.subject) in names), None)


#: Where it is stored.
PATH: NodePath[Quarantine] = NodePath(QUARANTINE)
