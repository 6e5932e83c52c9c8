"""ZooKeeper: session and lease, wire format, codecs of znodes, the fenced store.

The only importer of kazoo in ``controller``. Not here: what is written and why.
"""
