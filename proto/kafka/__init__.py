"""Kafka's wire protocol without I/O: primitives, the table of APIs with headers, and the generator of
``proto.gen.kafka`` (``make kafka-messages``); the JSON of its znodes (``znode_json``).

Not here: connections, and what a message makes anybody do.
"""
