#!/usr/bin/env bash
# Install, or upgrade, on this machine for systemd; see docs/deploy.md. Needs root, Python 3.11+ with venv, and Java
# 17+ for the ZooKeeper unit. Starts and restarts nothing; keeps what is in /etc/partition-controller.
# pip's own variables apply, e.g. PIP_NO_INDEX=1 PIP_FIND_LINKS=... for a machine without a package index.
set -euo pipefail
cd "$(dirname "$0")/.."

TARGET=/opt/partition-controller
CONFIG=/etc/partition-controller
PYTHON=${PYTHON:-python3}

[ "$(id -u)" = 0 ] || { echo "install.sh: run it as root" >&2; exit 1; }
[ -d /run/systemd/system ] || { echo "install.sh: systemd does not run here (no /run/systemd/system)" >&2; exit 1; }
"$PYTHON" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' || {
    echo "install.sh: $PYTHON must be Python 3.11+ with venv (Debian, Ubuntu: python3-venv)" >&2
    exit 1
}
# The services have users of their own and see no home (ProtectHome=yes): the interpreter must not be in one.
"$PYTHON" -c 'import os, sys
for path in map(os.path.realpath, (sys._base_executable, sys.base_prefix)):
    if path.startswith(("/home/", "/root/", "/run/user/")):
        sys.exit(f"install.sh: the services cannot read {path}: name another Python, e.g. PYTHON=/usr/bin/python3")'

# The sources are copied: a build leaves files beside them.
source=$(mktemp -d)
trap 'rm -rf --one-file-system "$source"' EXIT
cp -R LICENSE README.md broker_stub controller proto pyproject.toml "$source"
awk '/^setuptools==/{on=1} on{print} on&&!/\\$/{exit}' requirements-dev.txt >"$source/setuptools.txt"

"$PYTHON" -m venv "$TARGET"
"$TARGET/bin/pip" install --quiet --disable-pip-version-check --require-hashes \
    -r requirements.txt -r "$source/setuptools.txt"
"$TARGET/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall "$source"
install -D -m 0644 -t "$TARGET/docs" docs/deploy.md docs/operations.md docs/runbooks.md

install -D -m 0644 deploy/systemd/partition-controller.sysusers /usr/lib/sysusers.d/partition-controller.conf
systemd-sysusers /usr/lib/sysusers.d/partition-controller.conf
install -D -m 0644 -t /etc/systemd/system deploy/systemd/*.service
install -d -m 0755 "$CONFIG"
[ -e "$CONFIG/controller.toml" ] || install -m 0644 deploy/systemd/controller.toml "$CONFIG/controller.toml"
systemctl daemon-reload

# As the service will: a file that only root can read stops it here, not at the start.
runuser -u partition-controller -- "$TARGET/bin/partition-controller" check-config --config "$CONFIG/controller.toml"
echo "installed; next: systemctl enable --now partition-controller-zookeeper partition-controller broker-stub@1"
