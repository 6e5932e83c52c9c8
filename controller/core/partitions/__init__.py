"""Partitions and their replicas: the two state machines, leader election, first state, placement of replicas.

Not here: who asks for an election (``elections``), what leaders propose (``isr``), reassignment.
"""
