"""The Spark job over state-change logs, and its report.

The only package that imports pyspark. Not here: anything that the running controller needs.
"""
