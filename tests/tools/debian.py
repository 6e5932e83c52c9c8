"""A program from one of Debian's packages, pinned by checksum: unpacked below ``.venv/tools``, not installed.

``python -m tests.tools.debian prometheus`` fetches it; tests find it then, or fetch it themselves.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.tools.installation import ENVIRONMENTS, REQUIREMENTS, IndexOutOfReachError, InstallationError

DOWNLOAD_TIMEOUT_S = 150


def unpack(name: str, environments: Path = ENVIRONMENTS) -> Path:
    """The folder of a package's files, as below ``/``, from an earlier run if that unpacked the very same.

    ``requirements/NAME.deb`` has its checksum, architecture and version. Raises IndexOutOfReachError,
    InstallationError.
    """
    environments.mkdir(parents=True, exist_ok=True)
    digest, architecture, version = (REQUIREMENTS / f"{name}.deb").read_text().split()
    home = environments / f"{name}-debian"
    marker = home / "unpacked"
    with (environments / f"{name}-debian.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not marker.exists() or marker.read_text() != digest:
            shutil.rmtree(home, ignore_errors=True)
            with tempfile.TemporaryDirectory() as scratch:
                package = _download(f"{name}:{architecture}={version}", Path(scratch))
                found = hashlib.sha256(package.read_bytes()).hexdigest()
                if found != digest:
                    raise InstallationError(f"{package.name}: its checksum is {found}, pinned is {digest}")
                subprocess.run(["dpkg-deb", "-x", str(package), str(home)], check=True)
            marker.write_text(digest)
    return home


def _download(wanted: str, directory: Path) -> Path:
    said = ""
    if shutil.which("apt-get") is None:
        raise IndexOutOfReachError("this machine has no apt-get")
    # A new machine may have no lists yet.
    for command in (["download", wanted], ["update"], ["download", wanted]):
        done = subprocess.run(
            ["apt-get", "-q", *command],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIMEOUT_S,
            check=False,
        )
        said += done.stderr
        if packages := list(directory.glob("*.deb")):
            return packages[0]
    raise IndexOutOfReachError(said[-2000:])


if __name__ == "__main__":
    print(unpack(sys.argv[1]))
