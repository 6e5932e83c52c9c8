"""The server of Kafka's protocol: what brokers and clients ask the controller.

Not here: decisions (``controller.core``), the wire format (``proto.kafka``), connections to brokers and security
(``controller.runtime.kafka``), gRPC (``controller.runtime.rpc``).
"""
