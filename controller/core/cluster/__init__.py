"""The cluster as a whole: maintenance, features, configurations, producer ids.

Not here: start and failure of single brokers (``brokers``).
"""
