"""Reassignment of partitions (KIP-455): requests, phases, concurrency, stray replicas, generated plans.

Not here: deletion of topics; the legacy znode ``/admin/reassign_partitions`` is known to this room alone.
"""
