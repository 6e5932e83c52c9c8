"""A real ZooKeeper server or ensemble from the jars that PySpark ships. Only Java 17 has to be installed."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from controller.child_processes import launch, release
from controller.errors import EnvironmentFault

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JAR_PATTERNS = (
    "zookeeper-*.jar",
    "netty-*.jar",
    "slf4j-api-*.jar",
    "log4j-*.jar",
    "snappy-java-*.jar",
    "metrics-core-*.jar",
    "commons-cli-*.jar",
    "commons-io-*.jar",
)
#: JAAS logs in with this class for SASL DIGEST-MD5.
LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
JAVA_VERSION_MIN = 17
#: jute.maxbuffer as Kafka's own client sets it (reference, section 11.3), bytes.
JUTE_MAXBUFFER = 4 * 1024 * 1024
#: As Kafka starts it. A parallel collector stops it for seconds once it has a million partitions.
COLLECTOR = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
LOOPBACK = "127.0.0.1"
#: Connections of one address: ZooKeeper's own default of 60 is for one client machine, and here all clients share one.
CONNECTIONS_MAX = 1000
#: How often free ports are chosen when another process takes one before the server binds it.
PORT_DRAWS = 3
#: What Java says of such a port.
_TAKEN = "Address already in use"
#: Lines of a stack begin so.
_STACK = ("\tat ", "\t... ")

_LOG4J2 = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${sys:pc.zk.log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %-5p %c{1} - %m%n
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


def find_java() -> str:
    """Path of a Java launcher of version 17 or newer.

    Raises EnvironmentFault naming the package to install.
    """
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    if found := shutil.which("java"):
        candidates.append(found)
    hint = "install Java 17 or newer (Debian, Ubuntu: openjdk-17-jre-headless)"
    for java in candidates:
        try:
            answer = subprocess.run(
                [java, "-version"], capture_output=True, text=True, timeout=30, check=True
            )
        except (OSError, subprocess.SubprocessError):
            continue
        match = re.search(r'version "(\d+)', answer.stderr)
        if match and int(match.group(1)) >= JAVA_VERSION_MIN:
            return java
    raise EnvironmentFault(f"no Java {JAVA_VERSION_MIN}+ found in JAVA_HOME or PATH: {hint}")


def classpath() -> str:
    """The class path of a ZooKeeper server, from PySpark's jars directory.

    Raises EnvironmentFault when PySpark or one of the jars is missing.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentFault("pyspark is not installed: its jars directory holds the ZooKeeper server")
    jars = Path(next(iter(spec.submodule_search_locations))) / "jars"
    paths: list[str] = []
    for pattern in JAR_PATTERNS:
        found = sorted(jars.glob(pattern))
        if not found:
            raise EnvironmentFault(f"{jars} holds no {pattern}: this PySpark does not ship ZooKeeper")
        paths.extend(str(jar) for jar in found)
    return os.pathsep.join(paths)


def free_ports(count: int) -> list[int]:
    """Different TCP ports that were free on loopback a moment ago."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


class PortTakenFault(EnvironmentFault):
    """Another process has a port."""


def _require_free(port: int) -> None:
    """Raise PortTakenFault if the port is in use: a ZooKeeper that listens there would be mistaken for this one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            raise PortTakenFault(f"port {port} of 127.0.0.1 cannot be used, is it in use? {error}") from None


def four_letter_word(
    port: int, word: str, host: str = LOOPBACK, context: ssl.SSLContext | None = None
) -> str:
    """A server's response to ``ruok``, ``srvr``, ...; empty when there is none. ``context``: for TLS."""
    try:
        with ExitStack() as stack:
            conn = stack.enter_context(socket.create_connection((host, port), timeout=2.0))
            if context is not None:
                conn = stack.enter_context(context.wrap_socket(conn, server_hostname=host))
            conn.sendall(word.encode())
            chunks = []
            while chunk := conn.recv(4096):
                chunks.append(chunk)
            return b"".join(chunks).decode(errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True)
