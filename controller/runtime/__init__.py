"""The I/O layer: it connects the pure core to ZooKeeper, the brokers, the state-change log and operators.

This folder holds the process, its settings, the controller election and one term of leadership. Not here: decisions
about the cluster (``controller.core``), clients of the controller (``controller.client``).
"""
