"""What would happen: the real decisions, on a copy of the cluster in memory."""
