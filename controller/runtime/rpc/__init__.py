"""The controller's gRPC server: services, limits, authorisation.

Not here: decisions; translation between messages and the core's values is in ``translate``.
"""
