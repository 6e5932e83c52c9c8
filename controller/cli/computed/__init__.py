"""Results that are computed from the cluster state in ZooKeeper: snapshots, dry runs, explanations, what is wrong.

Not here: commands; the decisions themselves (``controller.core``, ``controller.planning``).
"""
