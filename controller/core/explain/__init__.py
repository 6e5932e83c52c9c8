"""Explanations of the state of partitions, topics, brokers and the controller, from the cluster state alone.

Not here: decisions. Explanations show the results of the deciding code and do not restate its rules.
"""
