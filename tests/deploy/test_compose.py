"""The compose file, the image and its scripts fit the programs and one another."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest
import yaml  # type: ignore[import-untyped]
from kazoo.exceptions import NoAuthError
from kazoo.handlers.threading import KazooTimeoutError

from broker_stub import settings as broker_settings
from controller.runtime import config
from controller.runtime.kafka.security.setup import access
from proto.security.access import Listener, Openness, access_of
from proto.security.authorization import Principal
from proto.security.grpc_channels import daemon_tls
from proto.zookeeper_access import OPEN_ACCESS, Client, ZooKeeperSettings
from tests.support.paths import ROOT
from tests.support.runtime.certificates import Authority
from tests.support.runtime.programs import BIN, run_to_end
from tests.tools.installation import REQUIREMENTS, IndexOutOfReachError, install

DEPLOY = ROOT / "deploy"
COMPOSE = (DEPLOY / "docker-compose.yml").read_text()
SERVICES: dict[str, Any] = yaml.load(COMPOSE, yaml.CSafeLoader)["services"]
#: They do their work and end.
ONCE = ("certificates", "report")
#: Where the image has it.
RULES = "/opt/partition-controller/deploy/rules.toml"


def block(name: str) -> str:
    """The text of one service or x- mapping: what is indented deeper, under its name."""
    match = re.search(rf"^( *){name}:[^\n]*\n((?:\1 +[^\n]*\n|\n)*)", COMPOSE, re.MULTILINE)
    assert match is not None, f"docker-compose.yml has no {name}"
    return match[2]


def environment(prefix: str, name: str) -> dict[str, str]:
    """The variables of a service with this prefix, where the files are that the image has."""
    given = SERVICES[name]["environment"]
    return {
        key: value.replace(RULES, str(DEPLOY / "rules.toml"))
        for key, value in given.items()
        if key.startswith(prefix)
    }


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("prefix", ["", "plain-"])
def test_controllers_get_settings_they_know(prefix: str, number: int) -> None:
    environ = environment("PARTITION_CONTROLLER_", f"{prefix}controller-{number}")
    loaded = config.load({}, None, environ)
    assert loaded.controller_id == number
    # It registers the address it listens on: that must be one that the others can reach.
    assert loaded.grpc_listen.startswith(f"{prefix}controller-{number}:")


@pytest.mark.parametrize("number", [1, 2])
def test_controllers_of_kafka_brokers_get_settings_they_know(number: int) -> None:
    loaded = config.load({}, None, environment("PARTITION_CONTROLLER_", f"kafka-controller-{number}"))
    assert (loaded.controller_id, loaded.kafka_takeover) == (9000 + number, "fallback")
    assert loaded.zookeeper.endswith("/kafka")
    for listen in (loaded.grpc_listen, loaded.kafka_listen):
        assert listen.startswith(f"kafka-controller-{number}:")


@pytest.mark.parametrize(
    ("name", "openness"),
    [
        ("controller-1", Openness.GUARDED),
        ("controller-2", Openness.GUARDED),
        # The listener of Kafka's protocol is plain, and its callers are nobody in particular.
        ("kafka-controller-1", Openness.BY_SETTING),
        ("kafka-controller-2", Openness.BY_SETTING),
        ("plain-controller-1", Openness.BY_SETTING),
        ("plain-controller-2", Openness.BY_SETTING),
    ],
)
def test_controllers_may_listen_where_they_do(name: str, openness: Openness) -> None:
    loaded = config.load({}, None, environment("PARTITION_CONTROLLER_", name))
    assert access(loaded, None).openness is openness


@pytest.mark.parametrize("number", [1, 2, 3])
def test_brokers_may_listen_where_they_do(number: int) -> None:
    loaded = broker_settings.load({}, environment("BROKER_STUB_", f"broker-{number}"))
    host, _ = loaded.listen
    found = access_of(loaded, [Listener("listen", host, loaded.tls_files is not None)])
    assert found.openness is Openness.GUARDED
    own, other = (Principal(f"CN=broker-{n}", "") for n in (number, number + 1))
    assert found.authorizer.speaks_for(own, number)
    assert not found.authorizer.speaks_for(other, number)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_kafka_brokers_are_those_that_the_controllers_lead(number: int) -> None:
    text = block(f"kafka-{number}")
    connect = re.search(r"&kafka-connect (\S+)", COMPOSE)
    assert connect is not None
    assert f"--override=zookeeper.connect={connect[1]}" in text
    assert f"--override=broker.id={number}" in text
    assert f"--override=listeners=PLAINTEXT://kafka-{number}:9092" in text


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("prefix", ["", "plain-"])
def test_brokers_get_settings_they_know(prefix: str, number: int) -> None:
    environ = environment("BROKER_STUB_", f"{prefix}broker-{number}")
    loaded = broker_settings.load({}, environ)
    assert (loaded.broker_id, loaded.advertised_host) == (number, f"{prefix}broker-{number}")
    servers = SERVICES[f"{prefix}controller-1"]["environment"]["PARTITION_CONTROLLER_ZOOKEEPER"]
    assert loaded.zookeeper == servers
    assert broker_settings.unknown_variables(environ) == []


def test_prometheus_scrapes_every_controller() -> None:
    targets = re.findall(r'"(controller-\d:\d+)"', (DEPLOY / "prometheus.yml").read_text())
    # Those of the profile kafka are scraped by whoever runs it.
    listening = re.findall(r"PARTITION_CONTROLLER_HTTP_LISTEN: (controller\S+)", COMPOSE)
    assert targets == listening == ["controller-1:9191", "controller-2:9191"]


def test_grafana_finds_its_dashboards_and_lets_nobody_change_them() -> None:
    service = SERVICES["grafana"]
    mounted = {source: target for source, target, _ in (v.split(":") for v in service["volumes"][:2])}
    provider = yaml.safe_load(
        (DEPLOY / "grafana/provisioning/dashboards/partition-controller.yml").read_text()
    )["providers"][0]
    assert mounted["./grafana/dashboards"] == provider["options"]["path"]
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    environ = service["environment"]
    assert environ["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert (environ["GF_AUTH_DISABLE_LOGIN_FORM"], environ["GF_AUTH_BASIC_ENABLED"]) == ("true", "false")
    assert environ["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert "<<: *hardened" in block("grafana")


@pytest.mark.slow
def test_every_certificate_that_is_named_is_made(tmp_path: Path) -> None:
    """By the command of the service that makes them; what Prometheus reads, its group may read."""
    folder = "/etc/partition-controller"
    script = SERVICES["certificates"]["command"][-1]
    script = script.replace("$$", "$").replace(folder, str(tmp_path))
    for _ in range(2):
        done = run_to_end(["sh", "-ec", script], tmp_path, {"PATH": f"{BIN}:{os.environ['PATH']}"})
        assert done.returncode == 0, done.stderr
    prometheus = (DEPLOY / "prometheus.yml").read_text()
    named = re.findall(rf"{folder}/([\w.-]+)", COMPOSE + prometheus)
    assert len(set(named)) == 1 + 2 * (4 + 3 + 3) + 4 + 2, (
        "authority; controllers, brokers, Prometheus, admin and cluster; what Java reads; Spark's secret and logging"
    )
    for name in named:
        mode = stat.S_IMODE((tmp_path / name).stat().st_mode)
        shared = name in prometheus or name == "cluster-both.pem"
        assert mode == (0o640 if shared else 0o600), name
    for number in (1, 2):
        environ = environment("PARTITION_CONTROLLER_", f"controller-{number}")
        settings = config.load({}, None, {k: v.replace(folder, str(tmp_path)) for k, v in environ.items()})
        assert daemon_tls(settings) is not None
        assert settings.https
    for number in (1, 2, 3):
        environ = environment("BROKER_STUB_", f"broker-{number}")
        loaded = broker_settings.load({}, {k: v.replace(folder, str(tmp_path)) for k, v in environ.items()})
        assert daemon_tls(loaded) is not None


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_hardened_and_waits_for_what_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["restart"] == ("no" if name in ONCE else "unless-stopped")
    assert ("healthcheck" in service) == (name not in (*ONCE, "prometheus", "grafana"))
    needed = service.get("depends_on") or {}
    for other, how in needed.items() if isinstance(needed, dict) else ():
        condition = "service_completed_successfully" if other in ONCE else "service_healthy"
        assert how == {"condition": condition}


def test_every_profile_has_what_its_services_need() -> None:
    """Each alone: another one need not be named beside it."""
    profiles = {name: set(service["profiles"]) for name, service in SERVICES.items()}
    assert set.union(*profiles.values()) == {"secured", "plain", "analysis", "monitoring", "kafka"}
    for name, service in SERVICES.items():
        for other in service.get("depends_on") or ():
            assert profiles[name] <= profiles[other], (name, other)
    assert profiles["grafana"] < profiles["prometheus"]
    assert "COMPOSE_PROFILES=secured\n" in (DEPLOY / ".env").read_text()


@pytest.mark.slow
def test_the_compose_specification_accepts_the_file(compose_spec: Path, tmp_path: Path) -> None:
    try:
        tool = install(REQUIREMENTS / "kubernetes-validate.txt")
    except IndexOutOfReachError as error:
        pytest.skip(f"the package index is out of reach, so jsonschema is not here: {error}")
    code = (
        "import json, sys, jsonschema; jsonschema.validate(*(json.load(open(name)) for name in sys.argv[1:]))"
    )
    given = tmp_path / "compose.json"

    def check(changed: Any) -> subprocess.CompletedProcess[str]:
        given.write_text(json.dumps(changed))
        return tool.run("python", "-c", code, str(given), str(compose_spec))

    whole = yaml.safe_load(COMPOSE)
    done = check(whole)
    assert done.returncode == 0, done.stderr[-2000:]
    whole["services"]["report"]["mem_limits"] = "2g"
    assert "mem_limits" in check(whole).stderr


def test_nothing_is_published_beyond_this_machine_and_nobody_is_root() -> None:
    assert re.findall(r'ports: \["(?!127\.0\.0\.1:)', COMPOSE) == [], "published beyond this machine"
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^USER 10001:10001$", dockerfile, re.MULTILINE)


def test_the_build_sends_the_same_files_with_and_without_buildkit() -> None:
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text()
    allowed = set(re.findall(r"^!(\S+)$", ignore, re.MULTILINE))
    script = (DEPLOY / "up.sh").read_text()
    tar = re.search(r"tar -C \.\. -c --exclude=__pycache__ (.*?) \|\n", script, re.DOTALL)
    assert tar is not None
    sent = set(tar[1].replace("\\\n", " ").split()) - {"deploy/Dockerfile", '"${wheelhouse[@]}"'}
    assert sent | {"deploy/build/wheelhouse"} == allowed
    assert all((ROOT / name).exists() for name in sent)
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for name in " ".join(copied).replace("wheelhous[e]", "wheelhouse").split():
        assert any(Path(name).is_relative_to(allowing) for allowing in allowed), f"{name} is not sent"


@pytest.mark.parametrize("script", ["up.sh", "build-base.sh", "install.sh"])
def test_scripts_parse_and_may_be_run(script: str) -> None:
    assert os.access(DEPLOY / script, os.X_OK)
    bash = shutil.which("bash")
    assert bash is not None, "the scripts need bash"
    subprocess.run([bash, "-n", DEPLOY / script], check=True)


#: Stand in for the engine and for what answers in the containers, and note what was asked of them.
ENGINE = """#!/bin/sh
echo "$COMPOSE_PROFILES: docker $*" >>"$ASKED"
case "$*" in
*"ps -q"*) echo 1234 ;;
inspect*) echo "/one healthy" ;;
esac
"""
CURL = """#!/bin/sh
echo "curl $*" >>"$ASKED"
echo '{"data": {"result": [{"metric": {}, "value": [0, "1"]}]}}'
"""


@pytest.fixture
def up(tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """up.sh with an engine that does nothing. Out: exit code, what it said, what it asked of the engine."""
    for name, text in (("docker", ENGINE), ("curl", CURL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "deploy").mkdir()
    shutil.copy(DEPLOY / "up.sh", tmp_path / "deploy")
    asked = tmp_path / "asked"

    def run(*arguments: str, **variables: str) -> tuple[int, str, str]:
        path = f"{tmp_path}:{os.environ['PATH']}"
        command = [str(tmp_path / "deploy" / "up.sh"), *arguments]
        done = run_to_end(command, tmp_path, {"PATH": path, "ASKED": str(asked), **variables})
        return done.returncode, done.stdout + done.stderr, asked.read_text() if asked.exists() else ""

    return run


@pytest.mark.slow
def test_up_starts_the_profile_that_is_named(up: Callable[..., tuple[int, str, str]]) -> None:
    code, said, asked = up()
    assert code == 0, said
    assert "\nsecured: docker compose -p partition-controller up -d --no-build\n" in asked
    assert "https://127.0.0.1:9191/ready" in asked
    code, said, asked = up(COMPOSE_PROFILES="plain")
    assert code == 0, said
    asked = asked[asked.index("plain: ") :]
    assert "http://127.0.0.1:9192/ready" in asked
    assert "https:" not in asked
    assert "docker cp" not in asked
    for argument, words in (
        ("--drill", "wants certificates"),
        ("--report", "no report"),
        ("--what", "unknown"),
    ):
        code, said, _ = up(argument, COMPOSE_PROFILES="plain")
        assert (code, words in said) == (1, True), said


@pytest.mark.slow
def test_up_makes_the_report_and_fetches_its_page(up: Callable[..., tuple[int, str, str]]) -> None:
    code, said, asked = up("--report")
    assert code == 0, said
    compose = "\nsecured,analysis: docker compose -p partition-controller"
    started, made = (
        asked.index(f"{compose} up -d --no-build --scale report=0\n"),
        asked.index(f"{compose} run --rm report\n"),
    )
    assert started < made < asked.index("/report/report.html ../build/report.html")


def program(name: str) -> ModuleType:
    """One that the image runs."""
    spec = importlib.util.spec_from_file_location(name, DEPLOY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def entrypoint() -> ModuleType:
    return program("zookeeper_entrypoint")


# --- health checks -------------------------------------------------------------------------------------------


class Page(BaseHTTPRequestHandler):
    """Ready, and nothing else: what is not asked for is refused."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/ready" else 503)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def page() -> Iterator[HTTPServer]:
    """A daemon's page on this machine; its socket may be wrapped for TLS before it is asked."""
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        serving = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def test_a_controller_is_healthy_that_could_lead(page: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    health = program("health")
    url = f"127.0.0.1:{page.server_port}"
    monkeypatch.setenv("PARTITION_CONTROLLER_HTTP_LISTEN", url)
    assert health.controller() is None
    assert "503" in health.http(f"http://{url}/live")
    monkeypatch.setattr(health.sys, "argv", ["health.py", "page", str(page.server_port)])
    assert "503" in health.main()
    monkeypatch.setattr(health.sys, "argv", ["health.py"])
    assert health.main() == health.__doc__


def test_a_controller_s_page_is_asked_as_its_settings_say(
    page: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("controller")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.cafile)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate, key)
    page.socket = context.wrap_socket(page.socket, server_side=True)
    health, prefix = program("health"), "PARTITION_CONTROLLER"
    monkeypatch.setenv(f"{prefix}_HTTP_LISTEN", f"127.0.0.1:{page.server_port}")
    for name, file in (("CA", authority.cafile), ("CERTIFICATE", certificate), ("KEY", key)):
        monkeypatch.setenv(f"{prefix}_SSL_{name}", str(file))
    assert health.controller() is None
    stranger = Authority(tmp_path / "other")
    monkeypatch.setenv(f"{prefix}_SSL_CA", str(stranger.cafile))
    assert "certificate verify failed" in health.controller()


