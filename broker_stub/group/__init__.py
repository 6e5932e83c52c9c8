"""The group coordinator: members, offsets, and the topic that keeps them.

Not here: the client's side of a group (``client``).
"""
