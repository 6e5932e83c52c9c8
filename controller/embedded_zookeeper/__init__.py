"""A real ZooKeeper server or ensemble, from the jars that PySpark ships.

Not here: clients of ZooKeeper.
"""