def test_a_page_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    health = program("health")
    monkeypatch.setattr(health, "TIMEOUT_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "timed out" in health.http(f"http://127.0.0.1:{silent.getsockname()[1]}/")


@pytest.mark.parametrize("listen", ["0.0.0.0:9292", "[::]:9292"])
@pytest.mark.parametrize(
    ("code", "well"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, True),
        (grpc.StatusCode.UNAVAILABLE, False),
        (grpc.StatusCode.DEADLINE_EXCEEDED, False),
    ],
)
def test_a_broker_is_healthy_that_answers(
    code: grpc.StatusCode, well: bool, listen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, float]] = []

    class Answer(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return code

        def details(self) -> str:
            return "why"

    class Channel(AbstractContextManager[None]):
        def __init__(self, address: str) -> None:
            self.address = address

        def __exit__(self, *_: object) -> None: ...

        def unary_unary(self, _: str) -> Any:
            def call(_: bytes, timeout: float) -> None:
                asked.append((self.address, timeout))
                raise Answer

            return call

    monkeypatch.setattr(grpc, "insecure_channel", Channel)
    monkeypatch.setenv("BROKER_STUB_LISTEN", listen)
    monkeypatch.setenv("BROKER_STUB_ADVERTISED_HOST", "broker-1")
    health = program("health")
    assert health.broker() == (None if well else f"broker-1:9292: {code.name} why")
    assert asked == [("broker-1:9292", health.TIMEOUT_S)]
    for name in ("CA", "CERTIFICATE", "KEY"):
        (tmp_path / name).write_text(f"the {name}")
        monkeypatch.setenv(f"BROKER_STUB_SSL_{name}", str(tmp_path / name))
    shown: list[tuple[bytes, bytes, bytes]] = []
    monkeypatch.setattr(
        grpc, "ssl_channel_credentials", lambda ca, key, certificate: shown.append((ca, key, certificate))
    )
    monkeypatch.setattr(grpc, "secure_channel", lambda address, _: Channel(address))
    health.broker()
    assert shown == [(b"the CA", b"the KEY", b"the CERTIFICATE")]
    assert asked[1:] == asked[:1]


def test_the_archive_for_spark_has_every_source_and_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = program("spark_archive")
    monkeypatch.setattr(archive, "PACKAGES", ("proto/statelog",))
    archive.write(tmp_path)
    with zipfile.ZipFile(tmp_path / "partition-controller.zip") as made:
        sources = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "proto/statelog").glob("*.py"))
        assert made.namelist() == sources
        assert {entry.date_time for entry in made.infolist()} == {archive.TIME}
    assert (tmp_path / "report.py").read_bytes() == archive.JOB.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["partition-controller.zip", "report.py"]


