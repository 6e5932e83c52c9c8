"""One module per group of APIs: requests of Kafka's protocol to the core's values, and the replies back.

Not here: sockets, authentication, decisions. ``controller.runtime.kafka_api.api_table`` lists all handlers.
"""
