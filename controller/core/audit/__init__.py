"""What others hold is put right where it differs from the cluster state: partition state znodes that somebody edited,
and brokers that know something else than they were told.

Not here: finding differences of brokers (``runtime.audit``). Conflicts of our own writes are redecided in ``commits``.
"""
