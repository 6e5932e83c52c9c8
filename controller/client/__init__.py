"""The client side: how tools ask the active controller, and read the cluster from ZooKeeper.

Not here: servers, printing.
"""
