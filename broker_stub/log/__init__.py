"""A partition's log on disk: segments, checkpoints, recovery.

Replication and the network are elsewhere.
"""
