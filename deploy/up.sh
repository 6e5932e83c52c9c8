#!/usr/bin/env bash
# Bring the whole cluster of docker-compose.yml up on this machine, and show that it runs.
#   deploy/up.sh              build what is missing, up, wait until all are healthy, show
#   deploy/up.sh --build      the same, with our image built anew
#   deploy/up.sh --drill      then create a topic, kill the active controller, stop a broker, bring both back
#   deploy/up.sh --report     then a Spark master and two workers make the report of all logs: build/report.html
#   deploy/up.sh --down       end it; volumes stay (--down --volumes removes them)
# COMPOSE_PROFILES says what starts: secured (without it), plain, monitoring, analysis, or secured,kafka.
# COMPOSE_PROJECT_NAME: by this name its containers begin; another one is another cluster, which needs other ports.
# Where no image registry is reachable, run deploy/build-base.sh first (once, as root).
set -euo pipefail
cd "$(dirname "$0")"

PROJECT=${COMPOSE_PROJECT_NAME:-partition-controller}
LOCAL_BASE=partition-controller-base:bookworm
LOCAL_PROMETHEUS=partition-controller-prometheus:local
LOCAL_KAFKA=partition-controller-kafka:local
export IMAGE=${IMAGE:-partition-controller:local}
export COMPOSE_PROFILES=${COMPOSE_PROFILES:-secured}
export HTTP_1_PORT=${HTTP_1_PORT:-9191} HTTP_2_PORT=${HTTP_2_PORT:-9192} PROMETHEUS_PORT=${PROMETHEUS_PORT:-9090}

fail() { echo "up.sh: $*" >&2; exit 1; }
chosen() { [[ ",$COMPOSE_PROFILES," = *",$1,"* ]]; }
have() { docker image inspect "$1" >/dev/null 2>&1; }

for profile in ${COMPOSE_PROFILES//,/ }; do
    case $profile in
    secured | plain | monitoring | analysis | kafka) ;;
    *) fail "COMPOSE_PROFILES = $COMPOSE_PROFILES: there are secured, plain, monitoring, analysis and kafka" ;;
    esac
done
! chosen plain || [ "$COMPOSE_PROFILES" = plain ] || fail "COMPOSE_PROFILES = $COMPOSE_PROFILES: plain has the ports of the others"
[ "$COMPOSE_PROFILES" != kafka ] || fail "COMPOSE_PROFILES = kafka: say secured,kafka"
command -v curl >/dev/null && command -v python3 >/dev/null || fail "curl and python3 are needed"
docker info >/dev/null 2>&1 || fail "no Docker engine answers (docker info): install docker.io and start it"
if docker compose version >/dev/null 2>&1; then
    compose() { docker compose -p "$PROJECT" "$@"; }
elif command -v docker-compose >/dev/null; then
    compose() { docker-compose -p "$PROJECT" "$@"; }
else
    fail "neither 'docker compose' nor docker-compose is there: install docker-compose-plugin or docker-compose"
fi
have "$LOCAL_BASE" && export BASE=${BASE:-$LOCAL_BASE}
have "$LOCAL_PROMETHEUS" && export PROMETHEUS_IMAGE=${PROMETHEUS_IMAGE:-$LOCAL_PROMETHEUS}
have "$LOCAL_KAFKA" && export KAFKA_IMAGE=${KAFKA_IMAGE:-$LOCAL_KAFKA}
# What is likely wrong when an image was to be pulled and no local one is there.
hint() {
    have "$LOCAL_PROMETHEUS" || echo "; where no image registry can be reached, run deploy/build-base.sh first, once, as root"
    ! chosen kafka || have "${KAFKA_IMAGE:-apache/kafka:3.9.1}" ||
        echo "; an image of Kafka without a registry: deploy/build-base.sh --kafka, or KAFKA_IMAGE"
    ! chosen monitoring || have "${GRAFANA_IMAGE:-grafana/grafana:11.3.0}" ||
        echo "; Grafana's image must come from a registry (GRAFANA_IMAGE names it); without Grafana: COMPOSE_PROFILES=secured"
}