# --- ZooKeeper's servers -------------------------------------------------------------------------------------


def test_the_ensemble_listens_on_all_interfaces(
    entrypoint: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(entrypoint.os, "execv", lambda _, command: ran.append(command))
    for name, value in environment("ZOO_", "zookeeper-2").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ZOO_DATA_DIR", str(tmp_path))
    entrypoint.main()
    assert ran[0][-2:] == [entrypoint.MAIN_CLASS, str(tmp_path / "zoo.cfg")]
    assert (tmp_path / "myid").read_text() == "2\n"
    configured = (tmp_path / "zoo.cfg").read_text().splitlines()
    assert configured[-3:] == [f"server.{n}=zookeeper-{n}:2888:3888" for n in (1, 2, 3)]
    assert {"quorumListenOnAllIPs=true", "sslQuorum=true", "secureClientPortAddress=0.0.0.0"} <= {*configured}
    assert "sslQuorumReloadCertFiles=true" in configured, (
        "renewed certificates let a server in that starts again"
    )
    assert "autopurge.purgeInterval=1" in configured, "snapshots are not kept for ever"
    assert f"-Djute.maxbuffer={entrypoint.JUTE_MAXBUFFER}" in ran[0]
    assert not [line for line in configured if line.startswith("clientPort")]


def test_a_plain_ensemble_names_its_ports_with_its_servers(entrypoint: ModuleType, tmp_path: Path) -> None:
    """Where one address is to be listened on, it is on that one only."""

    def lines(listen: str) -> list[str]:
        secured = entrypoint.security({})
        found: list[str] = entrypoint.zoo_cfg(tmp_path, ["a", "b", "c"], secured, listen).splitlines()
        assert not [line for line in found if line.startswith("clientPort")]
        return found

    assert lines("")[-4:] == [
        "quorumListenOnAllIPs=true",
        *(f"server.{n}={host}:2888:3888;0.0.0.0:2181" for n, host in enumerate("abc", 1)),
    ]
    assert "quorumListenOnAllIPs=true" not in lines("10.0.0.1")
    assert lines("10.0.0.1")[-1] == "server.3=c:2888:3888;10.0.0.1:2181"


@pytest.mark.parametrize(("listen", "host"), [("", "127.0.0.1"), ("10.0.0.1", "10.0.0.1")])
@pytest.mark.parametrize(("said", "code"), [("Mode: follower", 0), ("not currently serving requests", 1)])
def test_a_server_serves_that_says_in_which_mode(
    entrypoint: ModuleType, monkeypatch: pytest.MonkeyPatch, listen: str, host: str, said: str, code: int
) -> None:
    def asked(port: int, word: str, **given: Any) -> str:
        assert (port, word, given["host"]) == (2181, "srvr", host)
        return said

    monkeypatch.setattr(entrypoint, "four_letter_word", asked)
    monkeypatch.setattr(entrypoint.sys, "argv", ["zookeeper_entrypoint.py", "serving"])
    for name in ("ZOO_CERTIFICATE", "ZOO_CA", "ZOO_USERS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ZOO_LISTEN", listen)
    with pytest.raises(SystemExit) as ended:
        entrypoint.main()
    assert int(ended.value.code or 0) == code


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ZOO_MY_ID", "4", "ZOO_MY_ID = 4: must be 1 to 3, the number of ZOO_SERVERS"),
        ("ZOO_MY_ID", "0", "ZOO_MY_ID = 0: must be 1 to 3, the number of ZOO_SERVERS"),
        ("ZOO_MY_ID", "zookeeper-1", "ZOO_MY_ID = zookeeper-1: must be 1 to 3, the number of ZOO_SERVERS"),
        ("ZOO_HEAP_MB", "1048577", "ZOO_HEAP_MB = 1048577: must be 1 to 1048576, MiB of memory"),
        ("ZOO_HEAP_MB", "1g", "ZOO_HEAP_MB = 1g: must be 1 to 1048576, MiB of memory"),
    ],
)
def test_a_number_that_cannot_be_is_refused(
    entrypoint: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setattr(entrypoint.os, "execv", lambda *_: None)
    monkeypatch.setenv("ZOO_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("ZOO_SERVERS", "a b c")
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as refused:
        entrypoint.main()
    assert refused.value.code == said


def test_an_ensemble_with_tls_and_users_has_no_plain_port(
    entrypoint: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    users = tmp_path / "users"
    users.write_text("kafka=sec=ret\n")
    monkeypatch.setattr(entrypoint.os, "execv", lambda _, command: ran.append(command))
    for name, value in {
        "ZOO_SERVERS": "a b c",
        "ZOO_MY_ID": "1",
        "ZOO_DATA_DIR": str(tmp_path),
        "ZOO_CERTIFICATE": "/tls/zookeeper.pem",
        "ZOO_CA": "/tls/ca.pem",
        "ZOO_USERS_FILE": str(users),
        "ZOO_REQUIRED_SCHEMES": "sasl x509",
    }.items():
        monkeypatch.setenv(name, value)
    entrypoint.main()
    configured = (tmp_path / "zoo.cfg").read_text().splitlines()
    assert not [line for line in configured if line.startswith("clientPort")]
    assert configured[-3:] == [f"server.{n}={host}:2888:3888" for n, host in enumerate("abc", 1)]
    assert {"secureClientPort=2181", "ssl.clientAuth=need", "enforce.auth.schemes=sasl,x509"} <= {*configured}
    assert f"-Djava.security.auth.login.config={tmp_path / 'jaas.conf'}" in ran[0]
    assert (tmp_path / "jaas.conf").stat().st_mode & 0o077 == 0
    assert 'user_kafka="sec=ret"' in (tmp_path / "jaas.conf").read_text()
    for wrong in ('kafka="secret"', "kafka=", "=secret", "kafka"):
        users.write_text(f"ann=right\n{wrong}\n")
        with pytest.raises(SystemExit, match="line 2: must be NAME=PASSWORD"):
            entrypoint.main()
    for missing in ("ZOO_CA", "ZOO_CERTIFICATE"):
        with monkeypatch.context() as patch:
            patch.delenv(missing)
            with pytest.raises(SystemExit, match="ZOO_CERTIFICATE and ZOO_CA"):
                entrypoint.main()


def test_one_server_has_its_plain_port(entrypoint: ModuleType, tmp_path: Path) -> None:
    configured = entrypoint.zoo_cfg(tmp_path, ["localhost"], entrypoint.security({})).splitlines()
    assert {"clientPort=2181", "clientPortAddress=0.0.0.0"} <= {*configured}
    assert not [line for line in configured if line.startswith(("server.", "quorum"))]


def test_servers_bound_sessions_connections_and_files(entrypoint: ModuleType, tmp_path: Path) -> None:
    lines = entrypoint.zoo_cfg(tmp_path, ["localhost"], entrypoint.security({})).split()
    configured = dict(line.split("=", 1) for line in lines)
    tick_ms = int(configured["tickTime"])
    shortest_ms, longest_ms = (int(configured[f"{end}SessionTimeout"]) for end in ("min", "max"))
    assert shortest_ms == 2 * tick_ms, "ZooKeeper's own default"
    assert longest_ms == 120_000, "as the embedded servers"
    assert config.Settings().session_timeout_ms in range(shortest_ms, longest_ms)
    assert int(configured["initLimit"]) * tick_ms == 10_000, "a server may take 10 s to begin"
    assert int(configured["syncLimit"]) * tick_ms == 5_000, "and 5 s to answer"
    assert configured["maxClientCnxns"] == "60", "ZooKeeper's own default"
    assert configured["autopurge.snapRetainCount"] == "3", "ZooKeeper's own minimum"
    assert configured["admin.enableServer"] == "false"
    assert {*configured["4lw.commands.whitelist"].split(",")} == {"ruok", "srvr", "mntr", "isro"}


def test_one_server_is_what_the_entry_point_starts_if_nothing_is_said(
    entrypoint: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(entrypoint.os, "execv", lambda _, command: ran.append(command))
    for name in ("ZOO_SERVERS", "ZOO_MY_ID", "ZOO_HEAP_MB", "ZOO_LISTEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ZOO_DATA_DIR", str(tmp_path))
    entrypoint.main()
    assert (tmp_path / "myid").read_text() == "1\n"
    assert "server." not in (tmp_path / "zoo.cfg").read_text()
    assert {"-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExitOnOutOfMemoryError"} <= {*ran[0]}
    assert SERVICES["plain-zookeeper"]["mem_limit"] == "1g", "half of it is for the heap"


#: Addresses of this machine in place of the containers'.
HOSTS = ("127.26.5.1", "127.26.5.2", "127.26.5.3")


@pytest.fixture
def composed(entrypoint: ModuleType, tmp_path: Path) -> Iterator[Path]:
    """The three servers of the compose file, as it starts them; the folder of the certificates that it makes."""
    folder, script = tmp_path / "etc", SERVICES["certificates"]["command"][-1]
    folder.mkdir()
    script = script.replace("$$", "$").replace("/etc/partition-controller", str(folder))
    script = script.replace("--name cluster", " ".join(["--name cluster", *(f"--host {h}" for h in HOSTS)]))
    done = run_to_end(["sh", "-ec", script], tmp_path, {"PATH": f"{BIN}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    processes = []
    try:
        for number, host in enumerate(HOSTS, 1):
            given = environment("ZOO_", f"zookeeper-{number}")
            given = {k: v.replace("/etc/partition-controller", str(folder)) for k, v in given.items()}
            given |= {
                "ZOO_SERVERS": " ".join(HOSTS),
                "ZOO_LISTEN": host,
                "ZOO_DATA_DIR": str(tmp_path / f"zookeeper-{number}"),
                "ZOO_HEAP_MB": "128",
            }
            with (tmp_path / f"zookeeper-{number}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, DEPLOY / "zookeeper_entrypoint.py"],
                        env={**os.environ, **given},
                        stdout=log,
                        stderr=log,
                    )
                )
        deadline = time.monotonic() + 240
        while not entrypoint.serving(given):
            logs = "".join((tmp_path / f"zookeeper-{n}.log").read_text() for n in (1, 2, 3))
            assert time.monotonic() < deadline, logs[-5000:]
            time.sleep(0.2)
        check = [sys.executable, str(DEPLOY / "zookeeper_entrypoint.py"), "serving"]
        assert run_to_end(check, tmp_path, given).returncode == 0
        yield folder
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


@pytest.mark.long
@pytest.mark.slow
def test_the_composed_ensemble_takes_nobody_without_the_certificate(composed: Path) -> None:
    """Real servers, started by the entry point with the environment of the compose file."""
    connect = f"{','.join(f'{host}:2181' for host in HOSTS)}"
    settings = config.load(
        {},
        None,
        {
            key: value.replace("/etc/partition-controller", str(composed))
            for key, value in environment("PARTITION_CONTROLLER_", "controller-1").items()
        },
    )
    client = Client(settings.zookeeper_access(), hosts=connect)
    client.start(30)
    try:
        client.ensure_path("/cluster/brokers")
        (owner,) = [acl for acl in client.get_acls("/cluster/brokers")[0] if acl.id.scheme == "x509"]
        assert owner.id.id == "CN=cluster"
        client.ensure_path("/kafka")
    finally:
        client.stop()
        client.close()
    plain = Client(OPEN_ACCESS, hosts=connect)
    with pytest.raises(KazooTimeoutError):
        plain.start(3)
    plain.stop()
    plain.close()
    admin = ZooKeeperSettings(
        zookeeper_ssl_client_enable=True,
        zookeeper_ssl_certificate=composed / "admin.pem",
        zookeeper_ssl_key=composed / "admin.key",
        zookeeper_ssl_ca=composed / "ca.pem",
    )
    other = Client(admin.zookeeper_access(), hosts=connect)
    other.start(30)
    try:
        assert other.get_children("/cluster") == ["brokers"]
        with pytest.raises(NoAuthError):
            other.create("/cluster/brokers/ids")
        with pytest.raises(NoAuthError):
            other.delete("/cluster/brokers")
    finally:
        other.stop()
        other.close()
