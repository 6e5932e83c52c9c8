"""Install what a requirements file pins beside this Python, with its hashes, as ``pip install --require-hashes`` does.

pip compares every file of every project's page with what this machine can use: most of its processor time. uv spends a
tenth of that. PySpark has no wheel: pip builds and keeps one for all environments, at the same time. Where uv cannot
be had or does not find the index, pip installs what is missing.

    python deploy/install_requirements.py requirements-dev.txt
"""

from __future__ import annotations

import ast
import compileall
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
INSTALL = (*PIP, "install", "--quiet", "--require-hashes")
#: What uv calls pip's settings.
SETTINGS = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "cert": "SSL_CERT_FILE"}


def pinned(wanted: str, name: str) -> str:
    """The lines of one project."""
    return "".join(re.findall(rf"^{name}==.*\n(?:    .*\n)*", wanted, re.MULTILINE))


def settings_for_uv(listed: str) -> dict[str, str]:
    """In: what ``pip config list`` says. Out: environment variables."""
    found = {}
    for section in ("global", "install", ":env:"):
        for key, value in re.findall(rf"^{section}\.([\w-]+)=('.*'|\".*\")$", listed, re.MULTILINE):
            if key in SETTINGS:
                found[SETTINGS[key]] = str(ast.literal_eval(value))
    return found


def install(requirements: Path) -> int:
    wanted = requirements.read_text()
    with tempfile.TemporaryDirectory() as scratch:
        parts = {name: Path(scratch, f"{name}.txt") for name in ("uv", "pyspark", "rest")}
        parts["uv"].write_text(pinned(wanted, "uv"))
        parts["pyspark"].write_text(pinned(wanted, "pyspark"))
        parts["rest"].write_text(wanted.replace(pinned(wanted, "pyspark"), ""))
        spark = subprocess.Popen([*INSTALL, "--no-deps", "--no-compile", "-r", str(parts["pyspark"])])
        quick = subprocess.call([*INSTALL, "--no-deps", "-r", str(parts["uv"])]) == 0 and by_uv(parts["rest"])
        quick = spark.wait() == 0 and quick
    if quick:
        # As pip does; a file of another version of Python harms nobody.
        compileall.compile_dir(sysconfig.get_path("purelib"), maxlevels=20, quiet=2, workers=0)
        return 0
    return subprocess.call([*INSTALL, "-r", str(requirements)])


def by_uv(requirements: Path) -> bool:
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "install", "--quiet", "--system-certs", "--no-deps", "--require-hashes"]
    command += ["--python", sys.executable, "-r", str(requirements)]
    return subprocess.call(command, env={**settings_for_uv(listed), **os.environ}) == 0


if __name__ == "__main__":
    sys.exit(install(Path(sys.argv[1])))
