"""The wire: ``*.proto``, its generated code (``gen``), limits of messages, and the state-change log (``statelog``).

Shared by controller and broker, and so free of either.
"""
