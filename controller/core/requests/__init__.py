"""Values of requests to the active controller and of its responses, and Kafka's error codes.

Not here: decisions, wire formats. Imports only the model and reasons.
"""
