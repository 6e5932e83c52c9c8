"""The epoch checks that every control request passes first (reference, section 10, "Common gate"). Pure."""

from __future__ import annotations

from typing import NamedTuple

from broker_stub.control.requests import Header
from proto.gen import common_pb2 as codes

NO_EPOCH = -1
#: The sender does not count events.
NO_EVENT = 0


class Refusal(NamedTuple):
    """Refusal of a whole request: Kafka's error code, and the reason as text."""

    error: codes.ErrorCode
    reason: str


class Gate:
    """The epochs of this broker and of the controller.

    ``broker_epoch`` is the czxid of our registration, -1 before the first one. ``controller_epoch`` is the last one
    received. It is kept in memory only, as in Kafka: a restarted broker has a new broker epoch, which fences
    requests of a deposed controller. ``event_id`` is the newest event id received from that controller, 0: none yet.
    A controller has one request in flight, and its event ids never decrease. So a request with an older event id is a
    late copy of one that the controller gave up and sent again.
    """

    def __init__(self) -> None:
        self.broker_epoch = NO_EPOCH
        self.controller_epoch = NO_EPOCH
        self.controller_id = -1
        self.event_id = NO_EVENT

    def admit(self, header: Header) -> Refusal | None:
        """Check a request. None: admitted, and its epochs are remembered. A refused request changes nothing."""
        # A higher broker epoch is accepted: the controller may see our registration before we do.
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
                    f" event {self.event_id} was received before",
                )
        else:
            self.event_id = header.event_id
        self.controller_epoch, self.controller_id = header.controller_epoch, header.controller_id
        return None
