"""What is remembered and measured of a controller: state-change journal, history, metrics.

Not here: anything that changes the cluster.
"""
