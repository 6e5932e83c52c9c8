"""The Spark job over state-change logs, and its report.

The only importer of pyspark. Not here: anything of the running controller.
"""
