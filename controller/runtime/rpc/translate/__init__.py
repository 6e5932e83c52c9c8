"""From messages on the wire to the core's values and back.

Not here: decisions, I/O. Malformed messages are refused here.
"""
