"""Leaders and followers: partitions with their replicas, fetchers, ISR changes, the high watermark."""
