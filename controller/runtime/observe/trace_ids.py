"""Ids of traces: the same for all that one event leaves behind, in its spans, the log, the state-change log, exemplars.

An id is made of what names the event: 8 bytes of this process's incarnation, 4 of the controller epoch, 4 of the event
id. So nothing has to be handed from the watch to the last acknowledgement, and from a record one finds its trace.
"""

from __future__ import annotations

from typing import NamedTuple

_WORD = 0xFFFF_FFFF


class TraceIds(NamedTuple):
    """``process``: 16 hexadecimal digits; empty: nothing is traced, and no event has an id."""

    process: str = ""

    def of(self, controller_epoch: int, event_id: int) -> str:
        """32 hexadecimal digits (W3C Trace Context); empty: outside any event, or nothing is traced."""
        if not self.process or not event_id:
            return ""
        return f"{self.process}{controller_epoch & _WORD:08x}{event_id & _WORD:08x}"

    def root(self, controller_epoch: int, event_id: int) -> str:
        """The id of the event's own span, 16 hexadecimal digits: others have it as parent before it is told."""
        return self.of(controller_epoch, event_id)[16:]


NOT_TRACED = TraceIds()


def trace_ids(incarnation: str) -> TraceIds:
    """The ids that a process makes. ``incarnation``: its own id, 32 hexadecimal digits."""
    return TraceIds(incarnation[:16])
