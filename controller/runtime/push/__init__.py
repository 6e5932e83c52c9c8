"""Control requests to brokers: one sender for each broker incarnation, over the transport of the broker's protocol.

The core decides order and content of the requests (``controller.core.outbox``). Messages of gRPC are built here, those
of Kafka's protocol in ``controller.runtime.kafka``.
"""
