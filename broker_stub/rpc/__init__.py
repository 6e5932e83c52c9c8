"""gRPC to and from a broker: its server, and its connections to peers and controller.

Not here: what is answered.
"""
