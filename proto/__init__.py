"""The wire: ``*.proto``, its generated code (``gen``), limits of messages, and the state-change log (``statelog``); and
how both daemons read their settings.

Shared by controller and broker, and so free of either.
"""
