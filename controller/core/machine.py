"""The machine: takes events, returns records and effects. It handles one event at a time, in order, like the
original's event thread.

``step`` is its only entry point. It never blocks and does no I/O: the driver performs the effects and passes each
outcome back. A machine lives for one controller term.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import count

from controller.core.context import CoreSettings, EventContext, Handler, Pause, with_dynamic
from controller.core.effects import Effect, Outcome
from controller.core.events import Event, EventKind, Finished
from controller.core.handlers import FOLLOW_UPS, gathers, handle, skip
from controller.core.model import Cluster
from controller.core.outbox import Outbox
from controller.core.records import LogBatch
from controller.core.requests.api import Reply

#: Once the gathered requests or reports name this many partitions, no further one joins the event.
GATHERED_MAX = 20_000


@dataclass
class Ready:
    """The result of a step. ``records`` and ``replies`` state durable facts. The driver performs ``effects`` in order.
    ``more``: step again without an outcome as soon as the effects are submitted."""

    records: list[LogBatch] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    more: bool = False


class Machine:
    """Decides for one controller term. ``new_topic_id`` is injected, as it is random. ``skipped``: kinds of events that
    are not handled, because they raised again and again."""

    def __init__(
        self,
        controller_id: int,
        controller_epoch: int,
        settings: CoreSettings,
        new_topic_id: Callable[[], str],
        skipped: Collection[EventKind] = (),
    ) -> None:
        self.cluster = Cluster(controller_id, controller_epoch)
        self.outbox = Outbox()
        self._static_settings = settings
        self._new_topic_id = new_topic_id
        self._skipped = skipped
        self._inbox: deque[tuple[Event, int]] = deque()
        self._waiting: set[Event] = set()
        self._event_id = 0
        #: Never reused within a term, so that a late outcome is never taken for another effect's.
        self._effect_ids = count(1)
        self._context: EventContext | None = None
        self._handler: Handler[None] | None = None
        self._current: tuple[Event, int, int] | None = None
        #: True once the failover is done: only then is this controller active.
        self.ready = False

    @property
    def queue_size(self) -> int:
        return len(self._inbox)

    @property
    def event_id(self) -> int:
        return self._event_id

    @property
    def current_event(self) -> Event | None:
        return self._current[0] if self._current else None

    def oldest_queued_us(self) -> int | None:
        """When the oldest waiting event arrived, on the driver's clock."""
        return self._inbox[0][1] if self._inbox else None

    @property
    def settings(self) -> CoreSettings:
        """What decisions are made by now."""
        return with_dynamic(self._static_settings, self.cluster)

    def step(self, stimulus: Event | Outcome | None, now_us: int) -> Ready:
        """Take one event or outcome (None: continue), decide as far as possible, return what the driver must do.

        ``now_us`` is a monotonic clock in microseconds.
        """
        if isinstance(stimulus, Event):
            self._enqueue(stimulus, now_us)
            if self._handler is not None:
                return Ready()
            outcome: Outcome | None = None
        else:
            outcome = stimulus
        ready = Ready()
        pause: Pause | None = None
        if self._handler is None and self._inbox:
            self._begin(now_us)
            outcome = None
        if self._handler is not None:
            pause = self._advance(outcome, now_us, ready)
        ready.more = pause is Pause.YIELD or (self._handler is None and bool(self._inbox))
        return ready

    def _enqueue(self, event: Event, now_us: int) -> None:
        # An equal event in the queue will read the same state: a second one adds nothing.
        if event not in self._waiting:
            self._waiting.add(event)
            self._inbox.append((event, now_us))

    def _begin(self, now_us: int) -> None:
        event, arrived_us = self._inbox.popleft()
        self._waiting.discard(event)
        self._event_id += 1
        self._current = (event, arrived_us, now_us)
        self._context = EventContext(
            cluster=self.cluster,
            outbox=self.outbox,
            settings=self._static_settings,
            new_topic_id=self._new_topic_id,
            effect_ids=self._effect_ids,
            event_id=self._event_id,
            cause=event.kind.value,
            now_us=now_us,
            skipped=self._skipped,
        )
        gathered = self._gathered(event)
        if event.kind in self._skipped:
            self._handler = skip(self._context, event)
        else:
            self._handler = handle(self._context, event, gathered)

    def _gathered(self, first: Event) -> list[Event]:
        """The events to handle together, the first one first: they share one round of reads and writes."""
        if first.kind is EventKind.PARTITION_MODIFICATIONS:
            return self._all_waiting_like(first)
        return self._right_behind(first) if gathers(first) else [first]

    def _right_behind(self, first: Event) -> list[Event]:
        """The events of this type that directly follow: another event in between may change later results."""
        together, size = [first], first.size
        while self._inbox and size < GATHERED_MAX:
            event, _ = self._inbox[0]
            if type(event.body) is not type(first.body):
                break
            self._inbox.popleft()
            self._waiting.discard(event)
            together.append(event)
            size += event.size
        return together

    def _all_waiting_like(self, first: Event) -> list[Event]:
        others = {event for event, _ in self._inbox if event.kind is first.kind}
        if others:
            self._inbox = deque(item for item in self._inbox if item[0] not in others)
            self._waiting.difference_update(others)
        return [first, *sorted(others, key=lambda event: event.topic)]

    def _advance(self, outcome: Outcome | None, now_us: int, ready: Ready) -> Pause | None:
        assert self._context is not None
        assert self._handler is not None
        assert self._current is not None
        context = self._context
        context.now_us = now_us
        pause: Pause | None = None
        try:
            pause = self._handler.send(outcome)
        except StopIteration:
            event, arrived_us, began_us = self._current
            self.ready = self.ready or event.kind is EventKind.FAILOVER
            ready.finished.append(
                Finished(event.kind, context.event_id, began_us - arrived_us, now_us - began_us)
            )
            self._context = self._handler = self._current = None
        for follow_up in context.follow_ups:
            self._enqueue(Event(FOLLOW_UPS[follow_up]), now_us)
        context.follow_ups.clear()
        ready.records, context.records = context.records, []
        ready.effects, context.effects = context.effects, []
        ready.replies, context.replies = context.replies, []
        return pause
