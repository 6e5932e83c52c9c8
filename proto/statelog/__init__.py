"""The state-change log: its writer and the schema of its records.

Not here: reading it (``controller.analysis``).
"""
