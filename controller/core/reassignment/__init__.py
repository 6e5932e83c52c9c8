"""Reassignment of partitions (KIP-455): requests, phases, concurrency, stray replicas, generated plans.

Not here: deletion of topics. Only this room uses the legacy znode ``/admin/reassign_partitions``.
"""
