"""A partition's log on disk: segments, checkpoints, recovery.

Not here: replication, the network.
"""
