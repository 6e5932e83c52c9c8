"""The commands ``partition-controller`` and ``pctl``.

At this level: ``partition-controller``. Not here: decisions, ZooKeeper paths.
"""
