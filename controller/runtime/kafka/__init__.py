"""Kafka's protocol at run time: connections to brokers, and the server that brokers and clients ask.

The wire format is below, in ``proto.kafka``; decisions about the cluster are in ``controller.core``.
"""
