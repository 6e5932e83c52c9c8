"""What verbs show without a controller: snapshots, dry runs and explanations computed from the cluster state in
ZooKeeper, and what a broker answers to ``--bootstrap``.

Not here: commands; the decisions themselves (``controller.core``, ``controller.planning``).
"""
