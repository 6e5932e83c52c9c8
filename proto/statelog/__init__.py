"""The state-change log: how it is written, and what its records are.

Not here: reading it at scale (``controller.analysis``).
"""
