"""The lake: the lines of all logs ever taken, typed and kept in columns, as one Delta Lake table (docs/lake.md).

``delta_log``: the table's commits. ``identity``, ``spool``: which bytes of which log have been taken, and the next
ones. ``loading``: from those to rows. ``compaction``: few large files instead of many small ones. ``source``: the
report's input from the table. ``job``: the verbs.

Not here: what a line means and whether it is good (``intake``), what the tables count.
"""
