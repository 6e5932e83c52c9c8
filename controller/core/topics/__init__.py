"""Topics: creation, expansion and deletion, by request and by znode.

Not here: where replicas are placed (``partitions.replica_placement``), configurations (``cluster.configs``).
"""
