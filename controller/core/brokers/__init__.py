"""Brokers: start, failure, restart, change of registration, controlled shutdown, failed disks, stop approvals.

Not here: the resulting changes of leadership (``partitions``).
"""
