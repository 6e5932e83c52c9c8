"""In-sync replicas: changes proposed by leaders in AlterPartition, and the older notification znodes.

Not here: ISR changes by the controller itself (``partitions.replica_state_machine``).
"""
