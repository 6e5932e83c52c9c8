"""A whole cluster of real processes on this machine, the scripts that run on it, and their verdict.

Not here: anything that controllers, brokers or pctl need.
"""
