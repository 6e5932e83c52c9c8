"""Topics: creation, expansion and deletion, by request and by znode; replicas that no broker can have (``phantom``),
and those that a broker who never returns may still have (``forgotten``).

Not here: replica placement (``partitions.replica_placement``), configurations (``cluster.configs``).
"""
