"""Reads the fields of logs by DuckDB into nothing. Run by the Python that has it: tests/tools/requirements/duckdb.in.

``python duckdb_scan.py COLUMNS FILE_OF_FILES``: types by name, and the logs' paths, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb

if __name__ == "__main__":
    columns, paths = json.loads(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    logs = duckdb.read_json(paths, columns=columns, format="newline_delimited", ignore_errors=True)
    # Each field is converted, so that its values can be counted.
    duckdb.sql("select count(columns(*)) from logs").fetchall()
