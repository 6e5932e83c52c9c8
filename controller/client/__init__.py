"""The client of AdminService, for tools.

Not here: servers, printing, reading ZooKeeper (``controller.runtime.zookeeper.cluster_reader``).
"""
