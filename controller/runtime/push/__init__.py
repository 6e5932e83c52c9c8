"""Control requests to brokers: one sender for each broker incarnation, and the messages it sends.

The order and content of what is pushed is the core's (``controller.core.outbox``).
"""
