"""Elections on request and by schedule: ElectLeaders, the legacy znode, preferred leader balance.

Not here: how a leader is chosen (``partitions.leader_election``).
"""
