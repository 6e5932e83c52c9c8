"""Actions: the thin layer between the core and ZooKeeper, the brokers, the log and the operator.

At this level: the process, its settings, the election of the controller and one term of it. Not here: decisions about
the cluster (``controller.core``), clients of the controller (``controller.client``).
"""
