"""A real ZooKeeper, single or ensemble, from the jars that PySpark ships.

Not here: clients of ZooKeeper.
"""
