"""Load on a cluster and the check of its records: writers, readers, their history, and the checker.

Not here: commands; starting a cluster.
"""
