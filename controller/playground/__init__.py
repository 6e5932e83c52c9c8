"""A whole cluster of real processes on this machine: its scripts and their verdict.

Not here: anything that the product needs.
"""
