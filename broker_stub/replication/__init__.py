"""Replication: leaders and followers, high watermark, ISR, fetchers.

Files are in ``log``, control requests in ``control``.
"""
