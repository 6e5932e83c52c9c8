"""Run one server of a ZooKeeper ensemble, from the jars that PySpark ships, reachable from other containers.

``partition-controller zookeeper`` keeps to loopback; this writes a zoo.cfg for all interfaces and becomes
Java. From the environment: ``ZOO_MY_ID`` (1, 2, ...), ``ZOO_SERVERS`` (the servers' host names in id order,
space separated), ``ZOO_DATA_DIR``, ``ZOO_HEAP_MB``; ``ZOO_LISTEN``: the only address to listen on.

Secured by ``ZOO_CERTIFICATE`` (PEM file: certificate and key), ``ZOO_CA`` (PEM file: authorities of the clients'
certificates, which they must have), ``ZOO_USERS_FILE`` (``NAME=PASSWORD`` by line, for SASL DIGEST-MD5) and
``ZOO_REQUIRED_SCHEMES`` (by which each session must log in: sasl, x509, digest; space separated). With a certificate
the servers talk to one another by TLS, too.

With the argument ``serving``: exit code 0 if the server of this container serves in a quorum.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from controller.embedded_zookeeper.ensemble import (
    COLLECTOR,
    JUTE_MAXBUFFER,
    LOOPBACK,
    MAIN_CLASS,
    Security,
    classpath,
    find_java,
    four_letter_word,
)
from controller.errors import ControllerError

CLIENT_PORT, QUORUM_PORT, ELECTION_PORT = 2181, 2888, 3888
#: Connections that one address may have: ZooKeeper's own default.
CONNECTIONS_MAX = 60
HEAP_MB_MAX = 1 << 20

_LOG4J2 = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} - %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


def security(environment: Mapping[str, str]) -> Security:
    """The security that the environment asks for. Raises OSError, ValueError."""
    certificate, ca = environment.get("ZOO_CERTIFICATE"), environment.get("ZOO_CA")
    if bool(certificate) != bool(ca):
        raise ValueError("ZOO_CERTIFICATE and ZOO_CA: must both be given, or neither")
    users = {}
    if file := environment.get("ZOO_USERS_FILE"):
        for number, line in enumerate(Path(file).read_text(encoding="utf-8").splitlines(), 1):
            name, equals, password = line.partition("=")
            if not (name and equals and password) or '"' in line:
                raise ValueError(f"{file}, line {number}: must be NAME=PASSWORD without quotation marks")
            users[name] = password
    required = tuple(environment.get("ZOO_REQUIRED_SCHEMES", "").split())
    return Security(Path(certificate) if certificate else None, Path(ca) if ca else None, users, required)


def zoo_cfg(data_dir: Path, hosts: list[str], secured: Security, listen: str = "") -> str:
    """The configuration, the same on every server: which one it is stands in ``myid``.

    ``listen``: the only address; empty: all.
    """
    everywhere = "0.0.0.0"  # noqa: S104  (in a container)
    lines = [
        "tickTime=500",
        "initLimit=20",
        "syncLimit=10",
        f"dataDir={data_dir}",
        "minSessionTimeout=1000",
        "maxSessionTimeout=120000",
        f"maxClientCnxns={CONNECTIONS_MAX}",
        "admin.enableServer=false",
        "4lw.commands.whitelist=ruok,srvr,mntr,isro",
        "autopurge.snapRetainCount=3",
        "autopurge.purgeInterval=1",
    ]
    clients = secured.lines(CLIENT_PORT, listen or everywhere)
    # An ensemble names its plain client port with each server.
    lines += [line for line in clients if len(hosts) == 1 or not line.startswith("clientPort")]
    if len(hosts) == 1:
        return "\n".join([*lines, ""])
    if not listen:
        lines.append("quorumListenOnAllIPs=true")
    if secured.tls:
        lines += [
            "sslQuorum=true",
            f"ssl.quorum.keyStore.location={secured.certificate}",
            "ssl.quorum.keyStore.type=PEM",
            f"ssl.quorum.trustStore.location={secured.ca}",
            "ssl.quorum.trustStore.type=PEM",
            # Clients' connections take renewed files by themselves; without this the servers' among themselves do not.
            "sslQuorumReloadCertFiles=true",
        ]
    lines += [
        f"server.{n}={host}:{QUORUM_PORT}:{ELECTION_PORT}"
        + ("" if secured.tls else f";{listen or everywhere}:{CLIENT_PORT}")
        for n, host in enumerate(hosts, start=1)
    ]
    return "\n".join([*lines, ""])


def serving(environment: Mapping[str, str]) -> bool:
    """Whether this container's server serves. Raises OSError, ValueError."""
    context = security(environment).probe_context()
    host = environment.get("ZOO_LISTEN") or LOOPBACK
    return "Mode:" in four_letter_word(CLIENT_PORT, "srvr", host=host, context=context)


def number(name: str, default: int, last: int, what: str) -> int:
    """A number of the environment, from 1 to ``last``. Exits with a message for any other text."""
    text = os.environ.get(name, str(default))
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= last:
        sys.exit(f"{name} = {text[:50]}: must be 1 to {last}, {what}")
    return int(text)


def main() -> None:
    if sys.argv[1:] == ["serving"]:
        sys.exit(not serving(os.environ))
    hosts = os.environ.get("ZOO_SERVERS", "localhost").split()
    my_id = number("ZOO_MY_ID", 1, len(hosts), "the number of ZOO_SERVERS")
    heap_mb = number("ZOO_HEAP_MB", 512, HEAP_MB_MAX, "MiB of memory")
    data_dir = Path(os.environ.get("ZOO_DATA_DIR", "/var/lib/partition-controller/zookeeper"))
    data_dir.mkdir(parents=True, exist_ok=True)
    (data_dir / "myid").write_text(f"{my_id}\n")
    try:
        secured = security(os.environ)
    except (OSError, ValueError) as error:
        sys.exit(f"zookeeper_entrypoint: {error}")
    (data_dir / "zoo.cfg").write_text(zoo_cfg(data_dir, hosts, secured, os.environ.get("ZOO_LISTEN", "")))
    login: list[str] = []
    if jaas := secured.jaas():
        (data_dir / "jaas.conf").touch(mode=0o600)
        (data_dir / "jaas.conf").write_text(jaas)
        login = [f"-Djava.security.auth.login.config={data_dir / 'jaas.conf'}"]
    (data_dir / "log4j2.properties").write_text(_LOG4J2)
    try:
        java, jars = find_java(), classpath()
    except ControllerError as error:
        sys.exit(f"zookeeper_entrypoint: {error}")
    command = [
        java,
        f"-Xmx{heap_mb}m",
        *COLLECTOR,
        "-XX:+ExitOnOutOfMemoryError",
        f"-Djute.maxbuffer={JUTE_MAXBUFFER}",
        f"-Dlog4j2.configurationFile={data_dir / 'log4j2.properties'}",
        *login,
        "-cp",
        jars,
        MAIN_CLASS,
        str(data_dir / "zoo.cfg"),
    ]
    os.execv(java, command)  # noqa: S606  (java takes this process's place, and its signals)


if __name__ == "__main__":
    main()
