"""The gate that all three control requests pass first (reference, section 10, "Common gate"). Pure."""

from __future__ import annotations

from typing import NamedTuple

from broker_stub.control.requests import Header
from proto.gen import common_pb2 as codes

NO_EPOCH = -1
#: Of a request whose sender counts no events.
NO_EVENT = 0


class Refusal(NamedTuple):
    """A whole request refused: Kafka's error and why, in words."""

    error: codes.ErrorCode
    reason: str


class Gate:
    """What this broker knows of itself and of controllers.

    ``broker_epoch`` is the czxid of our registration, -1 before the first one. ``controller_epoch`` is
    the last one seen, in memory only, as in Kafka: a restarted broker has a new broker epoch, and that is
    what keeps requests of a deposed controller away from it. ``event_id`` is the newest event of that controller
    that a request came from, 0 before one has told its event: a sender has one request in flight, and its events only
    grow, so a request of an older event is one that its sender has given up and sent again, and that comes late.
    """

    def __init__(self) -> None:
        self.broker_epoch = NO_EPOCH
        self.controller_epoch = NO_EPOCH
        self.controller_id = -1
        self.event_id = NO_EVENT

    def admit(self, header: Header) -> Refusal | None:
        """None: go on, and the controller's epoch is remembered. Otherwise the request changes nothing."""
        # A higher broker epoch is fine: the controller may learn of a registration before we do.
        if header.broker_epoch != NO_EPOCH and header.broker_epoch < self.broker_epoch:
            return Refusal(
                codes.STALE_BROKER_EPOCH,
                f"request is meant for broker epoch {header.broker_epoch}, ours is {self.broker_epoch}",
            )
        if header.controller_epoch < self.controller_epoch:
            return Refusal(
                codes.STALE_CONTROLLER_EPOCH,
                f"request of controller {header.controller_id} has controller epoch"
                f" {header.controller_epoch}, last seen {self.controller_epoch}",
            )
        if header.controller_epoch > self.controller_epoch:
            self.event_id = header.event_id
        elif header.event_id < self.event_id:
            if header.event_id != NO_EVENT:
                return Refusal(
                    codes.STALE_CONTROLLER_EPOCH,
                    f"request of event {header.event_id} of controller epoch {header.controller_epoch} comes late:"
                    f" event {self.event_id} was seen",
                )
        else:
            self.event_id = header.event_id
        self.controller_epoch, self.controller_id = header.controller_epoch, header.controller_id
        return None
