"""The controller's gRPC server: services, limits, authorization.

``methods`` has a row for each RPC; where its handler is, says docs/architecture.md ("To add X, touch Y").

Not here: decisions. ``translate`` converts between messages and the core's values.
"""
