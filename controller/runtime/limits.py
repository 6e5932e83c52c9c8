"""What the process must have to begin."""

from __future__ import annotations

import resource

from controller.errors import EnvironmentFault

#: Bytes of address space without which gRPC's threads cannot start: they would be tried for ever.
ADDRESS_SPACE_MIN = 512 * 2**20


def require_address_space() -> None:
    """Raises EnvironmentFault when the process may not have enough memory to begin (``ulimit -v``)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < ADDRESS_SPACE_MIN:
        raise EnvironmentFault(
            f"the memory limit (ulimit -v) is {soft // 2**20} MiB: must be at least {ADDRESS_SPACE_MIN // 2**20} MiB"
        )
