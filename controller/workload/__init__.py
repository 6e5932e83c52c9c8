"""Load on a cluster and the verdict on what became of it: writers, readers, their history, and its checker.

Not here: commands; starting a cluster.
"""
