"""Brokers: start, failure, restart, change of registration, controlled shutdown, failed disks, stop approvals.

Not here: how leadership moves because of it (``partitions``).
"""
