#!/usr/bin/env bash
# For machines that reach no image registry: makes with debootstrap what up.sh otherwise pulls.
#   partition-controller-base:bookworm         Debian with Python and Java 17
#   partition-controller-prometheus:local      Debian's Prometheus, called like prom/prometheus
#   deploy/build/wheelhouse                    the locked packages, so that `docker build` needs no network
# Needs root, debootstrap, a Docker engine, and Python of the base's version (3.11) with pip as PYTHON.
# Further arguments go to debootstrap, e.g. --keyring=FILE; MIRROR names another Debian mirror. RELEASE_SHA256: the only state
# of Debian's archive that is taken, by the checksum of its Release file, which has those of all packages in turn.
set -euo pipefail
cd "$(dirname "$0")/.."

SUITE=bookworm
PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
[ "$(id -u)" = 0 ] || { echo "build-base.sh: debootstrap needs root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "build-base.sh: install debootstrap" >&2; exit 1; }
docker info >/dev/null 2>&1 || {
    echo "build-base.sh: no Docker engine answers (docker info): install docker.io and start it" >&2
    exit 1
}
"$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "build-base.sh: $PYTHON is not Python 3.11, which the base has: its wheels would not fit; set PYTHON" >&2
    exit 1
}

scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT

# bootstrap NAME PACKAGES: a small Debian in $scratch/NAME, without what only a person at it would want.
bootstrap() {
    local root=$scratch/$1
    debootstrap --variant=minbase --include="$2" "${extra[@]}" "$SUITE" "$root" ${MIRROR:+"$MIRROR"} >"$scratch/$1.log" ||
        { tail -20 "$scratch/$1.log" >&2; exit 1; }
    local release
    release=$(cat "$root"/var/lib/apt/lists/*_Release | sha256sum | cut -d " " -f 1)
    echo "Debian's Release file: sha256 $release"
    [ "${RELEASE_SHA256:-$release}" = "$release" ] || {
        echo "build-base.sh: RELEASE_SHA256 = $RELEASE_SHA256: the mirror has another state of $SUITE" >&2
        exit 1
    }
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*
}
extra=("$@")

echo "in all some minutes, most of them silent"
echo "base image: Debian $SUITE, Python, Java 17"
bootstrap base python3,python3-venv,openjdk-17-jre-headless
tar -C "$scratch/base" -c . | docker import - "partition-controller-base:$SUITE"

echo "Prometheus image"
bootstrap prometheus prometheus
install -d -o 65534 -g 65534 "$scratch/prometheus/prometheus"
tar -C "$scratch/prometheus" -c . | docker import -c 'USER 65534:65534' -c 'WORKDIR /prometheus' \
    -c 'ENTRYPOINT ["/bin/prometheus"]' - partition-controller-prometheus:local

echo "wheelhouse"
rm -rf deploy/build/wheelhouse
awk '/^setuptools==/{on=1} on{print} on&&!/\\$/{exit}' requirements-dev.txt >"$scratch/setuptools.txt"
"$PYTHON" -m pip download --quiet --disable-pip-version-check --require-hashes \
    -r requirements.txt -r "$scratch/setuptools.txt" -d deploy/build/wheelhouse
du -sh deploy/build/wheelhouse
