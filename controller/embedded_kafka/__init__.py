"""Real Kafka brokers as processes on this machine, their jars, and Kafka's own command-line tools.

Not here: clients of Kafka; anything that a controller needs to run.
"""
