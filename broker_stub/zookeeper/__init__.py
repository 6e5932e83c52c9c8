"""The broker's use of ZooKeeper: registration, znodes, ISR changes.

Only ``registration`` and ``client`` import kazoo.
"""
