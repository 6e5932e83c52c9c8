"""ZooKeeper: session and lease, wire format, codecs of znodes, the fenced store.

No other package of ``controller`` imports kazoo. Not here: decisions about what is written.
"""
