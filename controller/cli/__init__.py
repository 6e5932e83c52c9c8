"""The commands ``partition-controller`` and ``pctl``.

This folder's own modules: ``partition-controller``. Not here: decisions, ZooKeeper paths.
"""
