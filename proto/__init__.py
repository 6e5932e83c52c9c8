"""What controller and broker share; it imports neither.

Of the protocol: ``*.proto``, Kafka's messages (``kafka``), the code generated from both (``gen``), size limits,
digests. Of a daemon: the imports of its start, settings, reloading, logs and what limits them, the state-change log
(``statelog``), security, ZooKeeper's ACLs and logins, incarnations. Of both: addresses, and external data in
messages (``texts``).
"""
