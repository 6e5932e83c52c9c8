"""What concerns the cluster as a whole: maintenance, features, configurations, producer ids.

Not here: single brokers coming and going (``brokers``).
"""
