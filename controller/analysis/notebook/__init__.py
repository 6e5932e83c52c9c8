"""The logs as DataFrames for people's own questions, in a notebook or a program (docs/report.md)."""
