"""The client side of AdminService: how tools ask the active controller.

Not here: servers, printing, what ZooKeeper holds (``controller.runtime.zookeeper.cluster_reader``).
"""
