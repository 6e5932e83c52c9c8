"""What speaks to Kafka brokers, or stands in for their controller beside the requests that they send.

Not here: the server that brokers ask (``controller.runtime.kafka_api``), decisions, gRPC.
"""
