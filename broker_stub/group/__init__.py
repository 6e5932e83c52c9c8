"""The group coordinator: members, committed offsets, and their storage in ``__consumer_offsets``.

The client side of a group is in ``client``.
"""
