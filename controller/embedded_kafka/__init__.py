"""Real Kafka brokers as processes on this machine, and their jars.

Not here: clients of Kafka; anything that a controller needs to run.
"""
