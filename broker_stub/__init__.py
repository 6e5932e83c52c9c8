"""A small broker that holds data: control requests, logs, replication, consumer groups, a client library.

It implements the protocol independently of the controller and never imports ``controller``.
"""
