"""The transport by which a broker is asked what it holds. Not here: what is made of the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from controller.core.model import Broker
from proto.gen import broker_control_pb2 as pb


class StateTransport(Protocol):
    """The part of a transport to one broker that asks: ``GrpcTransport``."""

    async def describe_state(
        self, broker: Broker, request: pb.DescribeStateRequest
    ) -> pb.DescribeStateResponse: ...

    async def close(self) -> None: ...


class LeasedTransport:
    """Asks only while the lease holds: a question under a fence raises the controller epoch that a broker knows.

    ``require_lease`` raises LeadershipError when nothing may be sent any more.
    """

    def __init__(self, transport: StateTransport, require_lease: Callable[[], None]) -> None:
        self._transport, self._require_lease = transport, require_lease

    async def describe_state(
        self, broker: Broker, request: pb.DescribeStateRequest
    ) -> pb.DescribeStateResponse:
        self._require_lease()
        return await self._transport.describe_state(broker, request)

    async def close(self) -> None:
        await self._transport.close()
