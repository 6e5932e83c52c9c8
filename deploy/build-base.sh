#!/usr/bin/env bash
# For machines that reach no image registry: makes with debootstrap what up.sh otherwise pulls.
#   partition-controller-base:bookworm         Debian with Python and Java 17
#   partition-controller-prometheus:local      Debian's Prometheus, called like prom/prometheus
#   deploy/build/wheelhouse                    the locked packages, so that `docker build` needs no network
#   partition-controller-kafka:local           only with --kafka: Kafka 3.9.1, called like apache/kafka; its jars come by Maven
# Needs root, debootstrap, a Docker engine, and Python of the base's version (3.11) with pip as PYTHON.
# Further arguments go to debootstrap, e.g. --keyring=FILE; MIRROR names another Debian mirror. RELEASE_SHA256: the only state
# of Debian's archive that is taken, by the checksum of its Release file, which has those of all packages in turn.
set -euo pipefail
cd "$(dirname "$0")/.."

SUITE=bookworm
BASE=partition-controller-base:$SUITE
KAFKA=3.9.1
PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
fail() { echo "build-base.sh: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "debootstrap needs root"
command -v debootstrap >/dev/null || fail "install debootstrap"
docker info >/dev/null 2>&1 || fail "no Docker engine answers (docker info): install docker.io and start it"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    fail "$PYTHON is not Python 3.11, which the base has: its wheels would not fit; set PYTHON"
kafka_jars() { "$PYTHON" -m controller.embedded_kafka "$KAFKA" | sed 's/^[^:]*: //'; }
if [ "${1:-}" = --kafka ]; then
    shift
    jars=$(kafka_jars) || fail "no jars of Kafka $KAFKA"
fi
extra=("$@")

scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT

# debian NAME PACKAGES [OPTION]: by debootstrap in $scratch/NAME.
debian() {
    local root=$scratch/$1 tries=3 release
    mkdir -p "$scratch/packages"
    until debootstrap --variant=minbase --include="$2" --cache-dir="$scratch/packages" ${3:+"$3"} "${extra[@]}" \
        "$SUITE" "$root" ${MIRROR:+"$MIRROR"} >"$scratch/$1.log" 2>&1; do
        grep -E '^[EW]:' "$scratch/$1.log" >&2 || tail -20 "$scratch/$1.log" >&2
        [ $((tries -= 1)) -gt 0 ] || fail "no Debian was made: is ${MIRROR:-the mirror} within reach?"
        echo "again: a mirror may fail for a moment; the packages that came are kept" >&2
        rm -rf --one-file-system "$root"
    done
    release=$(cat "$root"/var/lib/apt/lists/*_Release | sha256sum | cut -d " " -f 1)
    echo "Debian's Release file: sha256 $release"
    [ "${RELEASE_SHA256:-$release}" = "$release" ] ||
        fail "RELEASE_SHA256 = $RELEASE_SHA256: the mirror has another state of $SUITE"
}

echo "in all some minutes, most of them silent"
echo "base image: Debian $SUITE, Python, Java 17"
debian base python3,python3-venv,openjdk-17-jre-headless
# Without what only a person at it would want.
root=$scratch/base
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* "$root"/usr/share/{doc,man,locale,info,lintian}/* \
    "$root"/usr/lib/jvm/*/lib/ct.sym
tar -C "$root" -c . | docker import - "$BASE"

echo "Prometheus image"
# Only its own files, its pages' scripts and the C library: not a whole Debian.
debian prometheus prometheus --download-only
root=$scratch/prometheus-files
install -d -o 65534 -g 65534 "$root" "$root/prometheus"
for name in prometheus libc6 fonts-glyphicons-halflings 'libjs-*'; do
    for package in "$scratch"/prometheus/var/cache/apt/archives/${name}_*.deb; do dpkg-deb -x "$package" "$root"; done
done
rm -rf "$root"/usr/share/{doc,man,locale} "$root"/usr/bin/promtool "$root"/usr/share/javascript/moment-timezone/data
tar -C "$root" -c . | docker import -c 'USER 65534:65534' -c 'WORKDIR /prometheus' \
    -c 'ENTRYPOINT ["/usr/bin/prometheus"]' - partition-controller-prometheus:local

echo "wheelhouse"
rm -rf deploy/build/wheelhouse
awk '/^setuptools==/{on=1} on{print} on&&!/\\$/{exit}' requirements-dev.txt >"$scratch/setuptools.txt"
"$PYTHON" -m pip download --quiet --disable-pip-version-check --require-hashes \
    -r requirements.txt -r "$scratch/setuptools.txt" -d deploy/build/wheelhouse
du -sh deploy/build/wheelhouse

[ -n "${jars:-}" ] || exit 0
echo "Kafka image"
root=$scratch/kafka
mkdir -p "$root/bin" "$root/config" "$root/libs"
cp "$jars"/*.jar "$root/libs"
# As much of Kafka's own script as the compose file calls; options override the file of settings.
cat >"$root/bin/kafka-server-start.sh" <<'SCRIPT'
#!/bin/sh
exec java ${KAFKA_HEAP_OPTS:-} -XX:+ExitOnOutOfMemoryError -Dlog4j.configuration=file:/opt/kafka/config/log4j.properties \
    -cp '/opt/kafka/libs/*' kafka.Kafka "$@"
SCRIPT
chmod 0755 "$root/bin/kafka-server-start.sh"
: >"$root/config/server.properties"
cat >"$root/config/log4j.properties" <<'LOG4J'
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
LOG4J
cat >"$scratch/Dockerfile" <<DOCKERFILE
FROM $BASE
RUN useradd --uid 1000 --no-create-home --shell /usr/sbin/nologin appuser && install -d -o 1000 -g 1000 /var/lib/kafka/data
COPY kafka /opt/kafka
USER 1000:1000
DOCKERFILE
tar -C "$scratch" -c Dockerfile kafka | docker build --quiet -t partition-controller-kafka:local -
