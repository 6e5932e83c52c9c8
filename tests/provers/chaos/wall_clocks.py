"""Wall clocks that are off, and jump while their processes run: one for each process (``wall_clock.c``).

Not libfaketime: with Debian's 0.9.10 `time.sleep` of Python 3.11 fails (EINVAL), and waits of gRPC on futexes last as
long as the clock is off.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

from controller.errors import EnvironmentFault

_SOURCE = Path(__file__).parent / "wall_clock.c"
_COMPILER = "cc"
_NS = 1_000_000_000


def possible() -> bool:
    """Whether there is what compiles the library."""
    return shutil.which(_COMPILER) is not None


class WallClocks:
    """The clocks of all processes; ``directory`` gets the library, and a file for each clock."""

    def __init__(self, directory: Path) -> None:
        """Raises EnvironmentFault."""
        directory.mkdir(parents=True)
        self._directory, self._library = directory, directory / "wall_clock.so"
        command = [_COMPILER, "-O2", "-shared", "-fPIC", "-o", str(self._library), str(_SOURCE), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise EnvironmentFault(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")

    def launcher(self, name: str) -> tuple[str, ...]:
        """What comes before a command line, so that its process has a clock of its own, which is right at first."""
        self.set(name, 0.0)
        return "env", f"LD_PRELOAD={self._library}", f"CHAOS_CLOCK_FILE={self._file(name)}"

    def set(self, name: str, offset_s: float) -> None:
        """The clock jumps: it is off by so much from now on, and after a restart of its process, too."""
        file = self._file(name)
        with file.open("r+b" if file.exists() else "wb", buffering=0) as clock:
            clock.write(struct.pack("=q", round(offset_s * _NS)))

    def _file(self, name: str) -> Path:
        return self._directory / name
