"""S3 and what is compatible with it: Hadoop's client of it, which PySpark does not ship.

Not here: credentials, endpoints and other settings, which are Hadoop's own (docs/report.md); what is read and written.
"""
