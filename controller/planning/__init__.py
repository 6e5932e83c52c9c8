"""Plans and dry runs: the core's decisions on a copy of the cluster in memory; and how healthy a cluster is.

Not here: decision rules; they are the core's.
"""
