"""What a controller records and measures: state-change log, history in memory, metrics.

Not here: anything that changes the cluster.
"""
