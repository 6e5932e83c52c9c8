"""Control requests to brokers: one sender for each broker incarnation, and the messages it sends.

The core decides order and content of the requests (``controller.core.outbox``).
"""