# What Dockerfile.dockerignore lets in, for engines without BuildKit too.
build() {
    local wheelhouse=()
    [ -d build/wheelhouse ] && wheelhouse=(deploy/build/wheelhouse)
    tar -C .. -c --exclude=__pycache__ LICENSE README.md broker_stub controller deploy/Dockerfile \
        deploy/health.py deploy/rules.toml deploy/zookeeper_entrypoint.py "${wheelhouse[@]}" proto pyproject.toml requirements-dev.txt requirements.txt |
        docker build ${BASE:+--build-arg BASE="$BASE"} -f deploy/Dockerfile -t "$IMAGE" - ||
        fail "no image was built$(hint)"
    # Without BuildKit the stage that only builds stays behind: more than a gigabyte.
    docker image prune --force --filter label=partition-controller.stage=build >/dev/null
}

# Every container running, and healthy where it has a health check; within 3 minutes.
wait_healthy() {
    local deadline=$((SECONDS + 180)) waiting
    # The one-shots that make certificates and report have ended.
    while :; do
        waiting=$(docker inspect -f '{{.Name}} {{if .State.Health}}{{.State.Health.Status}}{{else}}{{.State.Status}}{{end}}' \
            $(compose ps -q) | grep -Ev ' (healthy|running)$|certificates|report' || true)
        [ -n "$waiting" ] || return 0
        [ $SECONDS -lt $deadline ] || { compose logs --tail 20; fail "not healthy: $waiting"; }
        sleep 1
    done
}

# PromQL: the answer's series, one a line.
query() {
    curl -fsS "http://127.0.0.1:$PROMETHEUS_PORT/api/v1/query" --data-urlencode "query=$1" |
        python3 -c 'import json, sys
for series in json.load(sys.stdin)["data"]["result"]:
    metric = series["metric"]
    print("  ", metric.get("__name__", ""), metric.get("instance", ""), series["value"][1])'
}

# Whether Prometheus has asked both controllers; it does so every 5 s.
scraped() { [ -n "$(query 'count(up) == 2')" ]; }

# Python in a container that is on the cluster's network and outlives every step of the drill.
# ``zk``: who controllers and brokers are to ZooKeeper.
inside() {
    compose exec -T zookeeper-1 python3 -c "
from pathlib import Path
from proto.zookeeper_access import Client, ZooKeeperSettings
own = Path('/etc/partition-controller')
zk = Client(
    ZooKeeperSettings(
        zookeeper_ssl_client_enable=True,
        zookeeper_ssl_certificate=own / 'cluster.pem',
        zookeeper_ssl_key=own / 'cluster.key',
        zookeeper_ssl_ca=own / 'ca.pem',
        zookeeper_set_acl=True,
    ).zookeeper_access(),
    hosts='zookeeper-1:2181/cluster',
)
$1" "${@:2}"
}

# What whoever asks a controller needs here: the admin's certificate, copied out of a container.
own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
certificates() {
    local name from
    from=$(compose ps -q controller-1)
    for name in ca.pem admin.pem admin.key; do
        docker cp "$from:/etc/partition-controller/$name" "$own/$name" >/dev/null
    done
}
plain() { [ "$COMPOSE_PROFILES" = plain ]; }
# get PORT PATH, from a controller.
get() {
    if plain; then curl -sS "${@:3}" "http://127.0.0.1:$1$2"; else secured_get "$@"; fi
}
secured_get() { curl -sS "${@:3}" --cacert "$own/ca.pem" --cert "$own/admin.pem" --key "$own/admin.key" "https://127.0.0.1:$1$2"; }

name_of() { docker inspect -f '{{slice .Name 1}}' "$(compose ps -q "$1")"; }
show() {
    compose ps
    local port prefix=
    ! plain || prefix=plain-
    for port in $HTTP_1_PORT $HTTP_2_PORT; do
        echo "127.0.0.1:$port: $(get "$port" /leader), $(get "$port" /ready)"
    done
    echo "try: docker exec $(name_of ${prefix}controller-1) pctl cluster"
    if chosen kafka; then
        echo "Kafka's brokers, as the controllers see them: docker exec $(name_of kafka-controller-1) pctl cluster"
        compose exec -T kafka-controller-1 pctl cluster
    fi
    if plain; then
        echo "the console: http://127.0.0.1:$HTTP_1_PORT/ui"
        return
    fi
    echo "Prometheus, at http://127.0.0.1:$PROMETHEUS_PORT: up and active controllers"
    await "first scrapes" scraped
    query up
    query kafka_controller_kafkacontroller_activecontrollercount
}

