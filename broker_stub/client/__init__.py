"""A client of brokers: producer, consumer, group member.

Not here: anything of the broker; imports only the format of batches.
"""
