"""gRPC of the broker: its server, and its connections to other brokers and the controller.

The handlers of the methods are elsewhere.
"""
