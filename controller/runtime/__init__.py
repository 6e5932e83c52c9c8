"""Actions: the thin layer between the core and ZooKeeper, the brokers, the log and the operator."""
