"""One replica's log: record batches, segments, leader epochs, checkpoints. Knows nothing of roles or brokers."""
