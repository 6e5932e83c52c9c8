"""The protocol: ``*.proto``, generated code (``gen``), message limits, and the state-change log (``statelog``).

Controller and broker both import it; it imports neither.
"""
