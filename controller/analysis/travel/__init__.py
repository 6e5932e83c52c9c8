"""The cluster as it was: its state at a moment, rebuilt from the logs, and what changed between two.

Records are ordered by controller epoch and event, which no clock changes. Not here: how lines are read (`intake`).
"""
