"""Translation between messages on the wire and the core's values; it refuses malformed messages.

Not here: decisions, I/O.
"""
