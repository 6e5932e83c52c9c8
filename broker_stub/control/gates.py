"""The checks of epochs that every control request passes first (reference, section 10, "Common gate"). Pure.

Kafka's broker believes any controller epoch that is higher than the one it knows. Here ZooKeeper says who the
controller is: a request that names another one than the known is admitted only after a look there (docs/adr/0013).
"""

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


class ControllerTerm(NamedTuple):
    """The controller as ZooKeeper shows it.

    ``look``: number of the look that found it, later ones are higher; ``zxid``: of the last write to
    ``/controller_epoch``, which each term does once; ``controller_id``: -1 while ``/controller`` is absent or
    unreadable.
    """

    look: int
    controller_epoch: int
    zxid: int
    controller_id: int


class UnknownTerm(Exception):  # noqa: N818  (control flow: ask ZooKeeper, and then again)
    """A request names another controller than the known one."""


class Gate:
    """The epochs of this broker and of the controller.

    ``broker_epoch`` is the czxid of our registration, -1 before the first one. ``controller_epoch`` and
    ``controller_id`` are those of the last look at ZooKeeper, -1 before the first one. They are kept in memory only: a
    restarted broker has a new broker epoch, which fences requests of a deposed controller. ``event_id`` is the newest
    event id received from that controller, 0: none yet. A controller has one request in flight, and its event ids never
    decrease. So a request with an older event id is a late copy of one that the controller gave up and sent again.
    """

    def __init__(self) -> None:
        self.broker_epoch = NO_EPOCH
        self.controller_epoch = NO_EPOCH
        self.controller_id = -1
        self.event_id = NO_EVENT
        #: Look and zxid of the known term.
        self._look = self.term_zxid = -1

    def learn(self, term: ControllerTerm) -> None:
        """The result of a look. One that an older look found changes nothing, nor does a lower epoch: ZooKeeper was
        restored from a backup, and the controller is going to exceed ours, which its refused requests are told."""
        if term.look < self._look or term.controller_epoch < self.controller_epoch:
            return
        if (term.controller_epoch, term.zxid) != (self.controller_epoch, self.term_zxid):
            self.event_id = NO_EVENT
        self._look, self.term_zxid = term.look, term.zxid
        self.controller_epoch, self.controller_id = term.controller_epoch, term.controller_id

    def admit(
        self, header: Header, term: ControllerTerm | None = None, *, changes: bool = True
    ) -> Refusal | None:
        """Check a request. None: admitted. A refused request changes nothing.

        ``changes``: False for a mere fence. One of an older event is no harm: what it is to refuse is refused already.
        ``term``: what a look that began after the request came has found. Raises UnknownTerm when there must be one.
        """
        # A higher broker epoch is accepted: the controller may see our registration before we do.
        if header.broker_epoch < self.broker_epoch:
            return Refusal(
                codes.STALE_BROKER_EPOCH,
                f"request is meant for broker epoch {header.broker_epoch}, ours is {self.broker_epoch}",
            )
        if term is not None:
            self.learn(term)
        elif self._is_doubtful(header):
            raise UnknownTerm
        if header.controller_epoch != self.controller_epoch:
            return Refusal(
                codes.STALE_CONTROLLER_EPOCH,
                f"request of controller {header.controller_id} has controller epoch"
                f" {header.controller_epoch}, ZooKeeper had {self.controller_epoch}",
            )
        if self.controller_id not in (-1, header.controller_id):
            return Refusal(
                codes.STALE_CONTROLLER_EPOCH,
                f"request of controller {header.controller_id}: that of controller epoch"
                f" {self.controller_epoch} is {self.controller_id}",
            )
        if changes and NO_EVENT < header.event_id < self.event_id:
            return Refusal(
                codes.STALE_CONTROLLER_EPOCH,
                f"request of event {header.event_id} of controller epoch {header.controller_epoch} comes late:"
                f" event {self.event_id} was received before",
            )
        self.event_id = max(self.event_id, header.event_id)
        return None

    def _is_doubtful(self, header: Header) -> bool:
        """Whether the request is of another term than the known one, as far as one can tell. An older event may be the
        first of a term with the same number, after ZooKeeper was restored from a backup."""
        known = self.controller_epoch, self.controller_id
        return (header.controller_epoch, header.controller_id) != known or header.event_id < self.event_id
