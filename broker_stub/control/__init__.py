"""What the controller tells a broker: gates against stale requests, roles of replicas, metadata.

Not here: data (``replication``, ``log``).
"""
