"""Who leads: elections in ZooKeeper, how ``/controller`` of Kafka brokers is taken over and handed back, and what one
term leaves to the next candidates.

Not here: what a controller does while it leads (``controller.runtime.term``), the lease of a session
(``controller.runtime.lease``).
"""
