"""``pctl``, a module for each noun of its manual.

Not here: what several nouns share (``controller.cli.common``).
"""
