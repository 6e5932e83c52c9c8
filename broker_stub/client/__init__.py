"""A client of brokers: metadata with refresh, producer, consumer, group member. Imports nothing of a broker's inside
but the record batch format."""
