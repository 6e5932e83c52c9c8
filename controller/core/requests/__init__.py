"""Values of requests to the active controller and of its answers, and Kafka's error codes.

Not here: decisions, wire formats. Imports nothing but the model.
"""
