"""The cluster as a whole: maintenance, features, configurations, dynamic settings, credentials, producer ids, what is
in quarantine, who led when, and which brokers come and go.

Not here: what is done when a broker starts or fails (``brokers``).
"""
