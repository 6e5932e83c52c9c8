"""Kafka's protocol at run time: connections and control requests to Kafka brokers, and the server that brokers and
clients ask.

Not here: decisions (``controller.core``), the wire format (``proto.kafka``), gRPC (``runtime.rpc``, ``runtime.push``).
"""
