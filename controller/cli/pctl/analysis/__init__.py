"""Verbs of ``pctl`` that read the state-change logs of all nodes with Spark: report, lake.

Not here: the jobs themselves (``controller.analysis``), and verbs that read a few logs without Spark (``history``).
"""
