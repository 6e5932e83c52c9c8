"""``pctl``, a module for each command.

Not here: what several commands share (``controller.cli.common``).
"""
