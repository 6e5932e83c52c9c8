"""The protocol: ``*.proto``, generated code (``gen``), message limits, the state-change log (``statelog``), security,
and the loader of both daemons' settings.

Controller and broker both import it; it imports neither.
"""
