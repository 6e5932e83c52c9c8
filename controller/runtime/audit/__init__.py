"""The audit: what brokers hold, and what partition state znodes say, against the cluster state, all the time.

Not here: putting right what differs, which is an event of the core (``core.audit``).
"""
