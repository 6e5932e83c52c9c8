"""Questions that operators ask, as tables: availability, time to repair, restarts of brokers, long operations.

Made from the leaderless intervals and from the few records of rare kinds, never from all records (but `partitions`).
Not here: what a record means for leaderless time (`leaderless`), and how tables are shown (`tables`, `page`).
"""
