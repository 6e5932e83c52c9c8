"""Ports that are bound long after they were chosen, or again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from controller.embedded_kafka.brokers import PORTS, lasting_ports
from controller.errors import EnvironmentFault

CHOOSE = "from controller.embedded_kafka.brokers import lasting_ports; print(*lasting_ports(4), flush=True); input()"


def test_no_port_is_given_twice_not_even_by_another_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHOOSE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        taken = [int(port) for port in other.stdout.readline().split()]
        assert len({port for port in taken if port in PORTS}) == 4
        for port in taken:
            with pytest.raises(
                EnvironmentFault, match=f"no 1 free TCP ports from {port} to {port} on loopback"
            ):
                lasting_ports(1, range(port, port + 1))
        other.communicate("\n")
    assert lasting_ports(1, range(taken[0], taken[0] + 1)) == taken[:1]
    with pytest.raises(EnvironmentFault, match="no 1 free"):
        lasting_ports(1, range(taken[0], taken[0] + 1))
