"""The HTML page of the report: charts and tables in one file, drawn from rows that Spark has counted.

Not here: figures (`summary`), and what is asked of Spark.
"""
