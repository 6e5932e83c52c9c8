"""The Spark job over state-change logs."""
