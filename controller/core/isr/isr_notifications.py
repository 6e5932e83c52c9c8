"""Sequential notification znodes of brokers (reference, sections 8.4, 8.5): read, processed, deleted.

A znode that does not decode is logged and deleted like the others: no process would ever repair it.
"""

from __future__ import annotations

from controller.core.commits import delete_notifications, refresh
from controller.core.context import EventContext, Handler
from controller.core.effects import Problem, ReadIsrNotifications
from controller.core.model import Partition
from controller.core.names import name_shown
from controller.core.partitions import lost_data, partition_state_machine
from controller.core.reassignment import phases


def isr_changed(context: EventContext) -> Handler[None]:
    """IsrChangeNotification: leaders wrote ISRs themselves; read them and notify every broker.

    A separate event completes reassignments that waited for such an ISR (reference, section 8.2).
    """
    notes = yield from context.read(ReadIsrNotifications())
    named: dict[Partition, None] = {}
    for path, listed in notes:
        if isinstance(listed, Problem):
            context.problem(listed)
            continue
        for topic, number in listed:
            partition = context.cluster.partition(topic, number)
            if partition is None:
                context.reject(
                    "UNKNOWN_TOPIC_OR_PARTITION", f"{path}: {name_shown(topic)}-{number}: no such partition"
                )
            else:
                named[partition] = None
    changed = yield from refresh(context, list(named), "isr_change_notification")
    # A member may have come back without its data while its leader wrote.
    yield from lost_data.take_out(context, changed)
    yield from partition_state_machine.bring_online(context, changed)
    notified = set(changed)
    context.push_metadata([p for p in named if p not in notified])
    yield from delete_notifications(context, [path for path, _ in notes])
    phases.isr_changed(context, named)
