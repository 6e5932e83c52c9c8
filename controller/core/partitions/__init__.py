"""Partitions and replicas: the two state machines, leader election, initial state, replica placement.

Not here: requests for elections (``elections``), ISR changes by leaders (``isr``), reassignment.
"""
