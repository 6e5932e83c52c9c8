"""Verbs that move all replicas of brokers: decommission, replace, swap; and what they share with ``pctl reassign``:
load before and after, throttles.

Not here: which replica goes where (``controller/core/reassignment``).
"""
