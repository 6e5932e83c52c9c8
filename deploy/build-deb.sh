#!/usr/bin/env bash
# Build a Debian package of the programs, their Python packages (without PySpark), units and configuration:
#   deploy/build-deb.sh DIRECTORY          writes DIRECTORY/partition-controller_VERSION_ARCHITECTURE.deb
# Needs dpkg-deb, and Python 3.11 with pip and setuptools as PYTHON (default: .venv's, made by `make setup`).
set -euo pipefail
out=$(realpath "${1:?where to}")
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-.venv/bin/python}
VERSION=${VERSION:-$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)}
ARCHITECTURE=$(dpkg --print-architecture)
"$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "build-deb.sh: $PYTHON is not Python 3.11, which the package runs on: set PYTHON" >&2
    exit 1
}

scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT
root=$scratch/root target=$scratch/root/opt/partition-controller source=$scratch/source
mkdir -m 0755 -p "$root/DEBIAN" "$target/bin" "$root/usr/bin" "$source" "$out"

# Each requirement with its hashes, but for those of reports alone: 640 MB.
awk '/^[a-zA-Z]/{on = !/^(pyspark|py4j|pyarrow)==/} on' requirements.txt >"$scratch/requirements.txt"
cp -R LICENSE README.md broker_stub controller proto pyproject.toml "$source"
# The programs that packages bring are not ours, and pip warns when it finds some.
pip() {
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-build-isolation --target "$target/lib" "$@"
    rm -rf "$target/lib/bin"
}
pip --require-hashes -r "$scratch/requirements.txt"
pip "$source"

# program NAME MODULE: our own starter, since pip's would name this machine's Python.
program() {
    cat >"$target/bin/$1" <<PROGRAM
#!/usr/bin/python3 -sP
import sys

sys.path.insert(0, "/opt/partition-controller/lib")

from $2 import main

sys.exit(main())
PROGRAM
    chmod 0755 "$target/bin/$1"
    ln -s "/opt/partition-controller/bin/$1" "$root/usr/bin/$1"
}
program partition-controller controller.cli.main
program pctl controller.cli.pctl.main
program broker-stub broker_stub.cli

# A page for each command of pctl and partition-controller, and one for broker-stub.
man=$root/usr/share/man/man1
own() { PYTHONPATH=$source "$PYTHON" -c "import sys; sys.argv[0] = '$1'; from $2 import main; main()" "${@:3}"; }
own pctl controller.cli.pctl.main man "$man" >/dev/null
{
    echo ".TH BROKER-STUB 1 \"\" \"partition-controller $VERSION\""
    printf '.SH NAME\nbroker-stub \\- a broker of Partition Controller\n.SH USAGE\n.nf\n'
    own broker-stub broker_stub.cli --help | sed -e 's/\\/\\\\/g' -e "s/^[.']/\\\\\\&&/"
    printf '.fi\n.SH SEE ALSO\n/opt/partition-controller/docs\n'
} >"$man/broker-stub.1"
gzip -9n "$man"/*.1

install -D -m 0644 -t "$target/docs" docs/deploy.md docs/operations.md docs/runbooks.md
install -D -m 0644 -t "$root/lib/systemd/system" deploy/systemd/partition-controller.service deploy/systemd/broker-stub@.service
install -D -m 0644 deploy/systemd/partition-controller.sysusers "$root/usr/lib/sysusers.d/partition-controller.conf"
install -D -m 0644 deploy/systemd/controller.toml "$root/etc/partition-controller/controller.toml"
install -D -m 0644 LICENSE "$root/usr/share/doc/partition-controller/copyright"
echo /etc/partition-controller/controller.toml >"$root/DEBIAN/conffiles"
install -m 0755 -t "$root/DEBIAN" deploy/debian/{postinst,prerm,postrm}
sed -e "s/@VERSION@/$VERSION/" -e "s/@ARCHITECTURE@/$ARCHITECTURE/" \
    -e "s/@SIZE@/$(du -sk --exclude=DEBIAN "$root" | cut -f1)/" deploy/debian/control >"$root/DEBIAN/control"
dpkg-deb --root-owner-group -Zgzip -z6 --build "$root" "$out/partition-controller_${VERSION}_$ARCHITECTURE.deb"
