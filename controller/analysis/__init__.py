"""The Spark job over state-change logs: the only package that imports pyspark (guide: docs/report.md)."""
