"""Answers to "why": explanations of partitions, topics and the controller, from the context alone.

Not here: decisions. What the deciding code returns is explained, its rules are not restated.
"""
