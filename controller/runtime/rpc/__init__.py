"""The controller's gRPC server: services, limits, authorization.

Not here: decisions. ``translate`` converts between messages and the core's values.
"""
