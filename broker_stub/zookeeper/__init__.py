"""ZooKeeper as a broker uses it: registration, znodes, ISR written the old way.

With the session it is the only importer of kazoo in ``broker_stub``.
"""
