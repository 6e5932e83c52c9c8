"""What would happen: the real decisions, on a copy of the cluster in memory.

Not here: rules of its own; they are the core's.
"""