class Security:
    """``certificate``: PEM file with a server's certificate and its key (PKCS 8), ``ca``: with the authorities of the
    clients' certificates, which they must have; both or none: then there is no TLS. ``users``: passwords by name, for
    SASL DIGEST-MD5; ``required``: schemes (``sasl``, ``x509``, ``digest``) by one of which each session must log in.
    """

    certificate: Path | None = None
    ca: Path | None = None
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    required: tuple[str, ...] = ()

    @property
    def tls(self) -> bool:
        return self.certificate is not None

    def lines(self, port: int, host: str) -> list[str]:
        """The lines of the server's configuration file."""
        lines = [f"clientPort={port}", f"clientPortAddress={host}"]
        if self.tls:
            lines = [
                f"secureClientPort={port}",
                f"secureClientPortAddress={host}",
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                f"ssl.keyStore.location={self.certificate}",
                "ssl.keyStore.type=PEM",
                f"ssl.trustStore.location={self.ca}",
                "ssl.trustStore.type=PEM",
                "ssl.clientAuth=need",
                "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            ]
        if self.users:
            lines.append("authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider")
        if self.required:
            lines += ["enforce.auth.enabled=true", f"enforce.auth.schemes={','.join(self.required)}"]
        return lines

    def jaas(self) -> str:
        """The file that tells the server who may log in; empty: nobody may."""
        if not self.users:
            return ""
        users = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
        return f"Server {{\n  {LOGIN_MODULE} required {users};\n}};\n"

    def probe_context(self) -> ssl.SSLContext | None:
        """For this machine's own look at a server: with its own certificate, whatever host that names."""
        if self.certificate is None:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        context.check_hostname = False
        context.load_cert_chain(self.certificate)
        return context


@dataclass
class ZooKeeperServer:
    """One server process. ``data_dir`` holds its configuration, log, snapshots and transactions.

    ``launcher`` precedes its command line, such as a program that enters the network namespace of ``host``.
    """

    client_port: int
    data_dir: Path
    server_id: int = 1
    #: ``server.N=`` lines of an ensemble; empty for a single server.
    peers: tuple[str, ...] = ()
    #: Whether writes survive a power cut; they survive the end of the process either way.
    force_sync: bool = True
    tick_ms: int = 500
    heap_mb: int = 1024
    host: str = LOOPBACK
    launcher: tuple[str, ...] = ()
    security: Security = field(default_factory=Security)
    #: ZooKeeper counts connections by client address; here all clients have the same.
    connections_max: int = CONNECTIONS_MAX
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    #: Sizes of its output and of its log when it was started: what is in them is of former processes.
    _said_before: dict[Path, int] = field(default_factory=dict, repr=False)

    def start(self) -> None:
        """Write the configuration and launch. Raises EnvironmentFault without Java, jars or a free port."""
        if self.host == LOOPBACK:
            _require_free(self.client_port)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        (self.data_dir / "myid").write_text(f"{self.server_id}\n")
        config = [
            f"tickTime={self.tick_ms}",
            f"dataDir={self.data_dir}",
            *self.security.lines(self.client_port, self.host),
            "initLimit=20",
            "syncLimit=10",
            f"minSessionTimeout={2 * self.tick_ms}",
            "maxSessionTimeout=120000",
            f"maxClientCnxns={self.connections_max}",
            "admin.enableServer=false",
            "4lw.commands.whitelist=ruok,srvr,mntr,cons,isro",
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
            *self.peers,
        ]
        config_path = self.data_dir / "zoo.cfg"
        config_path.write_text("\n".join(config) + "\n")
        log4j_path = self.data_dir / "log4j2.properties"
        log4j_path.write_text(_LOG4J2)
        login: list[str] = []
        if jaas := self.security.jaas():
            jaas_path = self.data_dir / "jaas.conf"
            jaas_path.touch(mode=0o600)
            jaas_path.write_text(jaas)
            login = [f"-Djava.security.auth.login.config={jaas_path}"]
        command = [
            find_java(),
            f"-Xmx{self.heap_mb}m",
            *COLLECTOR,
            f"-Djute.maxbuffer={JUTE_MAXBUFFER}",
            f"-Dlog4j2.configurationFile={log4j_path}",
            f"-Dzookeeper.forceSync={'yes' if self.force_sync else 'no'}",
            f"-Dpc.zk.log={self.data_dir / 'zookeeper.log'}",
            *login,
            "-cp",
            classpath(),
            MAIN_CLASS,
            str(config_path),
        ]
        self._release()
        self._said_before = {file: file.stat().st_size for file in self._reports()}
        self.process = launch(command, self.data_dir / "zookeeper.out", launcher=self.launcher)

    def serving(self) -> bool:
        """Whether the server accepts client requests (in an ensemble: it belongs to a quorum)."""
        context = self.security.probe_context()
        return "Mode:" in four_letter_word(self.client_port, "srvr", host=self.host, context=context)

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _reports(self) -> list[Path]:
        """Its output and its log, as far as they are there."""
        return [file for name in ("out", "log") if (file := self.data_dir / f"zookeeper.{name}").exists()]

    def last_words(self) -> str:
        """The ends of what its last process wrote, without the stack traces of Java in which a cause is not found."""
        texts = [file.read_bytes()[self._said_before.get(file, 0) :][-20_000:] for file in self._reports()]
        ends = [text.decode(errors="replace").splitlines() for text in texts]
        said = [[line for line in end if not line.startswith(_STACK)][-12:] for end in ends]
        return "\n".join(chain.from_iterable(said))

    def kill(self, signum: int = signal.SIGKILL) -> None:
        """Send a signal to the server process, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signum)

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the server: SIGTERM, then SIGKILL."""
        if self.process is None:
            return
        self.kill(signal.SIGTERM)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()
        self._release()

    def _release(self) -> None:
        release(self.process)
        self.process = None


class EmbeddedZooKeeper:
    """A single server or an ensemble of 3 or 5 on loopback.

    ``port`` is the first client port (0: any free one); further servers of an ensemble take the next ones.
    """

    def __init__(
        self,
        data_dir: Path,
        servers: int = 1,
        port: int = 0,
        heap_mb: int = 1024,
        *,
        force_sync: bool = True,
        security: Security | None = None,
    ) -> None:
        if servers not in (1, 3, 5):
            raise ValueError(f"servers = {servers}: must be 1, 3 or 5")
        self._port = port
        self.servers = [
            ZooKeeperServer(
                client_port=0,
                data_dir=data_dir / (f"server-{n}" if servers > 1 else ""),
                server_id=n,
                heap_mb=heap_mb,
                force_sync=force_sync,
                security=security or Security(),
            )
            for n in range(1, servers + 1)
        ]
        self._assign_ports()

    def _assign_ports(self) -> None:
        count = len(self.servers)
        free = free_ports(3 * count)
        for n, server in enumerate(self.servers):
            server.client_port = self._port + n if self._port else free[n]
        if count == 1:
            return
        peers = tuple(
            f"server.{server.server_id}={LOOPBACK}:{own}:{votes}"
            + ("" if server.security.tls else f";{LOOPBACK}:{server.client_port}")
            for server, own, votes in zip(
                self.servers, free[count : 2 * count], free[2 * count :], strict=True
            )
        )
        for server in self.servers:
            server.peers = peers

    @property
    def connect_string(self) -> str:
        return ",".join(f"{server.host}:{server.client_port}" for server in self.servers)

    def start(self, timeout_s: float = 60.0) -> None:
        """Launch all servers and wait until each accepts requests.

        Raises EnvironmentFault with the end of a server's output when it does not.
        """
        for left in reversed(range(PORT_DRAWS)):
            try:
                self._start(timeout_s)
            except PortTakenFault:
                # It was free a moment ago.
                if self._port or not left:
                    raise
                self._assign_ports()
            else:
                return

    def _start(self, timeout_s: float) -> None:
        try:
            for server in self.servers:
                server.start()
        except EnvironmentFault:
            self.stop()
            raise
        except OSError as error:
            self.stop()
            raise EnvironmentFault(f"ZooKeeper's data directory cannot be used: {error}") from error
        deadline = time.monotonic() + timeout_s
        for server in self.servers:
            while not server.serving():
                if not server.running() or time.monotonic() > deadline:
                    output = server.last_words()
                    self.stop()
                    kind = PortTakenFault if _TAKEN in output else EnvironmentFault
                    raise kind(f"ZooKeeper on port {server.client_port} did not start: {output.strip()}")
                time.sleep(0.05)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def __enter__(self) -> EmbeddedZooKeeper:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
