"""Replication: leaders and followers, high watermark, ISR, fetchers.

Not here: files (``log``), control requests (``control``).
"""
