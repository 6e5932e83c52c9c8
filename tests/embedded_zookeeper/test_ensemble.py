"""The embedded ZooKeeper: alone and as an ensemble, restarted, and where this machine lacks something."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from kazoo.client import KazooClient

from controller.embedded_zookeeper import ensemble
from controller.embedded_zookeeper.ensemble import (
    EmbeddedZooKeeper,
    PortTakenFault,
    Security,
    ZooKeeperServer,
    find_java,
    four_letter_word,
)
from controller.errors import EnvironmentFault
from tests.support.ports import free_port
from tests.support.runtime.certificates import Authority
from tests.support.runtime.programs import BIN, program, run_to_end


def client(connect: str) -> KazooClient:
    made = KazooClient(connect)
    made.start(20)
    return made


def end(made: KazooClient) -> None:
    made.stop()
    made.close()


@pytest.mark.slow
def test_restarting_on_the_same_directory_keeps_the_data(tmp_path: Path) -> None:
    port = free_port()
    for round_ in range(2):
        with EmbeddedZooKeeper(tmp_path, port=port, heap_mb=256) as embedded:
            assert embedded.connect_string == f"127.0.0.1:{port}"
            assert four_letter_word(port, "ruok") == "imok"
            zk = client(embedded.connect_string)
            if round_ == 0:
                zk.create("/kept", b"data")
            assert zk.get("/kept")[0] == b"data"
            end(zk)
        assert four_letter_word(port, "ruok") == ""


@pytest.mark.slow
def test_an_ensemble_of_three_serves_and_survives_one(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path, servers=3, heap_mb=128) as embedded:
        modes = [four_letter_word(s.client_port, "srvr") for s in embedded.servers]
        assert sum("Mode: leader" in mode for mode in modes) == 1
        assert sum("Mode: follower" in mode for mode in modes) == 2
        zk = client(embedded.connect_string)
        zk.create("/x", b"1")
        embedded.servers[0].kill()
        embedded.servers[0].stop()
        end(zk)
        zk = client(embedded.connect_string)
        zk.set("/x", b"2")
        end(zk)
        embedded.servers[0].start()
        zk = client(f"127.0.0.1:{embedded.servers[0].client_port}")
        zk.sync("/x")
        assert zk.get("/x")[0] == b"2"
        end(zk)


#: Starts a server in a thread that ends, and stays.
STARTS = """
import sys, threading, time
from pathlib import Path
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
embedded = EmbeddedZooKeeper(Path(sys.argv[1]), port=int(sys.argv[2]), heap_mb=128)
starting = threading.Thread(target=embedded.start)
starting.start()
starting.join()
print(embedded.servers[0].process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True])
def test_the_server_ends_when_its_parent_is_killed(tmp_path: Path, stopped: bool) -> None:
    port = free_port()
    command = [sys.executable, "-c", STARTS, str(tmp_path), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            java = int(parent.stdout.readline())
            # The thread that started it is gone, its process is not.
            assert four_letter_word(port, "ruok") == "imok"
            if stopped:
                os.kill(java, signal.SIGSTOP)
        finally:
            parent.kill()
    deadline = time.monotonic() + 20
    while (left := listens(port)) and time.monotonic() < deadline:
        time.sleep(0.5)
    if left:
        os.killpg(java, signal.SIGKILL)
    assert not left


def listens(port: int) -> bool:
    """Whether somebody does there, though it be stopped."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("occupant", ["anybody", "another ZooKeeper"])
def test_an_occupied_port_is_said_and_nothing_is_left_running(
    tmp_path: Path, occupant: str, zookeeper_server: str
) -> None:
    """A ZooKeeper that serves there already must not be taken for ours; the others of an ensemble end, too."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = int(
            listening.getsockname()[1] if occupant == "anybody" else zookeeper_server.rsplit(":", 1)[1]
        )
        embedded = EmbeddedZooKeeper(tmp_path, port=port, heap_mb=128)
        with pytest.raises(EnvironmentFault, match=rf"port {port} .*in use"):
            embedded.start(20)
    assert all(server.process is None for server in embedded.servers)


@pytest.mark.slow
def test_a_drawn_port_that_somebody_took_is_drawn_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = ensemble.free_ports
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken = int(listening.getsockname()[1])
        draws = [[taken] * 3]
        monkeypatch.setattr(ensemble, "free_ports", lambda n: draws.pop() if draws else draw(n))
        with EmbeddedZooKeeper(tmp_path, heap_mb=128) as embedded:
            assert embedded.servers[0].client_port != taken
            assert embedded.servers[0].serving()


