"""In-sync replicas: what leaders propose by AlterPartition, and the older notifications by znode.

Not here: what the controller itself removes from an ISR (``partitions.replica_state_machine``).
"""
