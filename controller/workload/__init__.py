"""Load on a cluster and the judgement of what became of it: writers, readers, their history, and its checker."""
