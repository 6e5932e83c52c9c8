"""What a controller records and measures: state-change log, audit log, history in memory, metrics, traces.

Not here: anything that changes the cluster.
"""
