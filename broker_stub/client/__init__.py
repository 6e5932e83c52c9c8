"""A client of brokers: producer, consumer, group member.

It imports nothing of the broker except the batch format.
"""
