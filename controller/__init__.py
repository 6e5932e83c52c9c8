"""Partition Controller: the control plane of a replicated, partitioned service."""

import os

# gRPC would print a line, no JSON, for each handshake of a stranger that fails. It looks here as it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

__version__ = "0.1.0"
