"""What a sender needs of a broker's protocol: build the messages of a push, send one, and read its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from controller.core.model import Broker
from controller.core.outbox import Push


class PartitionError(NamedTuple):
    """A broker's answer for one partition; ``code`` is Kafka's number of the error, 0 for success."""

    topic: str
    partition: int
    code: int


class Answer(NamedTuple):
    """A broker's answer to one message: the error of the whole request (0: none), and those of its partitions.

    ``controller_epoch``: the highest that the broker has accepted; 0: it does not say, as Kafka's brokers do not.
    """

    code: int
    partition_errors: Sequence[PartitionError] = ()
    controller_epoch: int = 0


class UnreachableError(Exception):
    """The broker did not answer; the text says why. The message may have arrived."""


class CannotAnswerError(UnreachableError):
    """The broker does not know this request, or refuses it: there is no use in asking again."""


class Transport(Protocol):
    """The way to one broker incarnation. Each call names the broker's newest registration: addresses change."""

    async def connect(self, broker: Broker) -> None:
        """Learn what ``build`` needs to know about the broker. Raises UnreachableError."""

    def build(self, push: Push) -> Iterator[tuple[bytes, int]]:
        """(message, number of partitions) for one push, after ``connect``: several where one would be too large."""

    async def send(self, broker: Broker, push: Push, message: bytes) -> Answer:
        """Send one message of a push and wait for the answer. Raises UnreachableError."""

    async def close(self) -> None:
        """End the connection; the transport is not used afterwards."""


class Transports(Protocol):
    """The transports of one protocol in one term: what they encode for several brokers, they encode once."""

    def open(self) -> Transport:
        """The transport for a broker incarnation, not connected yet."""

    def forget(self) -> None:
        """Free what is kept to be shared, once nothing is pending for any broker."""
