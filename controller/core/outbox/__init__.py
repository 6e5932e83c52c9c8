"""Pending control requests per broker: bounded queues that collapse to the newest state per partition.

The queues hold partitions, never values: values are read from the leadership cache when a request is built, and the
cache holds durable state only. So a slow broker gets one newest state per partition, however many decisions it missed,
and no broker gets state that is not durable.

Order of requests to one broker (reference, sections 9.1, 9.2; KAFKA-4443, KAFKA-831): the list of live brokers
before anything that depends on it; of each change LeaderAndIsr, then UpdateMetadata; StopReplica after the metadata
that was queued before it. Of LeaderAndIsr, the partitions that the broker leads come first: nobody can produce to them
before it knows. A small change, as the creation of a topic, goes before a large one, as the return of a broker, and in
turn with it (docs/adr/0003).

A new controller, and a broker that registers, begin with the whole state: LeaderAndIsr of every replica, and a full
metadata snapshot. It waits until somebody has compared what the broker holds already (``compared``), and what is equal
is left out; changes do not wait (docs/adr/0018). A new controller's is only listed then: mostly nothing is left of it.

Every broker gets the same metadata, so it is a stream for all, one of small and one of large changes, in which each
broker has a position.

Not here: what a request says (`controller.runtime.push`), and when it is sent.
"""

from controller.core.outbox.metadata_stream import MetadataStream
from controller.core.outbox.outbox import Outbox
from controller.core.outbox.pushes import Push, PushKind
from controller.core.outbox.queues import BrokerQueue
from controller.core.outbox.whole_state import Differing

__all__ = ["BrokerQueue", "Differing", "MetadataStream", "Outbox", "Push", "PushKind"]
