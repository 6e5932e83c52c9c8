"""What both ends of the protocol agree on that no .proto file can say."""

from __future__ import annotations

#: Largest message, bytes: a request of a broker for tens of thousands of partitions, an answer that names every
#: partition of a large cluster.
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
#: The same as options of gRPC's channels and servers.
MESSAGE_LIMITS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
]
