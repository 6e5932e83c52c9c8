"""A real ZooKeeper that knows users by SASL DIGEST-MD5, as clusters with ``zookeeper.set.acl`` have it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controller.embedded_zookeeper.ensemble import ZooKeeperServer, free_ports
from tests.support.runtime.sessions import PATIENCE_S

#: Passwords by user.
USERS = {"kafka": "kafka-secret", "other": "other-secret"}
LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


@contextmanager
def secured_zookeeper(folder: Path) -> Iterator[str]:
    """Connect string of a server that knows ``USERS``."""
    folder.mkdir(parents=True, exist_ok=True)
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    jaas = folder / "jaas.conf"
    jaas.write_text(f"Server {{\n  {LOGIN_MODULE} required {users};\n}};\n")
    (port,) = free_ports(1)
    server = ZooKeeperServer(
        port,
        folder,
        peers=("authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",),
        force_sync=False,
        heap_mb=256,
        launcher=("env", f"JDK_JAVA_OPTIONS=-Djava.security.auth.login.config={jaas}"),
    )
    server.start()
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not server.serving():
            assert time.monotonic() < deadline, "ZooKeeper did not start"
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        server.stop()
