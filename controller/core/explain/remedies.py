"""What would change a partition's state, as data: a planner carries it out before it is given as advice."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from controller.core.model import NO_LEADER, BrokerIds

#: Where the text of a change names its brokers.
BROKERS = "{brokers}"


class Remedy(Enum):
    """One step. RETURN and REPAIR: one of the change's brokers registers again, with its data."""

    RETURN = "return"
    REPAIR = "repair"
    ALLOW_UNCLEAN = "allow_unclean"
    ELECT_UNCLEAN = "elect_unclean"
    ELECT_PREFERRED = "elect_preferred"
    RESUME = "resume"
    LEAVE = "leave"


class Change(NamedTuple):
    """``steps``: None for what cannot be planned, such as that a replica catches up; empty: the controller acts by
    itself. ``leader``: who leads afterwards, -1: any replica."""

    text: str
    steps: frozenset[Remedy] | None = None
    brokers: BrokerIds = ()
    leader: int = NO_LEADER

    def __str__(self) -> str:
        return self.text.replace(BROKERS, str(list(self.brokers))) if self.brokers else self.text
