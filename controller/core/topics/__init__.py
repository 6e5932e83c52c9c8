"""Topics: creation, expansion and deletion, by request and by znode.

Not here: replica placement (``partitions.replica_placement``), configurations (``cluster.configs``).
"""
