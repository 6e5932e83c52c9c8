"""Ports that nothing listens on."""

from __future__ import annotations

from controller.embedded_zookeeper.ensemble import free_ports


def free_port() -> int:
    """A TCP port that was free on loopback a moment ago."""
    return free_ports(1)[0]
