"""The machine: takes events, returns records and effects. It handles one event at a time, in order, like the
original's event thread; but a long event gives way between its parts to the prompt ones right behind it
(docs/adr/0022).

``step`` is its only entry point. It never blocks and does no I/O: the driver performs the effects and passes each
outcome back. A machine lives for one controller term.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from controller.core.context import PART_MAX, CoreSettings, EventContext, Handler, Pause, with_dynamic
from controller.core.effects import Effect, Outcome
from controller.core.events import Event, EventKind, Finished
from controller.core.handlers import FOLLOW_UPS, PROMPT, gathers, handle, is_long, skip
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


@dataclass
class _Handling:
    """An event that is being handled."""

    event: Event
    arrived_us: int
    began_us: int
    context: EventContext
    handler: Handler[None]
    #: When it gave way for the last time.
    gave_way_us: int = 0


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
        #: Never reused within a term, so that a late outcome is never taken for another effect's. A range, because
        #: machines are copied (tests/provers/model), and itertools.count cannot be from Python 3.14 on.
        self._effect_ids = iter(range(1, 1 << 63))
        self._current: _Handling | None = None
        #: Long events that have given way, each to the next one, the last to the current one.
        self._giving_way: list[_Handling] = []
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
        return self._current.event if self._current else None

    @property
    def current_event_id(self) -> int:
        """That of the current event; of the newest one where there is none."""
        return self._current.context.event_id if self._current else self._event_id

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
            self.enqueue(stimulus, now_us)
            if self._current is not None:
                return Ready()
            outcome: Outcome | None = None
        else:
            outcome = stimulus
        ready = Ready()
        pause: Pause | None = None
        if self._current is None and self._inbox:
            self._current = self._begin(now_us)
            outcome = None
        if self._current is not None:
            pause = self._advance(self._current, outcome, now_us, ready)
            if pause is Pause.GIVE_WAY:
                self._current.gave_way_us = now_us
                self._giving_way.append(self._current)
                self._let_in(now_us)
        another = self._current is not None or bool(self._inbox)
        ready.more = another if pause is None else pause is not Pause.WAIT
        return ready

    def enqueue(self, event: Event, now_us: int) -> None:
        """Queue an event, without deciding anything."""
        # An equal event in the queue will read the same state: a second one adds nothing.
        if event not in self._waiting:
            self._waiting.add(event)
            self._inbox.append((event, now_us))

    def _let_in(self, now_us: int) -> None:
        """Begin the next prompt event that had arrived when the last one gave way; else, go on with that one."""
        place = self._first_let_in(self._giving_way[-1])
        self._current = self._giving_way.pop() if place is None else self._begin(now_us, place)

    def _first_let_in(self, long: _Handling) -> int | None:
        """Its place in the queue. Long requests wait for one another, and others may overtake them."""
        for place, (event, arrived_us) in enumerate(self._inbox):
            if event.kind not in PROMPT or arrived_us > long.gave_way_us:
                break
            if not (long.event.kind in PROMPT and is_long(event)):
                return place
        return None

    def _begin(self, now_us: int, place: int = 0) -> _Handling:
        event, arrived_us = self._taken(place)
        self._event_id += 1
        context = EventContext(
            cluster=self.cluster,
            outbox=self.outbox,
            settings=self._static_settings,
            new_topic_id=self._new_topic_id,
            effect_ids=self._effect_ids,
            event_id=self._event_id,
            cause=event.kind.value,
            now_us=now_us,
            skipped=self._skipped,
            gives_way=is_long(event),
        )
        gathered = self._gathered(event, place)
        skipped = event.kind in self._skipped
        handler = skip(context, event) if skipped else handle(context, event, gathered)
        return _Handling(event, arrived_us, now_us, context, handler)

    def _taken(self, place: int) -> tuple[Event, int]:
        """An event out of the queue, and when it arrived."""
        event, arrived_us = self._inbox[place]
        del self._inbox[place]
        self._waiting.discard(event)
        return event, arrived_us

    def _gathered(self, first: Event, place: int) -> list[Event]:
        """The events to handle together, the first one first: they share one round of reads and writes."""
        if first.kind is EventKind.PARTITION_MODIFICATIONS:
            return self._all_waiting_like(first)
        return self._right_behind(first, place) if gathers(first) else [first]

    def _right_behind(self, first: Event, place: int) -> list[Event]:
        """The events of this type that directly follow, of long ones up to a part: another event in between may change
        later results."""
        together, size = [first], first.size
        most = PART_MAX if is_long(first) else GATHERED_MAX
        while len(self._inbox) > place and size < most:
            event, _ = self._inbox[place]
            if type(event.body) is not type(first.body) or is_long(event) is not is_long(first):
                break
            self._taken(place)
            together.append(event)
            size += event.size
        return together

    def _all_waiting_like(self, first: Event) -> list[Event]:
        others = {event for event, _ in self._inbox if event.kind is first.kind}
        if others:
            self._inbox = deque(item for item in self._inbox if item[0] not in others)
            self._waiting.difference_update(others)
        return [first, *sorted(others, key=lambda event: event.topic)]

    def _advance(
        self, current: _Handling, outcome: Outcome | None, now_us: int, ready: Ready
    ) -> Pause | None:
        """None: the event is over."""
        context, event = current.context, current.event
        context.now_us = now_us
        pause: Pause | None = None
        try:
            pause = current.handler.send(outcome)
        except StopIteration:
            self.ready = self.ready or event.kind is EventKind.FAILOVER
            queued_us, took_us = current.began_us - current.arrived_us, now_us - current.began_us
            ready.finished.append(Finished(event.kind, context.event_id, queued_us, took_us, now_us))
            self._current = None
            if self._giving_way:
                self._let_in(now_us)
        for follow_up in context.follow_ups:
            self.enqueue(Event(FOLLOW_UPS[follow_up]), now_us)
        context.follow_ups.clear()
        ready.records, context.records = context.records, []
        ready.effects, context.effects = context.effects, []
        ready.replies, context.replies = context.replies, []
        return pause