def test_last_words_name_the_cause_and_no_stack(tmp_path: Path) -> None:
    (server,) = EmbeddedZooKeeper(tmp_path).servers
    assert server.last_words() == ""
    server.data_dir.mkdir(exist_ok=True)
    (server.data_dir / "zookeeper.out").write_text("Error: no such class\n")
    trace = "\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)\n" * 50
    cause = "java.io.IOException: No space left on device\n"
    (server.data_dir / "zookeeper.log").write_text(
        "x\n" * 20_000 + f"ERROR SyncThread:0\n{cause}{trace}bye\n"
    )
    said = server.last_words().splitlines()
    assert (said[0], said[-3:]) == ("Error: no such class", ["ERROR SyncThread:0", cause.strip(), "bye"])
    assert len(said) == 13


@pytest.mark.slow
def test_last_words_are_of_the_last_process(tmp_path: Path) -> None:
    """Not those of one that ended for another reason."""
    (tmp_path / "zookeeper.out").write_text("Read-only file system\n")
    (tmp_path / "zookeeper.log").write_text("Address already in use\n")
    (tmp_path / "version-2").touch()
    with pytest.raises(EnvironmentFault, match=r"version-2.*\(Not a directory\)") as raised:
        EmbeddedZooKeeper(tmp_path, heap_mb=128).start(20)
    assert not re.search("Read-only|already in use|\\.\\.\\. 24 more", str(raised.value))


@pytest.mark.parametrize("count", [0, 2, 4, 7])
def test_only_odd_ensembles(tmp_path: Path, count: int) -> None:
    with pytest.raises(ValueError, match="1, 3 or 5"):
        EmbeddedZooKeeper(tmp_path, servers=count)


def fake_java(directory: Path, version: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024' >&2\n")
    java.chmod(0o755)
    return java


def test_missing_java_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFault, match="openjdk-17-jre-headless"):
        find_java()


def test_java_that_is_too_old_or_broken_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    good = fake_java(tmp_path / "good", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "absent"))
    monkeypatch.setenv("PATH", str(old.parent))
    with pytest.raises(EnvironmentFault, match="Java 17"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(good.parents[1]))
    assert find_java() == str(good)
    monkeypatch.setenv("JAVA_HOME", str(old.parents[1]))
    monkeypatch.setenv("PATH", str(good.parent))
    assert find_java() == str(good)
    old.write_text("#!/bin/sh\nexit 1\n")
    assert find_java() == str(good)


