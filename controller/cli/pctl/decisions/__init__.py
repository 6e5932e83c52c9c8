"""Verbs that show the controller's decisions: what would happen, whether brokers may stop, why things are as they are.

Not here: verbs that change something, other than the record of a stop approval.
"""
