"""The gRPC server of a controller: AdminService and ControllerService on one address."""

from __future__ import annotations

import grpc

from controller.runtime.admin import AdminService
from controller.runtime.config import join_address
from controller.runtime.controller_service import ControllerService
from controller.runtime.daemon import Daemon
from proto.admin_service_pb2_grpc import add_AdminServiceServicer_to_server
from proto.controller_service_pb2_grpc import add_ControllerServiceServicer_to_server

#: A broker proposes in-sync sets for tens of thousands of partitions at once, bytes.
RECEIVE_BYTES_MAX = 64 * 1024 * 1024
#: Calls at once; a broker has one of a kind. More than this are answered RESOURCE_EXHAUSTED.
CALLS_MAX = 1000


async def serve(daemon: Daemon, host: str, port: int) -> tuple[grpc.aio.Server, int]:
    """Start serving; returns the server (to stop) and the real port. Raises OSError when it is taken."""
    server = grpc.aio.server(
        options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX)],
        maximum_concurrent_rpcs=CALLS_MAX,
    )
    add_AdminServiceServicer_to_server(AdminService(daemon), server)
    add_ControllerServiceServicer_to_server(ControllerService(daemon), server)
    try:
        bound = server.add_insecure_port(join_address(host, port))
    except RuntimeError as error:
        raise OSError(str(error)) from None
    await server.start()
    return server, bound
