"""Flapping: a broker that is lost again and again does not get its leaderships back at once.

It follows and joins the ISR as ever, and leads what no other replica can: only the automatic return of leaderships to
it waits, after its second loss for ``broker_flapping_hold_seconds``, after each further one twice as long. A clean stop
is no loss. One that stays for long enough begins anew. Known in this term only: the next controller has seen no losses.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from controller.core.context import EventContext
from controller.core.model import Flapping
from controller.core.records import BrokerChange

#: The longest hold, and the time after which losses are forgiven.
HOLD_MAX_US = 3_600_000_000
FORGIVEN_US = 2 * HOLD_MAX_US


def lost(context: EventContext, ids: Collection[int]) -> None:
    """Brokers are gone or registered anew; ``shutting_down`` still has those that stopped cleanly."""
    cluster = context.cluster
    for broker_id in sorted(set(ids) - cluster.shutting_down):
        known = cluster.flapping.get(broker_id)
        forgiven = known is None or (known.up_us is not None and context.now_us - known.up_us >= FORGIVEN_US)
        cluster.flapping[broker_id] = Flapping(1 if known is None or forgiven else known.losses + 1)


def returned(context: EventContext, ids: Collection[int]) -> None:
    """Brokers have registered."""
    cluster = context.cluster
    for broker_id in sorted(cluster.flapping.keys() & set(ids)):
        known = cluster.flapping[broker_id]
        settings = context.settings
        hold_us = hold_of(known.losses, settings.broker_flapping_hold_seconds)
        if not settings.auto_leader_rebalance_enable:
            hold_us = 0  # Nothing would return.
        cluster.flapping[broker_id] = msgspec.structs.replace(known, up_us=context.now_us, hold_us=hold_us)
        if hold_us:
            reason = f"lost {known.losses} times: leaderships return to it once it is up for {hold_us // 1_000_000} s"
            context.log([BrokerChange(broker_id, "held_back", reason=reason)])


def hold_of(losses: int, first_s: int) -> int:
    """How long a broker is held back after so many losses, in microseconds; 0: not at all."""
    if losses < 2 or not first_s:
        return 0
    # Bounded before it is shifted: losses have no limit.
    return min(first_s * 1_000_000 << min(losses - 2, 40), HOLD_MAX_US)


def release(context: EventContext) -> None:
    """Before leaderships return: those that are up for long enough are held back no more."""
    flapping = context.cluster.flapping
    for broker_id, known in list(flapping.items()):
        if known.up_us is None:
            continue
        up_us = context.now_us - known.up_us
        if up_us >= FORGIVEN_US:
            del flapping[broker_id]
        elif known.hold_us and up_us >= known.hold_us:
            flapping[broker_id] = msgspec.structs.replace(known, hold_us=0)
            context.log([BrokerChange(broker_id, "released", "held_back", reason="it is up for long enough")])
