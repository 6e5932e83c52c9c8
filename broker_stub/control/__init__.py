"""Control requests: epoch checks against stale requests, roles of replicas, metadata cache.

The data is in ``replication`` and ``log``.
"""
