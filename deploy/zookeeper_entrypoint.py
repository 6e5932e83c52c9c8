"""Run one server of a ZooKeeper ensemble, from the jars that PySpark ships, reachable from other containers.

``partition-controller zookeeper`` keeps to loopback; this writes a zoo.cfg for all interfaces and becomes
Java. From the environment: ``ZOO_MY_ID`` (1, 2, ...), ``ZOO_SERVERS`` (the servers' host names in id order,
space separated), ``ZOO_DATA_DIR``, ``ZOO_HEAP_MB``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from controller.embedded_zookeeper.ensemble import JUTE_MAXBUFFER, MAIN_CLASS, classpath, find_java
from controller.errors import ControllerError

CLIENT_PORT, QUORUM_PORT, ELECTION_PORT = 2181, 2888, 3888

_LOG4J2 = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} - %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


def zoo_cfg(data_dir: Path, hosts: list[str]) -> str:
    """The configuration, the same on every server: which one it is stands in ``myid``."""
    lines = [
        "tickTime=500",
        "initLimit=20",
        "syncLimit=10",
        f"dataDir={data_dir}",
        "minSessionTimeout=1000",
        "maxSessionTimeout=120000",
        "maxClientCnxns=0",
        "admin.enableServer=false",
        "4lw.commands.whitelist=ruok,srvr,mntr,isro",
        "autopurge.snapRetainCount=3",
        "autopurge.purgeInterval=1",
    ]
    if len(hosts) == 1:
        return "\n".join([*lines, f"clientPort={CLIENT_PORT}", "clientPortAddress=0.0.0.0", ""])
    lines.append("quorumListenOnAllIPs=true")
    lines += [
        f"server.{n}={host}:{QUORUM_PORT}:{ELECTION_PORT};0.0.0.0:{CLIENT_PORT}"
        for n, host in enumerate(hosts, start=1)
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    hosts = os.environ.get("ZOO_SERVERS", "localhost").split()
    my_id = int(os.environ.get("ZOO_MY_ID", "1"))
    if not 1 <= my_id <= len(hosts):
        sys.exit(f"ZOO_MY_ID = {my_id}: must be 1 to {len(hosts)}, the number of ZOO_SERVERS")
    data_dir = Path(os.environ.get("ZOO_DATA_DIR", "/var/lib/partition-controller/zookeeper"))
    data_dir.mkdir(parents=True, exist_ok=True)
    (data_dir / "myid").write_text(f"{my_id}\n")
    (data_dir / "zoo.cfg").write_text(zoo_cfg(data_dir, hosts))
    (data_dir / "log4j2.properties").write_text(_LOG4J2)
    try:
        java, jars = find_java(), classpath()
    except ControllerError as error:
        sys.exit(f"zookeeper_entrypoint: {error}")
    command = [
        java,
        f"-Xmx{int(os.environ.get('ZOO_HEAP_MB', '512'))}m",
        "-XX:+UseParallelGC",
        "-XX:+ExitOnOutOfMemoryError",
        f"-Djute.maxbuffer={JUTE_MAXBUFFER}",
        f"-Dlog4j2.configurationFile={data_dir / 'log4j2.properties'}",
        "-cp",
        jars,
        MAIN_CLASS,
        str(data_dir / "zoo.cfg"),
    ]
    os.execv(java, command)  # noqa: S606  (java takes this process's place, and its signals)


if __name__ == "__main__":
    main()