def test_a_look_at_a_server_trusts_its_authority_whatever_host_it_names(tmp_path: Path) -> None:
    """As it is asked on an address of this machine."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", hosts=("elsewhere.example",))
    own = tmp_path / "own.pem"
    own.write_bytes(certificate.read_bytes() + key.read_bytes())
    context = Security(certificate=own, ca=authority.cafile).probe_context()
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert Security().probe_context() is None


@pytest.mark.parametrize("force_sync", [False, True])
def test_a_server_is_told_how_safe_its_writes_are_how_short_sessions_may_be_and_not_to_pause_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force_sync: bool
) -> None:
    """As in ZooKeeper, a session lives for two ticks or longer."""
    monkeypatch.setattr(ensemble, "find_java", lambda: "java")
    monkeypatch.setattr(ensemble, "classpath", lambda: "jars")
    launched = list[list[str]]()
    monkeypatch.setattr(ensemble, "launch", lambda command, *_, **__: launched.append(command))
    server = ZooKeeperServer(free_port(), tmp_path, force_sync=force_sync, tick_ms=300)
    server.start()
    synced = f"-Dzookeeper.forceSync={'yes' if force_sync else 'no'}"
    assert {synced, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"} <= set(launched[0])
    written = (tmp_path / "zoo.cfg").read_text().splitlines()
    assert {"tickTime=300", "minSessionTimeout=600", f"clientPort={server.client_port}"} <= set(written)


def test_passwords_are_in_a_file_of_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble, "find_java", lambda: "java")
    monkeypatch.setattr(ensemble, "classpath", lambda: "jars")
    launched = list[list[str]]()
    monkeypatch.setattr(ensemble, "launch", lambda command, *_, **__: launched.append(command))
    ZooKeeperServer(free_port(), tmp_path, security=Security(users={"ann": "secret"})).start()
    file = tmp_path / "jaas.conf"
    assert f"-Djava.security.auth.login.config={file}" in launched[0]
    assert (file.stat().st_mode & 0o777, "secret" in file.read_text()) == (0o600, True)


def test_by_tls_no_port_is_without_it_and_who_must_log_in_has_to(tmp_path: Path) -> None:
    plain = Security(required=("sasl",)).lines(7, "h")
    assert {"clientPort=7", "enforce.auth.enabled=true", "enforce.auth.schemes=sasl"} <= set(plain)
    secured = Security(certificate=tmp_path, ca=tmp_path).lines(7, "h")
    assert "secureClientPort=7" in secured
    assert not [line for line in secured if line.startswith("clientPort")]


def test_a_port_in_use_is_not_taken_for_ours() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(PortTakenFault, match="is it in use"):
            ensemble._require_free(other.getsockname()[1])
    ensemble._require_free(free_port())


def test_an_ensemble_has_a_port_for_each_server(tmp_path: Path) -> None:
    for port in (0, 5000):
        made = EmbeddedZooKeeper(tmp_path, servers=3, port=port)
        ports = [server.client_port for server in made.servers]
        assert ports == [5000, 5001, 5002] if port else len(set(ports)) == 3
        assert len({server.peers for server in made.servers}) == 1


@pytest.mark.parametrize(("port", "taken", "draws"), [(0, 1, 2), (0, 99, ensemble.PORT_DRAWS), (5000, 99, 1)])
def test_a_port_that_somebody_takes_is_drawn_anew_some_times_unless_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int, taken: int, draws: int
) -> None:
    made = EmbeddedZooKeeper(tmp_path, port=port)
    tried = list[int]()

    def start(_: float) -> None:
        tried.append(made.servers[0].client_port)
        if len(tried) <= taken:
            raise PortTakenFault("taken")

    monkeypatch.setattr(made, "_start", start)
    if taken < draws:
        made.start()
    else:
        with pytest.raises(PortTakenFault):
            made.start()
    assert len(tried) == draws


def test_a_server_that_ended_is_not_waited_for_and_the_others_end_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Server:
        client_port, stopped = 7, 0

        def start(self) -> None: ...

        def serving(self) -> bool:
            return False

        def running(self) -> bool:
            return False

        def last_words(self) -> str:
            return "no space"

        def stop(self) -> None:
            self.stopped += 1

    def sleep(_: float) -> None:
        raise AssertionError("it is waited for")

    made, servers = EmbeddedZooKeeper(tmp_path, servers=3), [Server(), Server(), Server()]
    made.servers = servers  # type: ignore[assignment]
    monkeypatch.setattr(ensemble, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=sleep))
    with pytest.raises(EnvironmentFault, match="no space"):
        made.start()
    assert [server.stopped for server in servers] == [1, 1, 1]


def test_a_server_that_heeds_nothing_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        server = ZooKeeperServer(1, tmp_path)
        server.process = process
        server.stop(timeout_s=0.1)
        assert process.returncode == -signal.SIGKILL


def test_a_pyspark_without_the_jars_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(Path(jar).exists() for jar in ensemble.classpath().split(os.pathsep))
    (tmp_path / "pyspark" / "jars").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").write_text("")

    class Spec:
        submodule_search_locations = (str(tmp_path / "pyspark"),)

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: Spec)
    with pytest.raises(EnvironmentFault, match=r"holds no zookeeper-\*.jar"):
        ensemble.classpath()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(EnvironmentFault, match="pyspark is not installed"):
        ensemble.classpath()


# --- the command -------------------------------------------------------------------------------------------


def command(*arguments: str) -> list[str]:
    return [str(BIN / "partition-controller"), "zookeeper", *arguments]


@pytest.mark.slow
def test_the_command_serves_until_sigterm(tmp_path: Path) -> None:
    with program(command("--port=0", "--data-dir=data"), tmp_path) as running:
        running.until(lambda: "ZooKeeper is serving at 127.0.0.1:" in running.said())
        port = int(running.said().rsplit(":", 1)[1])
        zk = client(f"127.0.0.1:{port}")
        zk.create("/x", b"")
        end(zk)
        assert running.terminate() == 0
        assert four_letter_word(port, "ruok") == ""
    assert (tmp_path / "data" / "zoo.cfg").exists()


@pytest.mark.slow
def test_the_command_says_how_a_server_ended_and_why(tmp_path: Path) -> None:
    with program(command("--port=0", "--data-dir=data"), tmp_path) as running:
        running.until(lambda: "ZooKeeper is serving at 127.0.0.1:" in running.said())
        pid = running.process.pid
        (java,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        with (tmp_path / "data" / "zookeeper.out").open("a") as out:
            out.write("java.io.IOException: No space left on device\n")
        os.kill(int(java), signal.SIGKILL)
        assert running.process.wait(20) == 1
        for part in ("ended unexpectedly with -9", "No space left on device", "see data"):
            assert part in running.said()


@pytest.mark.slow
def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        done = run_to_end(command(f"--port={port}"), tmp_path)
    assert done.returncode == 1
    assert f"port {port}" in done.stderr
    assert "Traceback" not in done.stderr
    done = run_to_end(command("--port=0"), tmp_path, {"PATH": str(tmp_path), "JAVA_HOME": ""})
    assert done.returncode == 1
    assert "openjdk-17-jre-headless" in done.stderr
    assert run_to_end(command("--servers=2"), tmp_path).returncode == 2
