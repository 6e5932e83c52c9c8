"""A small broker that holds data: control requests, logs, replication, consumer groups, a client library.

An independent reading of the protocol: never imports ``controller``.
"""
