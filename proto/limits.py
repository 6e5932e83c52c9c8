"""Message size limits that client and server share; a .proto file cannot express them."""

from __future__ import annotations

#: Bytes. A message may name every partition of a large cluster; 50,000 partitions take about 5 MB. Larger messages fail
#: with RESOURCE_EXHAUSTED.
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
#: The limit as options of gRPC channels and servers.
MESSAGE_LIMITS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
]
