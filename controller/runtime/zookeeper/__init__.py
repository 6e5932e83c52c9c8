"""ZooKeeper: sessions, wire format, codecs of znodes, the fenced store, what a standby keeps in memory of it, and how
tools read a cluster.

No other package of ``controller`` imports kazoo. Not here: decisions about what is written.
"""
