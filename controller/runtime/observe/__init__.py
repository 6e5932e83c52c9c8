"""What can be seen of a controller: state-change journal, history, metrics, HTTP.

Not here: anything that changes the cluster.
"""
