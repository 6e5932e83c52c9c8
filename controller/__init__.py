"""Partition Controller: the control plane of a replicated, partitioned service."""

__version__ = "0.1.0"
