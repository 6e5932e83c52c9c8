"""One call of the data plane of a broker."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from proto.gen import broker_data_pb2 as wire
from proto.security.grpc_channels import open_channel
from tests.provers.sim.environment.rpc import tls_here

_SERVICE = "/partition_controller.v1.BrokerData/"
_PATIENCE_S = 6.0
_RESPONSES: dict[str, Any] = {
    "FindCoordinator": wire.FindCoordinatorResponse,
    "JoinGroup": wire.JoinGroupResponse,
    "SyncGroup": wire.SyncGroupResponse,
    "Heartbeat": wire.HeartbeatResponse,
    "LeaveGroup": wire.LeaveGroupResponse,
    "OffsetCommit": wire.OffsetCommitResponse,
    "OffsetFetch": wire.OffsetFetchResponse,
    "Produce": wire.ProduceResponse,
    "Fetch": wire.FetchResponse,
    "ListOffsets": wire.ListOffsetsResponse,
    "OffsetsForLeaderEpoch": wire.OffsetsForLeaderEpochResponse,
    "Metadata": wire.MetadataResponse,
}


async def sent(address: str, method: str, request: Message) -> Any:
    """The answer; None: there is none."""
    async with open_channel(address, tls_here()) as channel:
        send: Any = channel.unary_unary(_SERVICE + method)
        try:
            body = await send(request.SerializeToString(), timeout=_PATIENCE_S)
        except grpc.aio.AioRpcError:
            return None
    return _RESPONSES[method].FromString(body)
