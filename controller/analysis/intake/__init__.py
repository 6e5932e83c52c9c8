"""From the bytes of log files to records in columns, and how good the input was.

Not here: what the tables count.
"""
