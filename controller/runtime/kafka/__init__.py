"""Kafka brokers that a controller of ours leads: connections and control requests to them, the check before a takeover,
and what their own controller would do beside (delegation tokens, its registration).

Not here: the server that brokers ask (``controller.runtime.kafka_api``), decisions, gRPC.
"""
