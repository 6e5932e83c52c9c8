"""How tools of others are installed: an index out of reach and a build that fails are not the same."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from tests.tools.installation import IndexOutOfReachError, InstallationError, install

pytestmark = pytest.mark.slow

#: Nobody listens at the discard port of loopback.
NOWHERE = {"PIP_INDEX_URL": "http://127.0.0.1:9/"}


def pinned(directory: Path, setup: str) -> Path:
    """The requirements file of a tool whose source distribution has this ``setup.py``."""
    archive = directory / "broken-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("broken-1.0/setup.py")
        info.size = len(setup)
        tar.addfile(info, io.BytesIO(setup.encode()))
    requirements = directory / "broken.txt"
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    requirements.write_text(f"broken==1.0 \\\n    --hash=sha256:{digest}\n")
    return requirements


def test_an_index_out_of_reach_is_told_from_everything_else(tmp_path: Path) -> None:
    requirements = pinned(tmp_path, "")
    with pytest.raises(IndexOutOfReachError, match="broken"):
        install(requirements, tmp_path / "tools", NOWHERE)


def test_a_build_that_fails_is_a_failure(tmp_path: Path) -> None:
    requirements = pinned(tmp_path, "raise SystemExit('this cannot be built')")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    with pytest.raises(InstallationError):
        install(requirements, tmp_path / "tools", offline)


def test_a_file_with_another_hash_is_a_failure(tmp_path: Path) -> None:
    requirements = pinned(tmp_path, "")
    requirements.write_text(f"broken==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    with pytest.raises(InstallationError, match="DO NOT MATCH"):
        install(requirements, tmp_path / "tools", offline)
