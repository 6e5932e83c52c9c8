"""Hosts and ports as text."""

from __future__ import annotations

import ipaddress


def join_address(host: str, port: int) -> str:
    """``HOST:PORT``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_ip_address(host: str) -> bool:
    """Whether a host, without brackets, is an address and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
