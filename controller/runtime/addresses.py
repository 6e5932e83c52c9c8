"""Addresses as settings and options write them: hosts, ports, the servers of ZooKeeper."""

from __future__ import annotations

import re

#: No part of a name is empty or longer than 63 characters: looking one up would raise UnicodeError.
HOST_NAME = r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?"
HOST = rf"(?:\[[0-9a-fA-F:.]+\]|{HOST_NAME})"
PORT = r"(?:[0-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_SERVERS = rf"{HOST}(?::(?!0+(?![0-9])){PORT})?"
#: ZooKeeper refuses paths with the parts . and ..
_CONNECT = re.compile(rf"{_SERVERS}(,{_SERVERS})*(/(?!\.{{1,2}}(?:/|\Z))[^/\s]+)*/?")
CONNECT_ALLOWED = (
    "HOST:PORT[,HOST:PORT...][/chroot] with ports from 1 to 65535, without . and .. in the chroot"
)


def connect_string(value: str) -> str:
    """ZooKeeper servers and chroot, normalised. Raises ValueError with what is allowed."""
    if not _CONNECT.fullmatch(value.strip()):
        raise ValueError(CONNECT_ALLOWED)
    return value.strip().rstrip("/")
