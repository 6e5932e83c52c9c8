"""Security as Kafka brokers have it: SASL and ACLs, for connections in both directions; TLS is in ``proto.security``.

What is exchanged is decided here without sockets: a connection passes messages in and gets answers. Not here: the
operation and resource of each request, which its handler knows, and the messages' wire format (``proto.kafka``).
"""
