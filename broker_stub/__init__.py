"""A small broker that holds data: control requests, logs, replication, consumer groups, a client library.

It implements the protocol independently of the controller and never imports ``controller``.
"""

import os

# gRPC would print a line, no JSON, for each handshake of a stranger that fails. It looks here as it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
