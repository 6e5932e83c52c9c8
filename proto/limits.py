"""Limits of messages, which client and server share and a .proto file cannot express; and of connections."""

from __future__ import annotations

import resource

#: Bytes. A message may name every partition of a large cluster; 50,000 partitions take about 5 MB. Larger messages fail
#: with RESOURCE_EXHAUSTED.
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
#: The limit as options of gRPC channels and servers.
MESSAGE_LIMITS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
]

#: Of the descriptors that the process may open, for connections of one kind: the rest is left to ZooKeeper, peers, data
#: and logs.
DESCRIPTORS_SHARE = 0.25
#: By then a connection has ended its handshake, with TLS or without; gRPC's default is two minutes.
HANDSHAKE_MS = 10_000


def descriptors_share(wanted: int) -> int:
    """``wanted``, but at most that share, and at least 4."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(min(wanted, int(soft * DESCRIPTORS_SHARE)), 4)


def connection_limits(wanted: int) -> list[tuple[str, int]]:
    """At most ``wanted`` connections, as options of a gRPC server: more are refused."""
    return [
        ("grpc.max_allowed_incoming_connections", descriptors_share(wanted)),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    ]