leaders() {
    inside 'import json
zk.start()
print("   controller", json.loads(zk.get("/controller")[0])["brokerid"], "epoch", zk.get("/controller_epoch")[0].decode(),
      "brokers", sorted(zk.get_children("/brokers/ids")))
for p in sorted(zk.get_children("/brokers/topics/drill/partitions")):
    s = json.loads(zk.get(f"/brokers/topics/drill/partitions/{p}/state")[0])
    print("   drill-" + p, {k: s[k] for k in ("leader", "leader_epoch", "isr")})
zk.stop()'
}

# Wait up to 30 s for a command to succeed, and say how long it took.
await() {
    local what=$1 began=${EPOCHREALTIME/./}
    shift
    until "$@" >/dev/null 2>&1; do
        [ $((${EPOCHREALTIME/./} - began)) -lt 30000000 ] || fail "$what: not within 30 s"
        sleep 0.1
    done
    echo "   $what after $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
}

leads() { get "$1" /leader -f; }
# all_online PORT BROKERS: that controller sees so many brokers and at least one partition, all online.
all_online() {
    get "$1" /state -f | python3 -c 'import json, sys
term = json.load(sys.stdin)["term"]
sys.exit(not (term["partitions"] and not term["partitions_not_online"] and len(term["brokers"]) == int(sys.argv[1])))' "$2"
}

drill() {
    local active=1 port=$HTTP_1_PORT other=2 other_port=$HTTP_2_PORT
    leads "$port" >/dev/null 2>&1 || { active=2 other=1 port=$HTTP_2_PORT other_port=$HTTP_1_PORT; }
    # Found before the clock starts: compose takes its time.
    local active_id other_id broker_id
    active_id=$(compose ps -q "controller-$active") other_id=$(compose ps -q "controller-$other")
    broker_id=$(compose ps -q broker-1)
    echo "== topic drill by its znode: 6 partitions, 3 replicas; controller $active is active"
    inside 'import base64, json, uuid
zk.start()
if not zk.exists("/brokers/topics/drill"):
    replicas = {str(p): [(p + i) % 3 + 1 for i in range(3)] for p in range(6)}
    topic_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    topic = {"version": 3, "topic_id": topic_id, "partitions": replicas, "adding_replicas": {}, "removing_replicas": {}}
    zk.create("/brokers/topics/drill", json.dumps(topic).encode())
zk.stop()'
    await "all partitions online" all_online "$port" 3
    leaders
    echo "== SIGKILL to controller $active (session timeout 6 s)"
    docker kill "$active_id" >/dev/null
    await "controller $other leads" leads "$other_port"
    leaders
    echo "== SIGTERM to broker 1"
    docker stop -t 60 "$broker_id" >/dev/null &
    await "2 brokers left, all partitions online" all_online "$other_port" 2
    wait
    leaders
    echo "== both back, then SIGTERM to controller $other: it resigns"
    compose start broker-1 "controller-$active" >/dev/null 2>&1
    wait_healthy
    docker stop -t 60 "$other_id" >/dev/null &
    await "controller $active leads" leads "$port"
    wait
    compose start "controller-$other" >/dev/null 2>&1
    wait_healthy
    leaders
    echo "== end of the drill"
}

# Of what is in the logs now; the page is copied here.
report() {
    compose run --rm report
    mkdir -p ../build
    docker cp "$(compose ps -q spark-worker-1):/var/lib/partition-controller/report/report.html" ../build/report.html
    echo "the page is $(realpath ../build/report.html)"
}

case ${1:-} in
--down)
    shift
    export COMPOSE_PROFILES=secured,plain,monitoring,analysis,kafka
    compose down --timeout 60 "$@"
    exit
    ;;
"" | --build) ;;
--drill) [ "$COMPOSE_PROFILES" != plain ] || fail "the drill wants certificates: not with the profile plain" ;;
--report) [ "$COMPOSE_PROFILES" != plain ] && COMPOSE_PROFILES+=,analysis || fail "no report with the profile plain" ;;
*) fail "unknown argument $1; see the top of this file" ;;
esac

if [ "${1:-}" = --build ] || ! have "$IMAGE"; then build; fi
# The report that is asked for comes when all else is well.
scale=()
[ "${1:-}" = --report ] && scale=(--scale report=0)
compose up -d --no-build "${scale[@]}" || fail "not everything was started$(hint)"
wait_healthy
plain || certificates
if [ "${1:-}" = --drill ]; then drill; fi
show
if [ "${1:-}" = --report ]; then report; fi
